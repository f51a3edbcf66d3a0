package conformance

import (
	"fmt"
	"sync"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

func moduleTests() []test {
	return []test{
		{"module/garbage", "what is no image is refused, whatever its bytes", func(t *T) {
			d := t.device()
			bad := map[string][]byte{"no bytes": nil, "one byte": {0}, "zeros": make([]byte, 4096), "text": []byte("not an image at all"), "noise": pattern(1, 70_000),
				"an ELF header": append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 57)...)}
			if image := t.o.Image; len(image) > 0 {
				bad["a quarter of an image"], bad["the beginning of an image"] = image[:len(image)/4], image[:min(512, len(image)/4)]
			}
			for name, image := range bad {
				m, err := d.Load(image)
				if err == nil {
					_ = m.Close()
					t.errorf("%s was loaded", name)
				}
			}
		}},
		{"module/symbols", "a symbol that the image lacks is refused by its name", func(t *T) {
			d := t.device()
			t.needs(len(t.o.Image) > 0, "no image of the suite's kernels: see --kernels")
			m, err := d.Load(t.o.Image)
			t.must(err, "load")
			t.cleanup(m.Close, "unload")
			_, err = m.Kernel("conform_no_such_kernel")
			t.refused(err, "find conform_no_such_kernel", framework.ErrInvalid)
			_, err = m.Kernel("")
			t.refused(err, "find a kernel without name", framework.ErrInvalid)
		}},
		{"module/twice", "an image may be loaded several times, and each is unloaded by itself", func(t *T) {
			d := t.device()
			d.kernels()
			m, err := d.Load(t.o.Image)
			t.must(err, "load again")
			t.must(m.Close(), "unload")
			d.runs(2)
		}},
		{"launch/result", "a kernel runs once, with its arguments", func(t *T) { t.device().runs(1) }},
		{"launch/order", "kernels of a stream run in order, thousands of them", func(t *T) { t.device().runs(3000) }},
		{"launch/arguments", "arguments are copied before the launch returns", func(t *T) {
			d := t.streaming()
			add, _ := d.kernels()
			s, g := d.stream(), d.latch()
			m := d.alloc(8)
			a := arguments{uint64(m.Addr()), uint64(g.addr), 1, 5}
			t.must(add.Launch(device.Launch{Grid: 1, Block: 1, Stream: s}, unsafe.Pointer(&a), unsafe.Sizeof(a)), "launch")
			a = arguments{}
			g.open()
			d.settle(s)
			if got := d.word(m.Addr()); got != 5 {
				t.errorf("the word is %d: expected 5", got)
			}
		}},
		{"launch/shapes", "shapes that cannot be are refused, and do no harm", func(t *T) {
			d := t.device()
			add, _ := d.kernels()
			var a arguments
			for _, l := range []device.Launch{{Grid: 0, Block: 1}, {Grid: 1, Block: 0}, {Grid: 1, Block: 1 << 20}, {Grid: 1, Block: 1, Shared: 1 << 30}} {
				err := add.Launch(l, unsafe.Pointer(&a), unsafe.Sizeof(a))
				t.refused(err, fmt.Sprintf("launch of %+v", l), framework.ErrInvalid)
			}
			d.runs(1)
		}},
		{"launch/threads", "any thread launches, and several at once", func(t *T) {
			d := t.device()
			add, _ := d.kernels()
			m := d.alloc(8 * 8)
			var all sync.WaitGroup
			errs := make([]error, 8)
			for i := range errs {
				s := device.Stream(0)
				if d.streams != nil {
					s = d.stream()
				}
				all.Go(func() {
					a := arguments{uint64(m.Addr()) + 8*uint64(i), 0, 1, 1}
					for range 200 {
						if err := add.Launch(device.Launch{Grid: 1, Block: 1, Stream: s}, unsafe.Pointer(&a), unsafe.Sizeof(a)); err != nil {
							errs[i] = err
							return
						}
					}
					if d.streams != nil {
						errs[i] = d.streams.Sync(s)
					}
				})
			}
			all.Wait()
			for i, err := range errs {
				t.must(err, "launches of a thread")
				if got := d.word(m.Addr() + 8*uintptr(i)); got != 200 {
					t.errorf("thread %d: %d of 200 kernels have run", i, got)
				}
			}
		}},
		{"launch/no-allocation", "a launch allocates no memory of Go's", func(t *T) {
			d := t.device()
			add, _ := d.kernels()
			m := d.alloc(8)
			a := &arguments{uint64(m.Addr()), 0, 1, 1}
			n := testing.AllocsPerRun(100, func() { _ = add.Launch(device.Launch{Grid: 1, Block: 1}, unsafe.Pointer(a), unsafe.Sizeof(*a)) })
			if n != 0 {
				t.errorf("%v allocations a launch", n)
			}
			if d.streams != nil {
				t.must(d.streams.Sync(0), "sync")
			}
		}},
	}
}

// runs launches a kernel n times on a stream, if there are any, and looks at the result.
func (r *rig) runs(n int) {
	add, _ := r.kernels()
	m := r.alloc(100 * 8)
	s := device.Stream(0)
	if r.streams != nil {
		s = r.stream()
	}
	for range n {
		r.launch(add, s, arguments{uint64(m.Addr()), 0, 100, 3})
	}
	if r.streams != nil {
		r.settle(s)
	}
	for i := range uintptr(100) {
		if got := r.word(m.Addr() + 8*i); got != 3*uint64(n) {
			r.t.errorf("word %d is %d: expected %d", i, got, 3*n)
			return
		}
	}
}
