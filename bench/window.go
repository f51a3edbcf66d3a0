package bench

import (
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Window is the memory that a call works on: two buffers, or one for an in-place call,
// of the same size on every rank.
type Window struct {
	in, out    Memory
	shared     bool
	registered bool
	content    *content
}

// content is the known content of the buffers: ones, in the first bytes.
type content struct {
	t    kernel.DataType
	ones int64
}

// NewWindow allocates two buffers of the given size, or one if the call is to be in
// place. All ranks allocate registered memory together.
func NewWindow(g Group, bytes int64, shared, registered bool) (Window, error) {
	w := Window{shared: shared, registered: registered, content: &content{}}
	var err error
	if w.in, err = allocate(g, bytes, registered); err != nil {
		return Window{}, err
	}
	if w.out = w.in; !shared {
		w.out, err = allocate(g, bytes, registered)
	}
	return w, err
}

func allocate(g Group, bytes int64, registered bool) (Memory, error) {
	m, err := g.Alloc(max(bytes, 1), registered) // an empty buffer still has an address
	if err != nil {
		return m, err
	}
	return m, m.touch()
}

// placed returns the buffers as a call in place, or one of two buffers, sees them.
func (w Window) placed(shared bool) Window {
	if shared {
		w.out, w.shared = w.in, true
	}
	return w
}

// memories lists the buffers, each once.
func (w Window) memories() []Memory {
	if w.shared {
		return []Memory{w.in}
	}
	return []Memory{w.in, w.out}
}

// Place points the call at its buffers, offset bytes after their start.
func (w Window) Place(c *Call, rank, offset int) {
	in, out := 0, 0
	if w.shared {
		in, out = c.Collective.SharedAt(c.Count, rank, c.Root)
	}
	size := c.Type.Size()
	c.InPlace, c.Registered = w.shared, w.registered
	c.In = unsafe.Add(w.in.Addr, offset+in*size)
	c.Out = unsafe.Add(w.out.Addr, offset+out*size)
}

// ones writes the number 1 into the elements of the first bytes: no reduction of ones, repeated in
// place any number of times, ends among the denormal numbers, which processors add
// many times slower. Devices do not, and filling their memory takes longer than the
// measurement: there it is done once.
func (w Window) ones(t kernel.DataType, bytes int64) error {
	if w.in.Push != nil && w.content.t == t && w.content.ones >= bytes {
		return nil
	}
	*w.content = content{t, bytes}
	one := onePattern[t]
	for _, m := range w.memories() {
		repeat(m.View[:bytes], one)
		if err := m.push(stretch{0, int(bytes)}); err != nil {
			return err
		}
	}
	return nil
}

// onePattern holds the bytes of 1 in each type, little endian.
var onePattern = [kernel.DataTypes][]byte{
	kernel.Float32:       []byte("\x00\x00\x80\x3f"),
	kernel.Float16:       []byte("\x00\x3c"),
	kernel.BFloat16:      []byte("\x80\x3f"),
	kernel.Float64:       []byte("\x00\x00\x00\x00\x00\x00\xf0\x3f"),
	kernel.Int8:          []byte("\x01"),
	kernel.Uint8:         []byte("\x01"),
	kernel.Int32:         []byte("\x01\x00\x00\x00"),
	kernel.Uint32:        []byte("\x01\x00\x00\x00"),
	kernel.Int64:         []byte("\x01\x00\x00\x00\x00\x00\x00\x00"),
	kernel.Uint64:        []byte("\x01\x00\x00\x00\x00\x00\x00\x00"),
	kernel.Float8E4M3:    []byte("\x38"),
	kernel.Float8E5M2:    []byte("\x3c"),
	kernel.Float8E4M3B15: []byte("\x78"),
}
