package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Heap is memory of the host that has an address of this process, and nothing else.
func (r *Rank) Heap(size uint64) *Buffer {
	words := make([]uint64, (size+7)/8) // aligned, as counters have to be
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), size)
	return &Buffer{Bytes: b, Segment: framework.Segment{Device: framework.Host, Bytes: size, Addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))}}
}

// Rank is one member of a test: a side, a device, and what a rank does with them.
// Its methods end the test on errors that no test expects.
type Rank struct {
	*watched
	N      int
	Device device.Device
}

// Ranks opens n ranks, each with a side of its own.
func (t *T) Ranks(n int) []*Rank {
	all := make([]*Rank, n)
	for i := range all {
		all[i] = t.Rank(i)
	}
	return all
}

// Rank opens rank n with a side of its own, until the end of the test.
func (t *T) Rank(n int) *Rank {
	o := t.take()
	t.Cleanup(func() { t.giveBack(o, n) })
	return t.Join(n, o.Side, o.ids)
}

// Join makes a rank of an open side; several ranks may share one.
func (t *T) Join(n int, side *Side, ids *idSet) *Rank {
	return t.JoinOn(t.Device(n), n, side, ids)
}

// Device opens the device of a rank, until the end of the test.
func (t *T) Device(n int) device.Device {
	device, err := t.Options.Device(n)
	if err != nil {
		t.Fatalf("open the device of rank %d: %v", n, err)
	}
	t.Cleanup(func() {
		if err := device.Close(); err != nil {
			t.Errorf("close the device of rank %d: %v", n, err)
		}
	})
	return device
}

// JoinOn is Join with a device that is open.
func (t *T) JoinOn(device device.Device, n int, side *Side, ids *idSet) *Rank {
	w := &watched{T: t, name: fmt.Sprintf("rank %d", n), Side: side, Ids: ids}
	return &Rank{watched: w, N: n, Device: device}
}

// Buffer is memory of a rank. The segment owns its shares until the test ends.
type Buffer struct {
	Mem     device.Memory
	Bytes   []byte // nil where this process cannot touch it
	Segment framework.Segment
}

// Alloc allocates memory of the rank's device, and exports it, until the end of the test.
func (r *Rank) Alloc(bytes uint64) *Buffer {
	t := r.T
	mem, err := r.Device.Alloc(bytes)
	if err != nil {
		t.Fatalf("allocate %d bytes: %v", bytes, err)
	}
	t.Cleanup(func() { _ = mem.Close() })
	shares, err := mem.Export()
	if err != nil {
		t.Fatalf("export %d bytes: %v", bytes, err)
	}
	t.Cleanup(func() { _ = framework.Parcel{Shares: shares}.Close() })
	b := &Buffer{
		Mem:     mem,
		Segment: framework.Segment{Device: r.Device.Info().Device, Shares: shares, Bytes: bytes, Addr: uint64(mem.Addr())},
	}
	if !t.Claims.Memory.Apart {
		b.Bytes = device.Bytes(mem)[:bytes]
	}
	return b
}

// Part is the segment of a range of the buffer.
func (b *Buffer) Part(offset, bytes uint64) framework.Segment {
	s := b.Segment
	s.Offset, s.Bytes, s.Addr = offset, bytes, s.Addr+offset
	return s
}

// Range is a range of the buffer as a buffer of its own.
func (b *Buffer) Range(offset, bytes uint64) *Buffer {
	return &Buffer{b.Mem, b.Bytes[offset : offset+bytes], b.Part(offset, bytes)}
}

// Registered registers seg until the end of the test.
func (r *Rank) Registered(seg framework.Segment) framework.Registration {
	t := r.T
	reg, err := r.Register(t.ctx, seg)
	if err != nil {
		t.Fatalf("rank %d: register %d bytes at %d: %v", r.N, seg.Bytes, seg.Offset, err)
	}
	t.Cleanup(func() {
		_ = reg.Key.Close()
		r.Release(reg.ID)
	})
	return reg
}

// Config is that of a link between r and the others.
func (r *Rank) Config(kind framework.Kind, ranks ...int) framework.EndpointConfig {
	cfg := framework.EndpointConfig{
		Kind: kind, Rank: r.N, Ranks: ranks, Group: "conformance",
		Device: r.Device.Info().Device, Facts: r.T.Options.Facts,
	}
	if kind == framework.KindSwitch {
		cfg.Bytes = WindowBytes
	}
	return cfg
}

// Listening is an endpoint until the end of the test, its objects created.
func (r *Rank) Listening(cfg framework.EndpointConfig) (framework.Endpoint, []device.Object) {
	t := r.T
	end, err := r.Listen(t.ctx, cfg)
	if err != nil {
		t.Fatalf("rank %d: listen for a %s link: %v", r.N, cfg.Kind, err)
	}
	var objects []device.Object
	for i, o := range end.Create {
		object, err := r.Device.Object(o, nil)
		if err != nil {
			t.Fatalf("rank %d: create object %d of its endpoint: %v", r.N, i, err)
		}
		t.Cleanup(func() { _ = object.Close() })
		share, err := object.Share()
		if err != nil {
			t.Fatalf("rank %d: share object %d of its endpoint: %v", r.N, i, err)
		}
		end.Address.Shares = append(end.Address.Shares, share)
		objects = append(objects, object)
	}
	t.Cleanup(func() {
		_ = end.Address.Close()
		r.Release(end.ID)
	})
	return end, objects
}

// Release closes an id at the end of a test. The failure tier ends with dead
// plugins, whose ids nobody can close.
func (r *Rank) Release(id framework.ID) {
	if err := r.Close(context.Background(), id); err != nil && !errors.Is(err, framework.ErrPlugin) {
		r.T.Errorf("rank %d: close id %d: %v", r.N, id, err)
	}
}

// Connected connects an endpoint to its peers and returns the id of the connection.
func (r *Rank) Connected(local framework.ID, peers ...framework.Peer) framework.ID {
	id, err := r.Connect(r.T.ctx, local, peers)
	if err != nil {
		r.T.Fatalf("rank %d: connect: %v", r.N, err)
	}
	return id
}

// Measurable reports whether a transport can see how large the allocation is. Only the driver knows
// the memory behind its handle: there, mapping fails.
func (b *Buffer) Measurable() bool {
	return slices.ContainsFunc(b.Segment.Shares, func(s framework.Share) bool { return s.Kind == framework.ShareMemFD })
}

// Embedded reports whether the rank's transport runs in this process.
func (t *T) Embedded(r *Rank) bool { return r.Side.Process == nil }
