package conformance

import (
	"maps"
	"reflect"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
)

// linked is the device of the suite, and its links.
func (t *T) linked() (*rig, []framework.DeviceLink) {
	d := t.device()
	_, list, known := d.Links()
	t.needs(known, "no links")
	return d, list
}

// self is how lists of links name the device.
func (r *rig) self() string {
	self, _, _ := r.Links()
	return self
}

// visible opens all devices that this process sees, by address.
func (t *T) visible() map[string]*rig {
	n, err := t.o.Backend.Count()
	t.must(err, "count")
	all := map[string]*rig{}
	for i := range n {
		d := t.open(i)
		if other := all[d.self()]; other != nil {
			t.errorf("devices %d and %d have the address %q: expected an address or UUID of its own for each", other.Info().Device.Index, i, d.self())
		}
		all[d.self()] = d
	}
	return all
}

// Whether each link names a device, another one each time, is seen when the device is opened.
func linkTests() []test {
	return []test{
		{"links/same", "the links of a device are the same each time it is opened", func(t *T) {
			_, list := t.linked()
			if _, again := t.linked(); !reflect.DeepEqual(list, again) {
				t.errorf("%+v, and then %+v", list, again)
			}
		}},
		{"links/both-ways", "a link leads back: both devices list it alike", func(t *T) {
			d, list := t.linked()
			own, all := d.self(), t.visible()
			for _, l := range list {
				peer := all[l.Peer]
				if peer == nil {
					continue // it is not for this process
				}
				_, back, _ := peer.Links()
				at := slices.IndexFunc(back, func(b framework.DeviceLink) bool { return b.Peer == own })
				if at < 0 {
					t.errorf("device %d lists no link to %s, which lists one to it", peer.Info().Device.Index, own)
					continue
				}
				if l.Peer = own; back[at] != l {
					t.errorf("device %d lists %+v: expected %+v", peer.Info().Device.Index, back[at], l)
				}
			}
		}},
		{"links/reached", "kernels address the memory of devices to which links lead", func(t *T) {
			d, list := t.linked()
			reached := map[string]bool{}
			for address, peer := range t.visible() {
				can, err := d.Reaches(peer.Info().Device.Index)
				t.must(err, "peer access")
				reached[address] = can
			}
			delete(reached, d.self())
			t.needs(slices.Contains(slices.Collect(maps.Values(reached)), true), "no peer access")
			for _, l := range list {
				if can, there := reached[l.Peer]; there && !can {
					t.errorf("links lead to %s, whose memory the device does not reach", l.Peer)
				}
			}
		}},
	}
}
