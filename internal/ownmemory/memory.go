// Package ownmemory has the memory of an operator: on each rank a part that the ranks open to each other, and one of the rank alone.
package ownmemory

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Memory is that of an operator.
type Memory struct {
	comm    *comm.Communicator
	open    *comm.Memory
	shared  *comm.Symmetric
	private device.Memory
}

// Reach refuses ranks that do not share memory, before anything is set up for an operator. Collective.
func Reach(ctx context.Context, c *comm.Communicator, operator string) error {
	apart, err := Apart(ctx, c)
	if err == nil && apart != nil {
		err = fmt.Errorf("%w: %s: expected that all ranks reach each other's memory: %w", framework.ErrUnavailable, operator, apart)
	}
	return err
}

// Apart says why not all ranks share memory, the same on all of them; nil: they do. Collective.
func Apart(ctx context.Context, c *comm.Communicator) (apart, err error) {
	if c.Size() == 1 {
		return nil, nil
	}
	found, err := c.ReachAll(ctx)
	return found.Apart, err
}

// New allocates memory that the ranks are to open to each other.
func New(c *comm.Communicator, size uint64) (*Memory, error) {
	open, err := c.Alloc(size)
	return &Memory{comm: c, open: open}, err
}

// Addr is where the memory of this rank begins.
func (m *Memory) Addr() uintptr { return m.open.Addr() }

// Opened is the memory of this rank, for channels.
func (m *Memory) Opened() *comm.Memory { return m.open }

// Exchange opens the memory, and returns the addresses of that of all ranks, as kernels read them. Collective.
func (m *Memory) Exchange(ctx context.Context) (peers []byte, err error) {
	n := m.comm.Size()
	if n == 1 {
		return binary.LittleEndian.AppendUint64(nil, uint64(m.Addr())), nil
	}
	if m.shared, err = m.comm.Exchange(ctx, m.open); err != nil {
		return nil, err
	}
	for r := range n {
		peers = binary.LittleEndian.AppendUint64(peers, uint64(m.shared.Peer(r)))
	}
	return peers, nil
}

// Keep allocates the memory of this rank alone, zeros and then data, and returns where it begins.
func (m *Memory) Keep(zeros uintptr, data []byte) (base uintptr, err error) {
	d := m.comm.Device()
	if m.private, err = d.Alloc(uint64(zeros) + uint64(len(data))); err != nil {
		return 0, err
	}
	return m.private.Addr(), Write(d, m.private.Addr()+zeros, data)
}

// Close releases what there is; m may be nil.
func (m *Memory) Close() error {
	if m == nil {
		return nil
	}
	var errs []error
	if m.shared != nil {
		errs = append(errs, m.shared.Close())
	}
	if m.private != nil {
		errs = append(errs, m.private.Close())
	}
	if m.open != nil {
		errs = append(errs, m.open.Close())
	}
	return errors.Join(errs...)
}

// Fill sets all bits of memory of a device: the pattern of packets that have not come.
func Fill(d device.Device, addr uintptr, size uint64) error {
	chunk := bytes.Repeat([]byte{0xff}, int(min(size, 4<<20)))
	for done := uint64(0); done < size; done += uint64(len(chunk)) {
		if err := Write(d, addr+uintptr(done), chunk[:min(uint64(len(chunk)), size-done)]); err != nil {
			return err
		}
	}
	return nil
}

// Write copies bytes to memory of a device.
func Write(d device.Device, addr uintptr, data []byte) error {
	if w, ok := d.(interface {
		WriteAt(data []byte, addr uintptr) error
	}); ok {
		return w.WriteAt(data, addr)
	}
	copy(unsafe.Slice((*byte)(At(addr)), len(data)), data)
	return nil
}

// At turns an address outside of Go's heap into a pointer.
func At(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }
