package host

import (
	"errors"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
)

func ptr(b []byte) unsafe.Pointer { return unsafe.Pointer(&b[0]) }

// Three members in one process, each with its own object opened from the root's
// share: what one writes through its window all see in their own memory.
func TestSwitchOfThree(t *testing.T) {
	for _, size := range []uint64{1, 5000, 3 << 20} {
		fds, maps := usage(t)
		d := open(t)
		const n = 3
		config := framework.Object{Kind: framework.ObjectMulticast, Bytes: size, Ranks: n}
		root, err := d.Object(config, nil)
		if err != nil {
			t.Fatal(err)
		}
		share, err := root.Share()
		if err != nil {
			t.Fatal(err)
		}
		objects := []device.Object{root}
		for range n - 1 {
			o, err := d.Object(framework.Object{Kind: framework.ObjectMulticast}, &share)
			if err != nil {
				t.Fatal(err)
			}
			objects = append(objects, o)
		}
		var memories []device.Memory
		var memfds []framework.Share
		for range n {
			m, err := d.Alloc(size + memfd.PageSize())
			if err != nil {
				t.Fatal(err)
			}
			shares, err := m.Export()
			if err != nil {
				t.Fatal(err)
			}
			memories, memfds = append(memories, m), append(memfds, shares[1])
		}
		windows := make([]device.Memory, n)
		for r, o := range objects {
			if err := o.Add(); err != nil {
				t.Fatal(err)
			}
			for slot := range n {
				var own device.Memory
				s := &memfds[slot]
				if slot == r {
					own, s = memories[r], nil
				}
				if err := o.Bind(slot, own, s, memfd.PageSize(), size); err != nil {
					t.Fatal(err)
				}
			}
			w, stride, err := o.Map()
			if err != nil {
				t.Fatal(err)
			}
			if stride < size || w.Bytes() != n*stride {
				t.Fatalf("window of %d bytes, stride %d", w.Bytes(), stride)
			}
			windows[r] = w
			for slot := range n {
				device.Bytes(w)[uint64(slot)*stride+size-1] += byte(1 << r)
			}
		}
		for r, m := range memories {
			if got := device.Bytes(m)[memfd.PageSize()+size-1]; got != 7 {
				t.Errorf("member %d has %d: expected the sum of all, 7", r, got)
			}
		}
		for _, o := range append(objects, root) {
			if err := o.Close(); err != nil {
				t.Error(err)
			}
		}
		for i := range n {
			memories[i].Close()
			memfds[i].Close()
		}
		share.Close()
		if f, m := usage(t); f != fds || m != maps {
			t.Errorf("%d memfds and %d mappings are left: expected %d and %d", f, m, fds, maps)
		}
	}
}

func TestObjectRefuses(t *testing.T) {
	d := open(t)
	const size = 8192
	good := framework.Object{Kind: framework.ObjectMulticast, Bytes: size, Ranks: 2}
	o, err := d.Object(good, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	m := alloc(t, d, 2*size)
	invalid := func(what string, err error, class error) {
		t.Helper()
		if !errors.Is(err, class) {
			t.Errorf("%s: %v: expected %v", what, err, class)
		}
	}
	bind := func(slot int, own device.Memory, offset, bytes uint64) error {
		return o.Bind(slot, own, nil, offset, bytes)
	}
	invalid("bind before add", bind(0, m, 0, size), framework.ErrInvalid)
	if err := o.Add(); err != nil {
		t.Fatal(err)
	}
	invalid("slot -1", bind(-1, m, 0, size), framework.ErrInvalid)
	invalid("slot 2", bind(2, m, 0, size), framework.ErrInvalid)
	invalid("no bytes", bind(0, m, 0, 0), framework.ErrInvalid)
	invalid("too many bytes", bind(0, m, 0, size+1), framework.ErrInvalid)
	invalid("odd offset", bind(0, m, 16, size), framework.ErrInvalid)
	invalid("past the end", bind(0, m, 2*size, size), framework.ErrInvalid)
	invalid("nothing", o.Bind(0, nil, nil, 0, size), framework.ErrInvalid)
	invalid("heap", bind(0, Wrap(m.Addr(), size), 0, size), framework.ErrUnsupported)
	if err := bind(0, m, 0, size); err != nil {
		t.Fatal(err)
	}
	invalid("bound twice", bind(0, m, 0, size), framework.ErrInvalid)
	_, _, err = o.Map()
	invalid("map before all are bound", err, framework.ErrInvalid)

	for what, c := range map[string]framework.Object{
		"kind":       {Bytes: 1, Ranks: 1},
		"no window":  {Kind: framework.ObjectMulticast, Ranks: 1},
		"no members": {Kind: framework.ObjectMulticast, Bytes: 1},
		"negative":   {Kind: framework.ObjectMulticast, Bytes: 1, Ranks: -1},
		"too large":  {Kind: framework.ObjectMulticast, Bytes: 1 << 40, Ranks: 1 << 10},
	} {
		if made, err := d.Object(c, nil); err == nil {
			made.Close()
			t.Errorf("%s: made", what)
		}
	}
	share, err := o.Share()
	if err != nil {
		t.Fatal(err)
	}
	defer share.Close()
	_, err = d.Object(framework.Object{Kind: framework.ObjectMulticast, Bytes: size, Ranks: 3}, &share)
	invalid("other number of members", err, framework.ErrInvalid)
	_, err = d.Object(good, &framework.Share{Kind: framework.ShareFabric})
	invalid("other kind of share", err, framework.ErrUnsupported)
	_, err = d.Object(good, &export(t, m)[1])
	invalid("memfd that is no object", err, framework.ErrInvalid)

	o.Close()
	invalid("bind after close", bind(1, m, 0, size), framework.ErrClosed)
	invalid("add after close", o.Add(), framework.ErrClosed)
	_, err = o.Share()
	invalid("share after close", err, framework.ErrClosed)
	_, _, err = o.Map()
	invalid("map after close", err, framework.ErrClosed)
}

// A reservation that the system refuses is an error that leaves nothing behind.
func TestObjectWithoutAddressSpace(t *testing.T) {
	fds, maps := usage(t)
	d := open(t)
	var err error
	for range 4 { // 64 TiB each, of the 128 that a process has
		var o device.Object
		if o, err = d.Object(framework.Object{Kind: framework.ObjectMulticast, Bytes: 1 << 40, Ranks: 1 << 6}, nil); err != nil {
			break
		}
		defer o.Close()
		fds++
		maps++
	}
	if !errors.Is(err, framework.ErrUnavailable) {
		t.Errorf("%v: expected ErrUnavailable", err)
	}
	if f, m := usage(t); f != fds || m != maps {
		t.Errorf("%d memfds and %d mappings are left: expected %d and %d", f, m, fds, maps)
	}
}
