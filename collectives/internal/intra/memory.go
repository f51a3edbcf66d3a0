package intra

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Bytes of the window of the algorithms over a switch. On a GPU each step costs a barrier, whatever it carries.
const (
	windowBytes       = 5 << 20
	deviceWindowBytes = 32 << 20
	windowPackets     = 1 << 20 // of it, behind the data, for packets
	windowRoom        = 1 << 30 // behind it, for registered memory
)

// memory is what the kernels of all calls use.
type memory struct {
	geometry  kernelargs.Geometry
	scratch   *comm.Memory
	symmetric *comm.Symmetric
	state     device.Memory // of a rank on the host; that of a GPU is behind its scratch
	window    *comm.SwitchChannel
	windowMem *comm.Memory
}

// agreement is the part of what ranks need alike that follows from settings, transports and devices.
type agreement struct {
	Geometry kernelargs.Geometry
	Basis    string
	Rows     string // a sum of the built-in ones: a model may make others of other kernels
	Blocks   uint32
}

// agree compares with the other ranks what has to be the same.
func (e *Engine) agree(ctx context.Context) error {
	rows, err := json.Marshal(e.rows)
	if err != nil {
		return err
	}
	basis := e.basis
	if e.host {
		basis = "rows measured on CPUs"
	}
	mine, err := json.Marshal(agreement{e.memory.geometry, basis, fmt.Sprintf("%x", sha256.Sum256(rows)), e.launcher.Blocks})
	if err != nil {
		return err
	}
	all, err := e.comm.AllGather(ctx, mine)
	if err != nil {
		return err
	}
	for r, theirs := range all {
		if string(theirs) != string(mine) {
			return &framework.Error{Op: "compare options", Peer: r,
				Err: fmt.Errorf("%w: options %s, expected as here %s", framework.ErrInvalid, theirs, mine)}
		}
	}
	return nil
}

// allocate makes the memory, and fills what arguments have in common.
func (e *Engine) allocate(ctx context.Context) error {
	m, b := &e.memory, &e.board
	var err error
	if m.scratch, err = e.comm.Alloc(m.bytes(e.host)); err != nil {
		return fmt.Errorf("scratch: %w", err)
	}
	if err := m.empty(e.comm.Device()); err != nil {
		return fmt.Errorf("scratch: %w", err)
	}
	state := m.scratch.Addr() + uintptr(m.behind())
	if e.host {
		if m.state, err = e.comm.Device().Alloc(kernelargs.StateBytes + kernelargs.PullBytes); err != nil {
			return fmt.Errorf("state: %w", err)
		}
		state = m.state.Addr()
	}
	if m.symmetric, err = e.comm.Exchange(ctx, m.scratch); err != nil {
		return fmt.Errorf("scratch: %w", err)
	}
	*b = board{comm: e.comm, host: e.host, check: e.opts.Signatures, symmetric: m.symmetric, state: state, name: e.name, copying: e.copying, pending: e.Pending}
	k := &e.args.Common
	k.Control, k.State = e.comm.Control(), state
	k.Notes = k.State
	if !e.host {
		if b.notes, err = openNotes(e.comm.Device(), e.comm.Size()); err != nil {
			return err
		}
		k.Notes = b.notes.device
	}
	k.Rank, k.Ranks = uint32(e.comm.Rank()), uint32(e.comm.Size())
	m.geometry.Fill(k)
	for r := range e.comm.Size() {
		k.Scratch[r] = m.symmetric.Peer(r)
	}
	switch e.opts.Signatures {
	case engine.SignaturesStall:
		k.Check = kernelargs.CheckPublish
	case engine.SignaturesAlways:
		k.Check = kernelargs.CheckCompare
	}
	e.messenger.fill(k, &m.geometry)
	e.ll.fill()
	if !e.host {
		return nil
	}
	pull, err := meet(ctx, e.comm, m.state, e.args.Processes[:])
	if err == nil && !pull {
		withdraw(e, choose.Pull, fmt.Errorf("%w: the system does not let all ranks read the memory of each other's processes", framework.ErrUnsupported))
	}
	return err
}

// bytes is the size of scratch. That of a GPU has the state of kernels behind it, which no peer writes: memory of a GPU comes in
// units of 2 MiB, of which the state would leave the most of one empty.
func (m *memory) bytes(host bool) uint64 {
	if host {
		return m.geometry.Total
	}
	return m.behind() + kernelargs.StateBytes
}

// behind is where scratch ends.
func (m *memory) behind() uint64 {
	return (m.geometry.Total + kernelargs.Burst - 1) / kernelargs.Burst * kernelargs.Burst
}

// filler is a device that fills its memory. Without it there are no packets without a flag.
type filler interface {
	Fill(addr uintptr, value byte, bytes uint64) error
}

// empty fills the area of packets without a flag with what says that there is none, before a peer reaches it.
func (m *memory) empty(d device.Device) error {
	if m.geometry.LamportHalf == 0 {
		return nil
	}
	return d.(filler).Fill(m.scratch.Addr()+uintptr(m.geometry.Lamport), kernelargs.Sentinel, 2*m.geometry.LamportHalf)
}

// openWindow makes the memory of the switch algorithm. It is collective: all ranks
// come here when they first use that algorithm. A window with room for registered memory may be more than the switch has: then
// all ranks try one without.
func (m *memory) openWindow(ctx context.Context, c *comm.Communicator, host bool) (handle kernel.SwitchChannelHandle, err error) {
	bytes := uint64(deviceWindowBytes)
	if host {
		bytes = windowBytes
	}
	x, err := c.Alloc(bytes)
	if err != nil {
		return handle, err
	}
	w, err := c.SwitchChannel(ctx, x, comm.Room(windowRoom))
	if errors.Is(err, device.ErrFull) && !host && c.Err() == nil {
		c.Log().Info("there is no window of a switch with room for registered memory: trying one without", "room", windowRoom, "reason", err)
		w, err = c.SwitchChannel(ctx, x)
	}
	if err != nil {
		x.Close()
		return handle, err
	}
	m.window, m.windowMem = w, x
	handle = w.Handle()
	handle.Bytes -= windowPackets // kernels find packets behind the data
	return handle, nil
}

func (m *memory) close(n *notes) error {
	var first error
	keep := func(err error) {
		if err != nil && first == nil {
			first = err
		}
	}
	if m.window != nil {
		keep(m.window.Close())
	}
	if m.windowMem != nil {
		keep(m.windowMem.Close())
	}
	if m.symmetric != nil {
		keep(m.symmetric.Close())
	}
	if m.state != nil {
		keep(m.state.Close())
	}
	keep(n.close())
	if m.scratch != nil {
		keep(m.scratch.Close())
	}
	return first
}
