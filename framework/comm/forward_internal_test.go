package comm

import (
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device"
)

// somewhere is memory of which only the address counts.
type somewhere struct {
	device.Memory
	addr uintptr
}

func (s somewhere) Addr() uintptr { return s.addr }

type noView struct{ device.HostView }

// Kernels wait where somebody stores: at a token where the peer's copy engine does, whatever
// the forwarder has; where that stores, on the device if it has a view of it.
func TestWhereKernelsWait(t *testing.T) {
	const onDevice, tokensHere, tokensThere = 1 << 20, 2 << 20, 3 << 20
	p := pair{mine: 3}
	for _, c := range []struct {
		hosted, posted, view, tokens, onToken bool
	}{
		{},
		{tokens: true},
		{tokens: true, view: true},
		{hosted: true, tokens: true, onToken: true},
		{hosted: true, tokens: true, view: true, onToken: true},
		{posted: true, tokens: true, onToken: true},
		{posted: true, tokens: true, view: true},
		{posted: true, view: true},
		{posted: true},
	} {
		k := &control{inbound: &Memory{Memory: somewhere{addr: onDevice}}}
		if c.tokens {
			k.tokens.Store(&tokens{host: somewhere{addr: tokensHere}, seen: somewhere{addr: tokensThere}})
		}
		l := &link{hosted: c.hosted}
		if c.posted {
			l.posted.words = somewhere{}
		}
		com := &Communicator{control: k}
		if c.view {
			com.forwarding.view = noView{}
		}
		want := uintptr(onDevice)
		if c.onToken {
			want = tokensThere
		}
		want += uintptr(p.mine) * semaphoreStride
		if w := com.inbound(l, p); w.Device != want || (w.Host != nil) != c.onToken {
			t.Errorf("%+v: %+v, expected %#x", c, w, want)
		}
	}
}
