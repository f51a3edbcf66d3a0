package conformance

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Members of the suite's objects, and bytes of their windows before these are rounded up.
const (
	multicastMembers = 2
	multicastBytes   = 1 << 20
)

// multicastTests are about the steps by which members make a window. The suite has no kernels that use it.
func multicastTests() []test {
	return []test{
		{"multicast/window", "members that are added, and have bound memory, have a window each, which ends with the object", func(t *T) {
			own := t.members(multicastBytes)
			for i, m := range own {
				t.must(m.object.Bind(i, m.memory(multicastBytes), nil, 0, multicastBytes), "bind")
			}
			for _, m := range own {
				w, stride, err := m.object.Map()
				t.must(err, "map")
				if w.Addr() == 0 || w.Bytes() < multicastBytes || stride != 0 {
					t.errorf("a window of %d bytes at %#x, stride %d: expected at least %d, somewhere, and no stride", w.Bytes(), w.Addr(), stride, multicastBytes)
				}
			}
		}},
		{"multicast/ranges", "memory is bound to several places of a window that is mapped, and taken out again", func(t *T) {
			unit := t.unit()
			own := t.members(8 * unit)
			for i, m := range own {
				r := m.object.(device.Ranges)
				t.must(m.object.Bind(i, m.memory(unit), nil, 0, unit), "bind the first unit")
				t.must(r.BindAt(4*unit, m.memory(2*unit), 2*unit), "bind two units behind")
			}
			for _, m := range own {
				_, _, err := m.object.Map()
				t.must(err, "map")
				r := m.object.(device.Ranges)
				t.must(r.UnbindAt(4*unit), "take the two units out")
				t.must(r.BindAt(5*unit, m.memory(unit), unit), "bind where the second one was")
			}
		}},
		{"multicast/again", "objects that were closed leave room for others", func(t *T) {
			for range 20 {
				own := t.members(multicastBytes)
				for i, m := range own {
					t.must(m.object.Bind(i, m.memory(multicastBytes), nil, 0, multicastBytes), "bind")
				}
				for _, m := range own {
					t.must(m.object.Close(), "close an object")
				}
			}
		}},
		{"multicast/other-process", "another process becomes a member through a share", func(t *T) {
			own := t.members(multicastBytes, t.o.Index)[0]
			share, err := own.object.Share()
			t.must(err, "share")
			t.cleanup(share.Close, "close a share")
			t.needs(t.o.Child != nil, "no program for another process")
			m := own.memory(multicastBytes)
			t.must(own.rig.waitingChild(order{Share: share, Bytes: multicastBytes, Join: true, Member: t.other()}, func() error {
				return own.object.Bind(0, m, nil, 0, multicastBytes)
			}), "a process that becomes a member")
		}},
		{"multicast/garbage", "what is no share of an object is refused", func(t *T) {
			own := t.members(multicastBytes, t.o.Index)[0]
			share, err := own.object.Share()
			t.must(err, "share")
			t.cleanup(share.Close, "close a share")
			bad := append([]framework.Share{{Kind: share.Kind}}, t.strangers(share.Kind)...)
			memory, err := own.memory(multicastBytes).Export()
			t.must(err, "export memory")
			t.cleanup(framework.Parcel{Shares: memory}.Close, "close shares")
			for _, s := range append(bad, memory...) {
				if s.Kind == framework.ShareLocal {
					continue
				}
				o, err := own.rig.Object(group(multicastBytes), &s)
				if err == nil {
					err = o.Add()
					_ = o.Close()
				}
				if err == nil {
					t.errorf("%s share with descriptor %v is taken for one of an object", s.Kind, s.FD != nil)
				}
			}
		}},
		{"multicast/strangers", "memory that a member cannot bind is refused, and the object stays as it was", func(t *T) {
			own := t.members(multicastBytes)
			a, b := own[0], own[1]
			t.refused(a.object.Bind(0, b.memory(multicastBytes), nil, 0, multicastBytes), "bind memory of another device", framework.ErrInvalid, framework.ErrUnsupported)
			if host, err := a.rig.AllocHost(multicastBytes); err == nil {
				t.cleanup(host.Close, "free memory of the host")
				t.refused(a.object.Bind(0, host, nil, 0, multicastBytes), "bind memory of the host", framework.ErrInvalid, framework.ErrUnsupported)
			}
			if err := a.object.Add(); err == nil {
				t.errorf("a device is added twice")
			}
			for i, m := range own {
				t.must(m.object.Bind(i, m.memory(multicastBytes), nil, 0, multicastBytes), "bind afterwards")
			}
		}},
	}
}

// member is a device in an object.
type member struct {
	t      *T
	rig    *rig
	object device.Object
}

// memory is of the member's own device. The object is closed before it.
func (m member) memory(bytes uint64) device.Memory {
	own, err := m.rig.Alloc(bytes)
	m.t.must(err, "alloc")
	m.t.cleanup(func() error { return errors.Join(m.object.Close(), own.Close()) }, "close an object, and free memory")
	return own
}

func group(bytes uint64) framework.Object {
	return framework.Object{Kind: framework.ObjectMulticast, Bytes: bytes, Ranks: multicastMembers}
}

// other is the index of the second member.
func (t *T) other() int {
	n, err := t.o.Backend.Count()
	t.must(err, "count")
	t.needs(n >= multicastMembers, "only one device")
	return (t.o.Index + 1) % n
}

// members makes an object of two members, of which those with the indexes are added here; without indexes both are.
func (t *T) members(bytes uint64, indexes ...int) (all []member) {
	if len(indexes) == 0 {
		indexes = []int{t.o.Index, t.other()}
	}
	var share *framework.Share
	for _, index := range indexes {
		r := t.open(index)
		if err := r.Multicast(); err != nil {
			t.needs(false, "multicast: "+err.Error())
		}
		o, err := r.Object(group(bytes), share)
		t.must(err, "make, or open, an object")
		t.cleanup(o.Close, "close an object")
		if share == nil && len(indexes) > 1 {
			s, err := o.Share()
			t.must(err, "share an object")
			t.cleanup(s.Close, "close a share")
			share = &s
		}
		all = append(all, member{t, r, o})
	}
	for _, m := range all {
		t.must(m.object.Add(), "add a device")
	}
	return all
}

// unit is that of the device's windows.
func (t *T) unit() uint64 {
	o := t.members(multicastBytes, t.o.Index)[0].object
	r, ok := o.(device.Ranges)
	t.needs(ok && r.Unit() > 0, "no ranges of windows")
	return r.Unit()
}

// join makes another process a member: it binds memory once the first one is added, too.
func (o *order) join(d device.Device, share *framework.Share) (err error) {
	object, err := d.Object(group(o.Bytes), share)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, object.Close()) }()
	if err := object.Add(); err != nil {
		return err
	}
	fmt.Print(hasMapped)
	_, _ = io.Copy(io.Discard, os.Stdin)
	m, err := d.Alloc(o.Bytes)
	if err != nil {
		return err
	}
	if err := object.Bind(1, m, nil, 0, o.Bytes); err != nil {
		return errors.Join(err, m.Close())
	}
	w, _, err := object.Map()
	if err == nil {
		err = w.Close()
	}
	return errors.Join(err, object.Close(), m.Close())
}
