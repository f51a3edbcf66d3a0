package transporttest

import (
	"context"
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// rank is one member of a test: a side, a device, and what a rank does with them.
// Its methods end the test on errors that no test expects.
type rank struct {
	*watched
	n      int
	device device.Device
}

// ranks opens n ranks, each with a side of its own.
func (t *T) ranks(n int) []*rank {
	all := make([]*rank, n)
	for i := range all {
		all[i] = t.rank(i)
	}
	return all
}

func (t *T) rank(n int) *rank {
	o := t.take()
	t.Cleanup(func() { t.giveBack(o, n) })
	return t.join(n, o.Side, o.ids)
}

// join makes a rank of an open side; several ranks may share one.
func (t *T) join(n int, side *Side, ids *idSet) *rank {
	device, err := t.o.Device(n)
	if err != nil {
		t.Fatalf("open the device of rank %d: %v", n, err)
	}
	t.Cleanup(func() {
		if err := device.Close(); err != nil {
			t.Errorf("close the device of rank %d: %v", n, err)
		}
	})
	w := &watched{t: t, name: fmt.Sprintf("rank %d", n), side: side, ids: ids}
	return &rank{watched: w, n: n, device: device}
}

// buffer is memory of a rank. The segment owns its shares until the test ends.
type buffer struct {
	mem     device.Memory
	bytes   []byte // nil where this process cannot touch it
	segment framework.Segment
}

func (r *rank) alloc(bytes uint64) *buffer {
	t := r.t
	mem, err := r.device.Alloc(bytes)
	if err != nil {
		t.Fatalf("allocate %d bytes: %v", bytes, err)
	}
	t.Cleanup(func() { _ = mem.Close() })
	shares, err := mem.Export()
	if err != nil {
		t.Fatalf("export %d bytes: %v", bytes, err)
	}
	t.Cleanup(func() { _ = framework.Parcel{Shares: shares}.Close() })
	b := &buffer{
		mem:     mem,
		segment: framework.Segment{Device: r.device.Info().Device, Shares: shares, Bytes: bytes, Addr: uint64(mem.Addr())},
	}
	if !t.claims.memory.apart {
		b.bytes = device.Bytes(mem)[:bytes]
	}
	return b
}

// part is the segment of a range of the buffer.
func (b *buffer) part(offset, bytes uint64) framework.Segment {
	s := b.segment
	s.Offset, s.Bytes, s.Addr = offset, bytes, s.Addr+offset
	return s
}

// registered registers seg until the end of the test.
func (r *rank) registered(seg framework.Segment) framework.Registration {
	t := r.t
	reg, err := r.Register(t.ctx, seg)
	if err != nil {
		t.Fatalf("rank %d: register %d bytes at %d: %v", r.n, seg.Bytes, seg.Offset, err)
	}
	t.Cleanup(func() {
		_ = reg.Key.Close()
		r.release(reg.ID)
	})
	return reg
}

// config is that of a link between r and the others.
func (r *rank) config(kind framework.Kind, ranks ...int) framework.EndpointConfig {
	return framework.EndpointConfig{
		Kind: kind, Rank: r.n, Ranks: ranks, Group: "conformance",
		Device: r.device.Info().Device, Facts: r.t.o.Facts,
	}
}

// listening is an endpoint until the end of the test, its objects created.
func (r *rank) listening(cfg framework.EndpointConfig) (framework.Endpoint, []device.Object) {
	t := r.t
	end, err := r.Listen(t.ctx, cfg)
	if err != nil {
		t.Fatalf("rank %d: listen for a %s link: %v", r.n, cfg.Kind, err)
	}
	var objects []device.Object
	for i, o := range end.Create {
		object, err := r.device.Object(o, nil)
		if err != nil {
			t.Fatalf("rank %d: create object %d of its endpoint: %v", r.n, i, err)
		}
		t.Cleanup(func() { _ = object.Close() })
		share, err := object.Share()
		if err != nil {
			t.Fatalf("rank %d: share object %d of its endpoint: %v", r.n, i, err)
		}
		end.Address.Shares = append(end.Address.Shares, share)
		objects = append(objects, object)
	}
	t.Cleanup(func() {
		_ = end.Address.Close()
		r.release(end.ID)
	})
	return end, objects
}

// release closes an id at the end of a test. The failure tier ends with dead
// plugins, whose ids nobody can close.
func (r *rank) release(id framework.ID) {
	if err := r.Close(context.Background(), id); err != nil && !errors.Is(err, framework.ErrPlugin) {
		r.t.Errorf("rank %d: close id %d: %v", r.n, id, err)
	}
}

func (r *rank) connected(local framework.ID, peers ...framework.Peer) framework.ID {
	id, err := r.Connect(r.t.ctx, local, peers)
	if err != nil {
		r.t.Fatalf("rank %d: connect: %v", r.n, err)
	}
	return id
}
