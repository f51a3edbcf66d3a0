package moe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/internal/streamorder"
)

// newTwin makes one, or a part of one and an error. Collective.
func newTwin(ctx context.Context, c *comm.Communicator, o Options) (t *twin, err error) {
	d, ok := c.Device().(copier)
	if !ok {
		return nil, fmt.Errorf("%w: buffer: %s: expected a device that the host copies to and from", framework.ErrUnavailable, c.Device().Info().Name)
	}
	t = &twin{device: d}
	if t.host, err = host.Open(); err != nil {
		return t, err
	}
	if t.comm, err = c.OnDevice(ctx, t.host); err != nil {
		return t, err
	}
	t.buffer, err = New(ctx, t.comm, o)
	return t, err
}

func (t *twin) close() error {
	if t == nil {
		return nil
	}
	var errs []error
	if t.buffer != nil {
		errs = append(errs, t.buffer.Close())
	}
	if t.comm != nil {
		errs = append(errs, t.comm.Close())
	}
	if t.host != nil {
		errs = append(errs, t.host.Close())
	}
	for i := range t.stages {
		for k := range t.stages[i] {
			errs = append(errs, t.stages[i][k].close())
		}
	}
	return errors.Join(errs...)
}

func (s *stage) close() (err error) {
	if s.room != nil {
		err = unix.Munmap(s.room)
	}
	s.room = nil
	return err
}

// begin makes room for so many bytes, in parts.
func (s *stage) begin(bytes int) (err error) {
	const spare = 16 * 256 // of parts that begin at multiples
	if s.used = 0; len(s.room) >= bytes+spare {
		return nil
	}
	if err := s.close(); err != nil {
		return err
	}
	s.room, err = unix.Mmap(-1, 0, bytes+spare, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		err = fmt.Errorf("%w: %d bytes for a call on the host: %w", framework.ErrUnavailable, bytes, err)
	}
	return err
}

// part is the next one, if the call has the buffer.
func (s *stage) part(of unsafe.Pointer, bytes int) []byte {
	if of == nil {
		return nil
	}
	b := s.room[s.used:][:bytes]
	s.used += (bytes + 255) / 256 * 256
	return b
}

func at(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

func (t *twin) read(b []byte, from unsafe.Pointer) error {
	if len(b) == 0 {
		return nil
	}
	return t.device.ReadAt(b, uintptr(from))
}

// write copies a range of a buffer back.
func (t *twin) write(to unsafe.Pointer, b []byte, first, n int) error {
	if to == nil || n == 0 {
		return nil
	}
	return t.device.WriteAt(b[first:first+n], uintptr(to)+uintptr(first))
}

// settle waits for a stream.
func (t *twin) settle(op string, s device.Stream) error {
	if s != 0 {
		capturing, err := streamorder.Capturing(t.device, s)
		if err != nil {
			return err
		}
		if capturing {
			return fmt.Errorf("%w: %s: over hosts calls of ranks on GPUs go through the host: expected a stream that is not recorded into a graph", framework.ErrUnsupported, op)
		}
	}
	return t.device.Sync(s)
}

// stageOf is the memory of a call.
func (t *twin) stageOf(kind int, phase Phase, ticket uint64) *stage {
	if phase != Receive {
		ticket = t.buffer.issued[kind] + 1
	}
	return &t.stages[kind][ticket%2]
}

func (t *twin) dispatch(c *DispatchCall) error {
	if err := t.settle(operations[dispatching], c.Stream); err != nil {
		return err
	}
	b := t.buffer
	rows, local, row, outRow := b.local*c.slots(b), b.local, c.rowBytes(), c.outRowBytes()
	words := c.rowScales() // of scales, of a row that is given out
	if c.Exponents {
		words /= 4
	}
	list := []pointer{
		{at: c.Input, bytes: c.Tokens * row}, {at: c.Scales, bytes: 4 * c.Tokens * c.RowScales}, {at: c.Indices, bytes: c.Tokens * c.TopK * indexBytes(c.Index64)},
		{at: c.Weights, bytes: 4 * c.Tokens * c.TopK}, {at: c.Statistics, bytes: 4 * local}, {at: c.Output, bytes: rows * outRow}, {at: c.OutputScales, bytes: 4 * rows * words},
		{at: c.Sources, bytes: 4 * rows}, {at: c.Ranges, bytes: 8 * local * b.comm.Size()}, {at: c.Received, bytes: 4 * local}, {at: c.Handle, bytes: int(b.HandleBytes())},
	}
	const inputs = 5
	parts, err := t.parts(t.stageOf(dispatching, c.Phase, c.Ticket), list, inputs)
	if err != nil {
		return err
	}
	on := *c
	on.Stream = 0
	on.Input, on.Scales, on.Indices, on.Weights, on.Statistics = at(parts[0]), at(parts[1]), at(parts[2]), at(parts[3]), at(parts[4])
	on.Output, on.OutputScales, on.Sources, on.Ranges, on.Received, on.Handle = at(parts[5]), at(parts[6]), at(parts[7]), at(parts[8]), at(parts[9]), at(parts[10])
	err = b.Dispatch(&on)
	if c.Ticket = on.Ticket; err != nil || c.Phase == Send {
		return err
	}
	errs := []error{t.write(c.Statistics, parts[4], 0, len(parts[4])), t.write(c.Ranges, parts[8], 0, len(parts[8])), t.write(c.Received, parts[9], 0, len(parts[9])), t.write(c.Handle, parts[10], 0, len(parts[10]))}
	for e := range local {
		n, first := int(binary.LittleEndian.Uint32(parts[9][4*e:])), e*c.slots(b)
		errs = append(errs, t.write(c.Output, parts[5], first*outRow, n*outRow), t.write(c.Sources, parts[7], 4*first, 4*n))
		if n > 0 { // scales of a row are apart from each other: one copy for all
			errs = append(errs, t.write(c.OutputScales, parts[6], 4*first*words, 4*c.slots(b)*words))
		}
	}
	return errors.Join(errs...)
}

// parts finds a part for each buffer, of which it reads the first ones.
func (t *twin) parts(s *stage, list []pointer, inputs int) (parts [][]byte, err error) {
	total := 0
	for i := range list {
		total += list[i].bytes
	}
	if err := s.begin(total); err != nil {
		return nil, err
	}
	for i := range list {
		b := s.part(list[i].at, list[i].bytes)
		if i < inputs {
			err = errors.Join(err, t.read(b, list[i].at))
		}
		parts = append(parts, b)
	}
	return parts, err
}

func (t *twin) combine(c *CombineCall) error {
	if err := t.settle(operations[combining], c.Stream); err != nil {
		return err
	}
	b := t.buffer
	row, slots := 2*c.Hidden, b.slots(c.Slots)
	list := []pointer{
		{at: c.Indices, bytes: c.Tokens * c.TopK * indexBytes(c.Index64)}, {at: c.Weights, bytes: 4 * c.Tokens * c.TopK}, {at: c.Handle, bytes: int(b.HandleBytes())},
		{at: c.Input, bytes: b.local * slots * row}, {at: c.Output, bytes: c.Tokens * row},
	}
	const inputs = 3
	parts, err := t.parts(t.stageOf(combining, c.Phase, c.Ticket), list, inputs)
	if err != nil {
		return err
	}
	if c.Phase != Receive {
		for e, n := range b.rowsOf(parts[2]) {
			if n > slots {
				return invalid(operations[combining], "the handle has %d rows of an expert: expected that of a dispatch, with at most %d", n, slots)
			}
			first := e * slots * row
			if err := t.read(parts[3][first:first+n*row], unsafe.Add(c.Input, first)); err != nil {
				return err
			}
		}
	}
	on := *c
	on.Stream = 0
	on.Indices, on.Weights, on.Handle, on.Input, on.Output = at(parts[0]), at(parts[1]), at(parts[2]), at(parts[3]), at(parts[4])
	err = b.Combine(&on)
	if c.Ticket = on.Ticket; err != nil || c.Phase == Send {
		return err
	}
	return t.write(c.Output, parts[4], 0, len(parts[4]))
}

// rowsOf is how many rows each expert has got, by the records of a dispatch.
func (b *Buffer) rowsOf(handle []byte) []int {
	rows := make([]int, b.local)
	for r := range b.comm.Size() {
		for t := range min(int(binary.LittleEndian.Uint32(handle[16*r:])), b.options.Tokens) {
			record := handle[16*b.comm.Size()+(r*b.options.Tokens+t)*int(recordBytes):]
			for j := range min(int(binary.LittleEndian.Uint32(record)), mostTopK) {
				entry := record[16*(j+1):]
				if e := int(binary.LittleEndian.Uint32(entry) & 0xffff); e < b.local {
					rows[e] = max(rows[e], int(binary.LittleEndian.Uint32(entry[4:]))+1)
				}
			}
		}
	}
	return rows
}
