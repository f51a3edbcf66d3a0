package control

import (
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/harness"
)

// testListen opens every claimed kind of link, from both ends. Only the root of a
// switch group creates objects.
func testListen(t *harness.T) {
	for _, kind := range t.Claims.Channels {
		for n := range harness.Members(kind) {
			r := t.Rank(n)
			cfg := r.LinkConfig(kind)
			end, err := r.Listen(t.Context(), cfg)
			if err != nil {
				t.Fatalf("rank %d: listen for a %s link: %v", n, kind, err)
			}
			if len(end.Create) > 0 && (kind != framework.KindSwitch || !cfg.Root()) {
				t.Errorf("rank %d of a %s link is to create %d objects: only the root of a switch group does", n, kind, len(end.Create))
			}
			for i, o := range end.Create {
				if o.Kind != framework.ObjectMulticast || o.Bytes < cfg.Bytes || o.Ranks != len(cfg.Ranks) {
					t.Errorf("object %d is %+v: want a multicast object of %d bytes or more for %d ranks", i, o, cfg.Bytes, len(cfg.Ranks))
				}
			}
			_ = end.Address.Close()
			r.Release(end.ID)
		}
	}
}

func testListenBad(t *harness.T) {
	r := t.Rank(0)
	kind := t.Claims.Channels[0]
	for what, change := range map[string]func(c *framework.EndpointConfig){
		"kind 0":                 func(c *framework.EndpointConfig) { c.Kind = 0 },
		"kind 200":               func(c *framework.EndpointConfig) { c.Kind = 200 },
		"no ranks":               func(c *framework.EndpointConfig) { c.Ranks = nil },
		"a rank outside its own": func(c *framework.EndpointConfig) { c.Rank = 7 },
		"a negative rank":        func(c *framework.EndpointConfig) { c.Rank, c.Ranks = -1, []int{-1, 1} },
		"a rank twice":           func(c *framework.EndpointConfig) { c.Ranks = []int{0, 0} },
	} {
		cfg := r.LinkConfig(kind)
		change(&cfg)
		end, err := r.Listen(t.Context(), cfg)
		t.WantClass("listen with "+what, err, framework.ErrInvalid, framework.ErrUnsupported)
		if err == nil {
			_ = end.Address.Close()
			r.Release(end.ID)
		}
	}
}

// testReach checks the tokens by which two ranks find out, each for itself, that
// they can use this transport. The suite's ranks are on one machine, so they can.
func testReach(t *harness.T) {
	for _, kind := range t.Claims.Channels {
		a, b := t.Rank(0), t.Rank(1)
		first, _ := a.Listening(a.LinkConfig(kind))
		again, _ := a.Listening(a.LinkConfig(kind))
		other, _ := b.Listening(b.LinkConfig(kind))
		if len(first.Reach) == 0 {
			t.Errorf("%s: no reach tokens: the endpoint can be connected to nobody", kind)
			continue
		}
		for _, token := range first.Reach {
			name, value, ok := strings.Cut(token, ":")
			if !ok || name == "" || value == "" || strings.ContainsAny(token, " \t\n\x00") || len(token) > 256 {
				t.Errorf("%s: reach token %q: want name:value without blanks, at most 256 bytes", kind, token)
			}
		}
		if strings.Join(first.Reach, " ") != strings.Join(again.Reach, " ") {
			t.Errorf("%s: reach tokens change from call to call: %q, then %q", kind, first.Reach, again.Reach)
		}
		if !shareToken(first.Reach, other.Reach) {
			t.Errorf("%s: two ranks of one machine share no reach token: %q and %q", kind, first.Reach, other.Reach)
		}
	}
}

func shareToken(a, b []string) bool {
	for _, x := range a {
		for _, y := range b {
			if x == y {
				return true
			}
		}
	}
	return false
}
