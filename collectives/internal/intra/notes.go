package intra

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
)

// notes is where kernels leave what the host is to know. On the host that is their
// state. Of a GPU's state the host cannot read a word without a copy, so there they
// are in memory of the host that the GPU maps, like the wait control; kernels write
// them when something is wrong, and never otherwise.
//
// Behind them is room for a copy of what the ranks have published.
type notes struct {
	addr   uintptr // as the host reads it
	device uintptr // as kernels write it

	host   device.Device
	memory device.Memory
	mapped device.Memory

	mu     sync.Mutex // of the copy
	engine device.Engine
	stream device.Stream
	alone  bool // the rank has left in whose memory the entries of this one are
}

// Behind the notes are what the rank itself has begun, and the board.
const (
	begunOffset = 512
	boardOffset = 1024
)

// openNotes makes notes for a device that is not the host.
func openNotes(dev device.Device, ranks int) (n *notes, err error) {
	n = &notes{}
	defer func() {
		if err != nil {
			n.close()
			err = fmt.Errorf("notes: %w", err)
		}
	}()
	if n.host, err = host.Open(); err != nil {
		return n, err
	}
	bytes := uint64(boardOffset+(ranks+1)*kernelargs.MailboxBytes+4095) / 4096 * 4096
	if n.memory, err = n.host.Alloc(bytes); err != nil {
		return n, err
	}
	shares, err := n.memory.Export()
	if err != nil {
		return n, err
	}
	m := framework.Mapping{Role: framework.RolePeer, Peer: framework.NoPeer, Shares: shares, Bytes: bytes}
	defer framework.Attachment{Mappings: []framework.Mapping{m}}.Close()
	if n.mapped, err = dev.Map(m); err != nil {
		return n, err
	}
	n.addr, n.device = n.memory.Addr(), n.mapped.Addr()
	if e, ok := dev.(device.Engine); ok {
		if n.stream, err = device.NewSideStream(e); err != nil {
			return n, err
		}
		n.engine = e
	}
	return n, nil
}

func (n *notes) close() error {
	if n == nil {
		return nil
	}
	var first error
	keep := func(err error) {
		if err != nil && first == nil {
			first = err
		}
	}
	if n.engine != nil {
		keep(n.engine.CloseStream(n.stream))
	}
	for _, m := range []device.Memory{n.mapped, n.memory} {
		if m != nil {
			keep(m.Close())
		}
	}
	if n.host != nil {
		keep(n.host.Close())
	}
	return first
}

// refresh copies what the ranks have published to where row finds it. Kernels may
// run meanwhile. It is false where that cannot be done.
func (n *notes) refresh(s *comm.Symmetric, self, ranks int) bool {
	if n.engine == nil {
		return false
	}
	board := n.device + boardOffset
	next := s.Peer((self+1)%ranks) + uintptr(self)*kernelargs.MailboxBytes
	return n.engine.Copy(n.stream, board, s.Peer(self), uint64(ranks*kernelargs.MailboxBytes)) == nil &&
		(n.alone || n.engine.Copy(n.stream, board+uintptr(ranks*kernelargs.MailboxBytes), next, kernelargs.MailboxBytes) == nil) &&
		n.engine.Sync(n.stream) == nil
}

// begun reads how many calls kernels of this rank have begun; 0 if it cannot be read.
func (n *notes) begun(state uintptr) uint64 {
	if n.engine.Copy(n.stream, n.device+begunOffset, state+kernelargs.SequenceOffset, 8) != nil || n.engine.Sync(n.stream) != nil {
		return 0
	}
	return atomic.LoadUint64((*uint64)(kernelargs.At(n.addr + begunOffset)))
}
