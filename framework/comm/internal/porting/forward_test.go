package porting

import (
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/comm/internal/counters"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/memory"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// somewhere is memory of which only the address counts.
type somewhere struct {
	device.Memory
	addr uintptr
}

func (s somewhere) Addr() uintptr { return s.addr }

type noView struct{ device.HostView }

// Kernels wait where the signal is stored: at a host counter where the peer's copy engine does,
// whatever the forwarder has; where that stores, on the device if it has a view of it.
func TestWhereKernelsWait(t *testing.T) {
	const onDevice, hostHere, hostThere = 1 << 20, 2 << 20, 3 << 20
	p := counters.Pair{Mine: 3}
	for _, c := range []struct {
		hosted, posted, view, host, onHost bool
	}{
		{},
		{host: true},
		{host: true, view: true},
		{hosted: true, host: true, onHost: true},
		{hosted: true, host: true, view: true, onHost: true},
		{posted: true, host: true, onHost: true},
		{posted: true, host: true, view: true},
		{posted: true, view: true},
		{posted: true},
	} {
		k := &counters.Counters{Inbound: memory.New(somewhere{addr: onDevice}, false)}
		if c.host {
			k.Host.Store(counters.HostCountersAt(somewhere{addr: hostHere}, somewhere{addr: hostThere}))
		}
		l := &link{hosted: c.hosted}
		if c.posted {
			l.posted.words = somewhere{}
		}
		ports := &Ports{Counters: k}
		if c.view {
			ports.forwarding.view = noView{}
		}
		want := uintptr(onDevice)
		if c.onHost {
			want = hostThere
		}
		want += uintptr(p.Mine) * counters.Stride
		if w := ports.inbound(l, p); w.Device != want || (w.Host != nil) != c.onHost {
			t.Errorf("%+v: %+v, expected %#x", c, w, want)
		}
	}
}
