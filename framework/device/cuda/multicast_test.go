package cuda

import (
	"errors"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// hasMulticast skips on machines whose GPUs, or whose user, want none: a real switch is left alone.
func hasMulticast(t *testing.T) {
	t.Helper()
	if !isEmulated() {
		t.Skip("needs the emulated driver: multicast of real switches is not touched by tests")
	}
}

func object(t *testing.T, d *Device, share *framework.Share) device.Object {
	t.Helper()
	o, err := d.Object(framework.Object{Kind: framework.ObjectMulticast, Bytes: 2 << 20, Ranks: 2}, share)
	check(t, err)
	closeAfter(t, o)
	return o
}

// Two devices become members, and bind memory. A member that is closed is closed once.
func TestMulticastObject(t *testing.T) {
	hasMulticast(t)
	t.Setenv("NCCL_NVLS_ENABLE", "1")
	a, b := open(t, 0), open(t, 1)
	check(t, a.Multicast())
	root := object(t, a, nil)
	share, err := root.Share()
	check(t, err)
	t.Cleanup(func() { share.Close() })
	if share.Kind != framework.ShareVMM || share.FD == nil {
		t.Fatalf("%+v: expected a descriptor of the driver", share)
	}
	member := object(t, b, &share)
	check(t, errors.Join(root.Add(), member.Add()))
	for i, o := range []device.Object{root, member} {
		d := []*Device{a, b}[i]
		own := alloc(t, d, 2<<20)
		other := alloc(t, []*Device{b, a}[i], 2<<20)
		if err := o.Bind(i, other, nil, 0, 2<<20); !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("memory of another device: %v: expected ErrInvalid", err)
		}
		if err := o.Bind(i, own, nil, 4096, 2<<20); !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("beyond the end: %v: expected ErrInvalid", err)
		}
		check(t, o.Bind(i, own, nil, 0, 2<<20))
		if err := o.Bind(i, own, nil, 0, 2<<20); !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("twice: %v: expected ErrInvalid", err)
		}
		w, stride, err := o.Map()
		check(t, err)
		if w.Addr() == 0 || w.Bytes() != 2<<20 || stride != 0 {
			t.Errorf("window of %d bytes at %#x, stride %d", w.Bytes(), w.Addr(), stride)
		}
		if shares, err := w.Export(); err != nil || shares != nil {
			t.Errorf("a window exports %v, %v", shares, err)
		}
		check(t, o.Close()) // before its memory
		check(t, errors.Join(o.Close(), w.Close()))
		if _, err := o.Share(); !errors.Is(err, framework.ErrClosed) {
			t.Errorf("closed: %v: expected ErrClosed", err)
		}
	}
}

func TestMulticastIsRefused(t *testing.T) {
	d := open(t, 0)
	for _, env := range []string{"NCCL_NVLS_ENABLE", "MSCCLPP_NVLS"} {
		t.Run(env, func(t *testing.T) {
			t.Setenv(env, "0")
			_, err := d.Object(framework.Object{Kind: framework.ObjectMulticast, Bytes: 1, Ranks: 2}, nil)
			if !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), env+"=0") {
				t.Errorf("%v: expected ErrUnsupported, by %s=0", err, env)
			}
		})
	}
	if _, err := d.Object(framework.Object{Kind: 9}, nil); !errors.Is(err, framework.ErrUnsupported) {
		t.Errorf("%v: expected ErrUnsupported", err)
	}
	if !isEmulated() {
		return
	}
	t.Setenv("NCCL_NVLS_ENABLE", "1")
	old := open(t, 0, Legacy())
	if err := old.Multicast(); !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "older memory") {
		t.Errorf("%v: expected ErrUnsupported, by the driver's older memory", err)
	}
	wrong := framework.Share{Kind: framework.ShareMemFD}
	if _, err := d.Object(framework.Object{Kind: framework.ObjectMulticast, Bytes: 1, Ranks: 2}, &wrong); !errors.Is(err, framework.ErrUnsupported) {
		t.Errorf("%v: expected ErrUnsupported of a memfd", err)
	}
}

// Each answer of the driver to a step of multicast has a meaning of its own there, and a class.
func TestWordsOfTheSwitch(t *testing.T) {
	open(t, 0)
	back, err := Backend()
	check(t, err)
	for answer, want := range map[int]string{
		1: "unavailable: cuMulticastBindMem answers CUDA_ERROR_INVALID_VALUE (", 2: "no room for another window", 47: "no room for another window",
		101: "in one clique", 401: "look at nvidia-fabricmanager", 800: "IMEX", 801: "unsupported: ", 802: "not ready yet: ", 400: "a step of multicast",
	} {
		e := back.Refusal("bind", 0, "cuMulticastBindMem", wordSwitch+answer)
		if !strings.Contains(e.Error(), want) || errors.Is(e, device.ErrNotReady) != (answer == 802) || errors.Is(e, device.ErrFull) != (answer == 2 || answer == 47) || framework.Class(e) == nil {
			t.Errorf("%d: %v: expected it to contain %q", answer, e, want)
		}
	}
}

// A window takes memory at several places, each a range of whole units, which are taken out one by one, or all with the object.
func TestMulticastRanges(t *testing.T) {
	hasMulticast(t)
	t.Setenv("NCCL_NVLS_ENABLE", "1")
	const unit = 2 << 20
	a, b := open(t, 0), open(t, 1)
	group := framework.Object{Kind: framework.ObjectMulticast, Bytes: 8 * unit, Ranks: 2}
	root, err := a.Object(group, nil)
	check(t, err)
	closeAfter(t, root)
	share, err := root.Share()
	check(t, err)
	t.Cleanup(func() { share.Close() })
	member, err := b.Object(group, &share)
	check(t, err)
	closeAfter(t, member)
	check(t, errors.Join(root.Add(), member.Add()))
	for i, o := range []device.Object{root, member} {
		d := []*Device{a, b}[i]
		r, ok := o.(device.Ranges)
		if !ok || r.Unit() != unit {
			t.Fatalf("%T: expected ranges in units of %d", o, unit)
		}
		first, more := alloc(t, d, unit), alloc(t, d, 2*unit)
		check(t, o.Bind(i, first, nil, 0, unit))
		for what, err := range map[string]error{
			"where other memory is": r.BindAt(0, more, unit), "no unit": r.BindAt(4096, more, unit), "beyond the window": r.BindAt(7*unit, more, 2*unit),
			"far beyond": r.BindAt(1<<60, more, unit), "beyond the memory": r.BindAt(unit, more, 3*unit), "nothing": r.BindAt(unit, more, 0),
		} {
			if !errors.Is(err, framework.ErrInvalid) {
				t.Errorf("%s: %v: expected ErrInvalid", what, err)
			}
		}
		check(t, r.BindAt(2*unit, more, unit+1))
		if err := r.BindAt(3*unit, first, unit); !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("in the second unit of a range: %v: expected ErrInvalid", err)
		}
		_, _, err := o.Map()
		check(t, err)
		check(t, errors.Join(r.UnbindAt(5*unit), r.UnbindAt(2*unit), r.UnbindAt(2*unit)))
		check(t, r.BindAt(3*unit, first, unit)) // the place is free, and the window is mapped
		check(t, o.Close())
		check(t, r.UnbindAt(3*unit)) // Close has done so
		if err := r.BindAt(0, first, unit); !errors.Is(err, framework.ErrClosed) {
			t.Errorf("closed: %v: expected ErrClosed", err)
		}
	}
}
