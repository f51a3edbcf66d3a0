package exec

import (
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// move is a copy of one rank.
type move struct {
	to, from unsafe.Pointer
	bytes    uint64
}

// moves are copies, as many as a call may need: one of each buffer.
type moves [2]move

func (m *moves) add(x move) {
	if m[0].bytes == 0 {
		m[0] = x
		return
	}
	m[1] = x
}

// placed is the place of a call's buffers, with the copies that come before and after.
type placed struct {
	in, out       unsafe.Pointer
	before, after moves
	found         [2]located // buffers that other ranks reach where they are
	windows       uintptr    // of these; 0: none
}

// windows say where the memory of other ranks begins in which a call's buffers lie.
type windows struct {
	in, out uint64 // numbers of the exchanges; 0: no such buffer
	memory  device.Memory
	used    uint64
}

// located is a buffer in exchanged memory.
type located struct {
	in   *comm.Symmetric
	from uint64
}

func (l *located) id() uint64 {
	if l.in == nil {
		return 0
	}
	return l.in.ID
}

func (l *located) at(rank int) uint64 {
	if l.in == nil {
		return 0
	}
	return uint64(l.in.Peer(rank))
}
