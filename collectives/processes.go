package collectives

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"os"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// pull is the name of the algorithms that read the memory of the peers' processes.
const pull = "pull"

// introduction is what a rank tells of its process: an id, which means something
// else in another container, and therefore bytes that only the right process has
// at that address.
type introduction struct {
	pid   uint64
	addr  uint64
	nonce [16]byte
}

const introductionBytes = 32

func (i introduction) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, i.pid)
	b = binary.LittleEndian.AppendUint64(b, i.addr)
	return append(b, i.nonce[:]...)
}

func decodeIntroduction(b []byte) (introduction, error) {
	if len(b) != introductionBytes {
		return introduction{}, fmt.Errorf("%w: introduction of %d bytes, expected %d", framework.ErrPeer, len(b), introductionBytes)
	}
	i := introduction{pid: binary.LittleEndian.Uint64(b), addr: binary.LittleEndian.Uint64(b[8:])}
	copy(i.nonce[:], b[16:])
	return i, nil
}

// meetProcesses finds out whether all ranks can read each other's memory, and
// withdraws the pull algorithms if one cannot: in containers, or where the system
// restricts it (kernel.yama.ptrace_scope). It is collective.
func (c *Comm) meetProcesses(ctx context.Context) error {
	mine := introduction{pid: uint64(os.Getpid()), addr: uint64(c.state.Addr()) + kernelargs.StateBytes}
	rand.Read(mine.nonce[:])
	private := device.Bytes(c.state)[kernelargs.StateBytes:]
	copy(private, mine.nonce[:])
	all, err := c.comm.AllGather(ctx, mine.encode())
	if err != nil {
		return err
	}
	answer := []byte{1}
	for r, b := range all {
		i, err := decodeIntroduction(b)
		if err != nil {
			return &framework.Error{Op: "introduce", Peer: r, Err: err}
		}
		c.args.Processes[r] = i.pid
		if err := i.verify(); err != nil {
			answer[0] = 0
			c.comm.Log().Debug("memory of a peer's process cannot be read", "peer", r, "reason", err)
		}
	}
	verdicts, err := c.comm.AllGather(ctx, answer)
	if err != nil {
		return err
	}
	clear(private[:len(mine.nonce)])
	if slices.ContainsFunc(verdicts, func(v []byte) bool { return !bytes.Equal(v, []byte{1}) }) {
		c.withdraw(pull)
	}
	return nil
}

// verify reads the nonce where it should be.
func (i introduction) verify() error {
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

// withdraw removes all algorithms of a name.
func (c *Comm) withdraw(name string) {
	for k := range c.algorithms {
		c.algorithms[k] = slices.DeleteFunc(c.algorithms[k], func(a *algorithm) bool { return a.name == name })
	}
}

// pulled is what a launch of a pull algorithm has to tell.
func (c *Comm) pulled() error {
	peer := int(c.found(kernelargs.UnreachableOffset)) - 1
	if peer < 0 {
		return nil
	}
	return &framework.Error{Op: pull, Peer: peer, Err: fmt.Errorf("%w: its buffer cannot be read: %v: expected addresses that are valid on that rank",
		framework.ErrPeer, syscall.Errno(c.found(kernelargs.ReasonOffset)))}
}

var _ = [1]struct{}{}[unsafe.Sizeof(introduction{})-introductionBytes]
