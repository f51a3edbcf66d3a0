package transporttest

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/proxy"
)

// desk is how the suite looks at memory of a device that it cannot address, and
// writes there: by copies over a stream of its own, from and to pages of the host
// that the device sees.
type desk struct {
	*rank
	engine device.Engine
	lane   *proxy.Lane
	bytes  []byte  // of the page
	addr   uintptr // of the page, for the device

	mu    sync.Mutex
	words int // at the start of the page, given to streams
}

const (
	deskWords = 4096 // bytes for words of streams
	deskRoom  = 1 << 20
)

func (r *rank) desk() *desk {
	t := r.t
	engine, ok := r.device.(device.Engine)
	if !ok {
		t.Fatalf("rank %d: device %v has no copy engine", r.n, r.device.Info().Device)
	}
	d := &desk{rank: r, engine: engine}
	page, err := r.page(deskWords + deskRoom)
	if err != nil {
		t.Fatalf("rank %d: memory that host and device see: %v", r.n, err)
	}
	d.bytes, d.addr = page.bytes, page.addr
	d.lane = d.newLane(framework.NoPeer)
	return d
}

// page is memory of the host that a device sees.
type page struct {
	bytes []byte
	addr  uintptr
}

func (r *rank) page(bytes uint64) (page, error) {
	h, err := host.Open()
	if err != nil {
		return page{}, err
	}
	r.t.Cleanup(func() { _ = h.Close() })
	m, err := h.Alloc(bytes)
	if err != nil {
		return page{}, err
	}
	r.t.Cleanup(func() { _ = m.Close() })
	shares, err := m.Export()
	if err != nil {
		return page{}, err
	}
	defer framework.Parcel{Shares: shares}.Close()
	seen, err := r.device.Map(framework.Mapping{Role: framework.RolePeer, Peer: framework.NoPeer, Shares: shares, Bytes: bytes})
	if err != nil {
		return page{}, err
	}
	r.t.Cleanup(func() { _ = seen.Close() })
	return page{device.Bytes(m), seen.Addr()}, nil
}

// newLane opens a stream until the end of the test.
func (d *desk) newLane(peer int) *proxy.Lane {
	d.mu.Lock()
	at := d.words
	d.words += 64
	d.mu.Unlock()
	if at >= deskWords {
		d.t.Fatalf("rank %d: too many streams for a test", d.n)
	}
	l, err := proxy.NewLane(d.engine, peer, proxy.Word{Host: word(d.bytes, at), Device: d.addr + uintptr(at)})
	if err != nil {
		d.t.Fatalf("rank %d: open a stream: %v", d.n, err)
	}
	d.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), d.t.o.CallLimit)
		defer cancel()
		l.Drop()
		if err := l.Close(ctx); err != nil && !d.t.failed() {
			d.t.Errorf("rank %d: close a stream: %v", d.n, err)
		}
	})
	return l
}

// settle waits for the desk's own copies.
func (d *desk) settle(err error) {
	if err == nil {
		ctx, cancel := context.WithTimeout(d.t.ctx, d.t.o.CallLimit)
		defer cancel()
		err = d.lane.Settle(ctx)
	}
	if err != nil {
		d.t.Fatalf("rank %d: look at the device: %v", d.n, err)
	}
}

// read returns up to a MiB at addr; it is good until the next call.
func (d *desk) read(addr uintptr, n int) []byte {
	d.settle(d.lane.Copy(d.addr+deskWords, addr, uint64(n)))
	return d.bytes[deskWords : deskWords+n]
}

// write stores up to a MiB at addr.
func (d *desk) write(addr uintptr, data []byte) {
	copy(d.bytes[deskWords:], data)
	d.settle(d.lane.Copy(addr, d.addr+deskWords, uint64(len(data))))
}

// count reads the word at addr.
func (d *desk) count(addr uintptr) uint64 {
	d.settle(d.lane.Copy(d.addr+deskWords, addr, 8))
	return atomic.LoadUint64(word(d.bytes, deskWords))
}

// await waits until the word at addr has reached want.
func (d *desk) await(what string, addr uintptr, want uint64) {
	var seen uint64
	err := await(d.t.ctx, what, d.t.o.CallLimit, func() bool {
		seen = d.count(addr)
		return seen >= want
	})
	if err != nil {
		d.t.Fatalf("%v: the counter is %d, expected %d", err, seen, want)
	}
}
