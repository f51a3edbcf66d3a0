package harness

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/proxy"
)

// DeviceView is how the suite looks at memory of a device that it cannot address, and
// writes there: by copies over a stream of its own, from and to pages of the host
// that the device sees.
type DeviceView struct {
	*Rank
	Engine device.Engine
	lane   *proxy.Lane
	bytes  []byte  // of the page
	addr   uintptr // of the page, for the device

	mu    sync.Mutex
	words int // at the start of the page, given to streams
}

const (
	viewWords = 4096 // bytes for words of streams
	viewRoom  = 1 << 20
)

// DeviceView opens the view of a rank until the end of the test.
func (r *Rank) DeviceView() *DeviceView {
	t := r.T
	engine, ok := r.Device.(device.Engine)
	if !ok {
		t.Fatalf("rank %d: device %v has no copy engine", r.N, r.Device.Info().Device)
	}
	d := &DeviceView{Rank: r, Engine: engine}
	page, err := r.Page(viewWords + viewRoom)
	if err != nil {
		t.Fatalf("rank %d: memory that host and device see: %v", r.N, err)
	}
	d.bytes, d.addr = page.Bytes, page.Addr
	d.lane = d.NewLane(framework.NoPeer)
	return d
}

// page is memory of the host that a device sees.
type page struct {
	Bytes []byte
	Addr  uintptr
}

// Page allocates memory of the host that the device sees, until the end of the test.
func (r *Rank) Page(bytes uint64) (page, error) {
	h, err := host.Open()
	if err != nil {
		return page{}, err
	}
	r.T.Cleanup(func() { _ = h.Close() })
	m, err := h.Alloc(bytes)
	if err != nil {
		return page{}, err
	}
	r.T.Cleanup(func() { _ = m.Close() })
	shares, err := m.Export()
	if err != nil {
		return page{}, err
	}
	defer framework.Parcel{Shares: shares}.Close()
	seen, err := r.Device.Map(framework.Mapping{Role: framework.RolePeer, Peer: framework.NoPeer, Shares: shares, Bytes: bytes})
	if err != nil {
		return page{}, err
	}
	r.T.Cleanup(func() { _ = seen.Close() })
	return page{device.Bytes(m), seen.Addr()}, nil
}

// NewLane opens a stream until the end of the test.
func (d *DeviceView) NewLane(peer int) *proxy.Lane {
	d.mu.Lock()
	at := d.words
	d.words += 64
	d.mu.Unlock()
	if at >= viewWords {
		d.T.Fatalf("rank %d: too many streams for a test", d.N)
	}
	l, err := proxy.NewLane(d.Engine, peer, proxy.Word{Host: Word(d.bytes, at), Device: d.addr + uintptr(at)})
	if err != nil {
		d.T.Fatalf("rank %d: open a stream: %v", d.N, err)
	}
	d.T.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), d.T.Options.CallLimit)
		defer cancel()
		l.Drop()
		if err := l.Close(ctx); err != nil && !d.T.Failed() {
			d.T.Errorf("rank %d: close a stream: %v", d.N, err)
		}
	})
	return l
}

// settle waits for the view's own copies.
func (d *DeviceView) settle(err error) {
	if err == nil {
		ctx, cancel := context.WithTimeout(d.T.ctx, d.T.Options.CallLimit)
		defer cancel()
		err = d.lane.Settle(ctx)
	}
	if err != nil {
		d.T.Fatalf("rank %d: look at the device: %v", d.N, err)
	}
}

// Read returns up to a MiB at addr; it is good until the next call.
func (d *DeviceView) Read(addr uintptr, n int) []byte {
	d.settle(d.lane.Copy(d.addr+viewWords, addr, uint64(n)))
	return d.bytes[viewWords : viewWords+n]
}

// Write stores up to a MiB at addr.
func (d *DeviceView) Write(addr uintptr, data []byte) {
	copy(d.bytes[viewWords:], data)
	d.settle(d.lane.Copy(addr, d.addr+viewWords, uint64(len(data))))
}

// Count reads the word at addr.
func (d *DeviceView) Count(addr uintptr) uint64 {
	d.settle(d.lane.Copy(d.addr+viewWords, addr, 8))
	return atomic.LoadUint64(Word(d.bytes, viewWords))
}

// Await waits until the word at addr has reached want.
func (d *DeviceView) Await(what string, addr uintptr, want uint64) {
	var seen uint64
	err := Await(d.T.ctx, what, d.T.Options.CallLimit, func() bool {
		seen = d.Count(addr)
		return seen >= want
	})
	if err != nil {
		d.T.Fatalf("%v: the counter is %d, expected %d", err, seen, want)
	}
}
