package moe

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
	"github.com/mscclpp-go/mscclpp/inference/moe/image"
	"github.com/mscclpp-go/mscclpp/internal/ownkernel"
)

// kernelOf is the kernel of an algorithm.
func kernelOf(algorithm string) ownkernel.Kernel {
	return ownkernel.Kernel{Family: "moe", Algorithm: algorithm, Symbol: "mscclpp_moe_" + algorithm, Purpose: "experts", Layout: layout(), Images: image.Images}
}

// New makes a buffer. It is collective. ErrUnavailable: not all ranks reach each other's memory, or there are no kernels for the
// device.
func New(ctx context.Context, c *comm.Communicator, o Options) (*Buffer, error) {
	b := &Buffer{comm: c, options: o, host: c.Device().Info().Device == framework.Host, number: waitMark | waitNumber.Add(1)&waitMask}
	mistake := o.Check(c.Size())
	for i, algorithm := range []string{"dispatch", "combine"} {
		b.code[i] = kernelOf(algorithm)
		if mistake == nil {
			mistake = b.code[i].Find(c)
		}
	}
	if err := b.agree(ctx, mistake); err != nil {
		return nil, err
	}
	if err := b.reach(ctx); err != nil {
		return nil, err
	}
	b.local = o.Local(c.Size())
	if err := b.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("buffer: %w", err), b.release())
	}
	b.list(b.Close)
	return b, nil
}

// agree compares the options of all ranks.
func (b *Buffer) agree(ctx context.Context, mistake error) error {
	mine := b.options.encode()
	if mistake != nil {
		mine = []byte(mistake.Error())
	}
	all, err := b.comm.AllGather(ctx, mine)
	if err != nil || mistake != nil {
		return errors.Join(mistake, err)
	}
	for r, theirs := range all {
		if text := b.options.differs(theirs, b.comm.Rank()); text != "" {
			return &framework.Error{Op: "buffer", Peer: r, Err: fmt.Errorf("%w: %s", framework.ErrInvalid, text)}
		}
	}
	return nil
}

// reach refuses ranks that do not share memory, before anything is set up.
func (b *Buffer) reach(ctx context.Context) error {
	if b.comm.Size() == 1 {
		return nil
	}
	found, err := b.comm.ReachAll(ctx)
	if err == nil && found.Apart != nil {
		err = fmt.Errorf("%w: buffer: expected that all ranks reach each other's memory: %w", framework.ErrUnavailable, found.Apart)
	}
	return err
}

// open makes the memory. Where rows arrive every word is the sentinel.
func (b *Buffer) open(ctx context.Context) (err error) {
	n, d := b.comm.Size(), b.comm.Device()
	p, size := b.options.arrange(n)
	if b.memory, err = b.comm.Alloc(size); err != nil {
		return err
	}
	if err := fill(d, b.memory.Addr()+uintptr(p.Rows), size-p.Rows); err != nil {
		return err
	}
	peers := make([]byte, 8*n)
	binary.LittleEndian.PutUint64(peers, uint64(b.memory.Addr()))
	if n > 1 {
		if b.shared, err = b.comm.Exchange(ctx, b.memory); err != nil {
			return err
		}
		for r := range n {
			binary.LittleEndian.PutUint64(peers[8*r:], uint64(b.shared.Peer(r)))
		}
	}
	const head = unsafe.Sizeof(moeState{})
	if b.private, err = d.Alloc(uint64(head) + uint64(len(peers))); err != nil {
		return err
	}
	base := b.private.Addr()
	if err := write(d, base+head, peers); err != nil {
		return err
	}
	a := &b.args
	a.moeMemory = moeMemory{Control: b.comm.Control(), State: base, Peers: base + head, places: p, Stride: b.options.stride()}
	a.MostTokens, a.Experts, a.Local, a.MostLocal = uint32(b.options.Tokens), uint32(b.options.Experts), uint32(b.local), uint32(b.local)
	a.Inverse = uint32((uint64(1)<<32 + uint64(b.local) - 1) / uint64(b.local))
	a.Rank, a.Ranks, a.Kernel = uint32(b.comm.Rank()), uint32(n), b.number
	return nil
}

// fill writes the sentinel.
func fill(d device.Device, addr uintptr, size uint64) error {
	chunk := bytes.Repeat([]byte{0xff}, int(min(size, 4<<20)))
	for done := uint64(0); done < size; done += uint64(len(chunk)) {
		if err := write(d, addr+uintptr(done), chunk[:min(uint64(len(chunk)), size-done)]); err != nil {
			return err
		}
	}
	return nil
}

// write copies bytes to memory of a device.
func write(d device.Device, addr uintptr, data []byte) error {
	if w, ok := d.(interface {
		WriteAt(data []byte, addr uintptr) error
	}); ok {
		return w.WriteAt(data, addr)
	}
	copy(unsafe.Slice((*byte)(at(addr)), len(data)), data)
	return nil
}

// at turns an address outside of Go's heap into a pointer.
func at(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// Close releases what the buffer has. A call in progress, which waits for peers, ends with ErrClosed, and with it the
// communicator. Otherwise Close is local.
func (b *Buffer) Close() error {
	if b.running.Load() {
		b.comm.Abort(fmt.Errorf("%w: rank %d closed a buffer while a call of it ran", framework.ErrClosed, b.comm.Rank()))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	b.unlist()
	return errors.Join(b.quiet(), b.order.Close(), b.release())
}

func (b *Buffer) release() error {
	var errs []error
	if b.shared != nil {
		errs = append(errs, b.shared.Close())
	}
	if b.private != nil {
		errs = append(errs, b.private.Close())
	}
	if b.memory != nil {
		errs = append(errs, b.memory.Close())
	}
	return errors.Join(append(errs, b.code[0].Close(), b.code[1].Close())...)
}
