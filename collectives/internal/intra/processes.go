package intra

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"syscall"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"golang.org/x/sys/unix"
)

// processID is what a rank tells of its process: an id, which means something
// else in another container, and therefore bytes that only the right process has
// at that address.
type processID struct {
	pid   uint64
	addr  uint64
	nonce [16]byte
}

const processIDBytes = 32

func (i processID) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, i.pid)
	b = binary.LittleEndian.AppendUint64(b, i.addr)
	return append(b, i.nonce[:]...)
}

func decodeProcessID(b []byte) (processID, error) {
	if len(b) != processIDBytes {
		return processID{}, fmt.Errorf("%w: introduction of %d bytes, expected %d", framework.ErrPeer, len(b), processIDBytes)
	}
	i := processID{pid: binary.LittleEndian.Uint64(b), addr: binary.LittleEndian.Uint64(b[8:])}
	copy(i.nonce[:], b[16:])
	return i, nil
}

// meet finds out whether all ranks can read each other's memory. They cannot in containers, or where the system
// restricts it (kernel.yama.ptrace_scope). state is memory of this rank whose first bytes behind the state itself
// are free. It is collective.
func meet(ctx context.Context, c *comm.Communicator, state device.Memory, processes []uint64) (ok bool, err error) {
	mine := processID{pid: uint64(os.Getpid()), addr: uint64(state.Addr()) + kernelargs.StateBytes}
	rand.Read(mine.nonce[:])
	private := device.Bytes(state)[kernelargs.StateBytes:]
	copy(private, mine.nonce[:])
	all, err := c.AllGather(ctx, mine.encode())
	if err != nil {
		return false, err
	}
	answer := []byte{1}
	for r, b := range all {
		i, err := decodeProcessID(b)
		if err != nil {
			return false, &framework.Error{Op: "introduce", Peer: r, Err: err}
		}
		processes[r] = i.pid
		if err := i.verify(); err != nil {
			answer[0] = 0
			c.Log().Debug("memory of a peer's process cannot be read", "peer", r, "reason", err)
		}
	}
	verdicts, err := c.AllGather(ctx, answer)
	if err != nil {
		return false, err
	}
	clear(private[:len(mine.nonce)])
	return !slices.ContainsFunc(verdicts, func(v []byte) bool { return !bytes.Equal(v, []byte{1}) }), nil
}

// verify reads the nonce where it should be.
func (i processID) verify() error {
	var seen [len(i.nonce)]byte
	local := []unix.Iovec{{Base: &seen[0], Len: uint64(len(seen))}}
	remote := []unix.RemoteIovec{{Base: uintptr(i.addr), Len: len(seen)}}
	n, err := unix.ProcessVMReadv(int(i.pid), local, remote, 0)
	if err != nil {
		return fmt.Errorf("%w: process %d: %v", framework.ErrUnavailable, i.pid, err)
	}
	if n != len(seen) || seen != i.nonce {
		return fmt.Errorf("%w: process %d is not the peer's", framework.ErrUnavailable, i.pid)
	}
	return nil
}

// pulled is what a launch of a pull algorithm has to tell.
func (b *board) pulled() error {
	peer := int(b.found(kernelargs.UnreachableOffset)) - 1
	if peer < 0 {
		return nil
	}
	return &framework.Error{Op: choose.Pull, Peer: peer, Err: fmt.Errorf("%w: its buffer cannot be read: %v: expected addresses that are valid on that rank",
		framework.ErrPeer, syscall.Errno(b.found(kernelargs.ReasonOffset)))}
}

var _ = [1]struct{}{}[unsafe.Sizeof(processID{})-processIDBytes]
