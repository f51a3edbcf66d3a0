package bench

import (
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Window is the memory that a call works on: two buffers, or one for a call in
// place, of the same size on every rank.
type Window struct {
	in, out    []byte
	shared     bool
	registered bool
}

// NewWindow allocates buffers of the given size, or one when the call is to be in
// place. Registered memory is allocated by all ranks together.
func NewWindow(g Group, bytes int64, shared, registered bool) (Window, error) {
	w := Window{shared: shared, registered: registered}
	var err error
	if w.in, err = allocate(g, bytes, registered); err != nil {
		return Window{}, err
	}
	if w.out = w.in; !shared {
		w.out, err = allocate(g, bytes, registered)
	}
	return w, err
}

// Place points the call at its buffers, offset bytes behind their start.
func (w Window) Place(c *Call, rank, offset int) {
	in, out := 0, 0
	if w.shared {
		in, out = c.Collective.SharedAt(c.Count, rank, c.Root)
	}
	size := c.Type.Size()
	c.InPlace, c.Registered = w.shared, w.registered
	c.In = unsafe.Add(unsafe.Pointer(unsafe.SliceData(w.in)), offset+in*size)
	c.Out = unsafe.Add(unsafe.Pointer(unsafe.SliceData(w.out)), offset+out*size)
}

// stretch is a part of the output buffer, in bytes.
type stretch struct{ low, high int }

// span locates n bytes behind p, an address in the output buffer.
func (w Window) span(p unsafe.Pointer, n int) stretch {
	low := int(uintptr(p) - uintptr(unsafe.Pointer(unsafe.SliceData(w.out))))
	return stretch{low, low + n}
}

func (s stretch) union(t stretch) stretch {
	return stretch{min(s.low, t.low), max(s.high, t.high)}
}

// ones writes the number 1 into the elements of the first bytes: no reduction of ones, repeated in
// place any number of times, ends among the denormal numbers, which processors add
// many times slower.
func (w Window) ones(t device.DataType, bytes int64) {
	one := onePattern[t]
	for _, b := range [][]byte{w.in[:bytes], w.out[:bytes]} {
		for i := range b {
			b[i] = one[i%len(one)]
		}
	}
}

// onePattern holds the bytes of 1 in each type, little endian.
var onePattern = [device.DataTypes]string{
	device.Float32:       "\x00\x00\x80\x3f",
	device.Float16:       "\x00\x3c",
	device.BFloat16:      "\x80\x3f",
	device.Float64:       "\x00\x00\x00\x00\x00\x00\xf0\x3f",
	device.Int8:          "\x01",
	device.Uint8:         "\x01",
	device.Int32:         "\x01\x00\x00\x00",
	device.Uint32:        "\x01\x00\x00\x00",
	device.Int64:         "\x01\x00\x00\x00\x00\x00\x00\x00",
	device.Uint64:        "\x01\x00\x00\x00\x00\x00\x00\x00",
	device.Float8E4M3:    "\x38",
	device.Float8E5M2:    "\x3c",
	device.Float8E4M3B15: "\x78",
}

func allocate(g Group, bytes int64, registered bool) ([]byte, error) {
	bytes = max(bytes, 1) // an empty buffer still has an address
	if !registered {
		return alignedHeap(bytes), nil
	}
	b, err := g.Alloc(bytes)
	if err == nil {
		touch(b)
	}
	return b, err
}

const page = 4096

// alignedHeap returns page-aligned ordinary Go memory, every page of it touched.
func alignedHeap(bytes int64) []byte {
	raw := make([]byte, bytes+page)
	skip := -uintptr(unsafe.Pointer(&raw[0])) & (page - 1)
	b := raw[skip : skip+uintptr(bytes)]
	touch(b)
	return b
}

func touch(b []byte) {
	for i := 0; i < len(b); i += page {
		b[i] = 1
	}
}
