package conformance

import (
	"bytes"
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/native"
)

// rig is a device, as a test uses it.
type rig struct {
	*native.Device
	t       *T
	any     device.Device
	streams *native.Streaming // nil if there are none
	events  *native.Marking   // likewise
}

// open opens the device of the suite, or the one with another index.
func (t *T) open(index int) *rig {
	d, err := t.o.Backend.Open(index, t.o.Options)
	t.must(err, "open")
	t.cleanup(d.Close, "close the device")
	r := &rig{t: t, any: d}
	switch d := d.(type) {
	case *native.Marking:
		r.Device, r.streams, r.events = d.Device, d.Streaming, d
	case *native.Streaming:
		r.Device, r.streams = d.Device, d
	case *native.Device:
		r.Device = d
	}
	return r
}

func (t *T) device() *rig { return t.open(t.o.Index) }

// streaming is a device with streams.
func (t *T) streaming() *rig {
	r := t.device()
	t.needs(r.streams != nil, "no streams")
	return r
}

// marking is a device with events.
func (t *T) marking() *rig {
	r := t.device()
	t.needs(r.events != nil, "no events")
	return r
}

func (r *rig) alloc(bytes uint64) device.Memory {
	m, err := r.Alloc(bytes)
	r.t.must(err, "alloc")
	r.t.cleanup(m.Close, "free memory")
	return m
}

func (r *rig) stream() device.Stream {
	s, err := r.streams.NewStream()
	r.t.must(err, "stream")
	r.t.cleanup(func() error { return r.streams.CloseStream(s) }, "close a stream")
	return s
}

func (r *rig) read(addr uintptr, bytes int) []byte {
	b := make([]byte, bytes)
	r.t.must(r.ReadAt(b, addr), "download")
	return b
}

func (r *rig) write(addr uintptr, b []byte) { r.t.must(r.WriteAt(b, addr), "upload") }

func (r *rig) word(addr uintptr) uint64 { return binary.LittleEndian.Uint64(r.read(addr, 8)) }

// latch is a word of the host that streams and kernels of the device wait for.
type latch struct {
	addr uintptr
	word *uint64
}

func (g latch) open() { atomic.StoreUint64(g.word, 1) }

// latch makes a word that is opened at the end of the test at the latest: nothing waits for ever.
func (r *rig) latch() latch {
	m, err := r.AllocHost(4096)
	if err != nil {
		r.t.needs(false, "memory of the host: "+err.Error())
	}
	r.t.cleanup(func() error {
		if len(r.t.findings) > 0 {
			return nil // a test that failed may have left work that still looks at it
		}
		return m.Close()
	}, "free memory of the host")
	g := latch{m.Addr(), (*uint64)(unsafe.Pointer(unsafe.SliceData(m.HostBytes())))}
	r.t.cleanup(func() error { g.open(); return nil }, "open the latch")
	return g
}

// pattern is a text that differs at each place and for each seed.
func pattern(seed, bytes int) []byte {
	b := make([]byte, bytes)
	for i := range b {
		b[i] = byte(i*7 + i>>8*13 + seed*31 + 1)
	}
	return b
}

func (t *T) same(got, want []byte, what string) {
	if bytes.Equal(got, want) {
		return
	}
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.errorf("%s: byte %d of %d differs", what, i, len(want))
			return
		}
	}
}

// kernels loads the suite's image.
func (r *rig) kernels() (add, release device.Kernel) {
	r.t.needs(len(r.t.o.Image) > 0, "no image of the suite's kernels: see --kernels")
	m, err := r.Load(r.t.o.Image)
	r.t.must(err, "load the suite's image")
	r.t.cleanup(m.Close, "unload")
	add, err = m.Kernel("conform_add")
	r.t.must(err, "find conform_add")
	release, err = m.Kernel("conform_release")
	r.t.must(err, "find conform_release")
	return add, release
}

// arguments are those of the suite's kernels (ConformArgs).
type arguments struct{ words, latch, count, value uint64 }

func (r *rig) launch(k device.Kernel, s device.Stream, a arguments) {
	r.t.must(k.Launch(device.Launch{Grid: 1, Block: 1, Stream: s}, unsafe.Pointer(&a), unsafe.Sizeof(a)), "launch")
}

// settle waits until a stream has done everything, for as long as the test may take.
func (r *rig) settle(s device.Stream) {
	r.t.until("the stream", func() bool {
		state, err := r.streams.Query(s)
		r.t.must(err, "query")
		return state == device.StreamIdle
	})
}

// ownShares are those that another process could map.
func (t *T) ownShares(m device.Memory) []framework.Share {
	all, err := m.Export()
	t.must(err, "export")
	t.cleanup(framework.Parcel{Shares: all}.Close, "close shares")
	var own []framework.Share
	for _, s := range all {
		if s.Kind != framework.ShareLocal {
			own = append(own, s)
		}
	}
	return own
}

// event makes one that is closed at the end of the test.
func (r *rig) event(timing bool) *native.Event {
	e, err := r.events.NewEvent(timing)
	r.t.must(err, "event")
	r.t.cleanup(e.Close, "close an event")
	return e
}

// addressOf is where a slice is; the slice is used after the call.
func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
