package comm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/preamble"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// A rank of another version, or of another communicator, is refused by name.
func TestGreetingOfAStranger(t *testing.T) {
	dev, err := host.Open()
	if err != nil {
		t.Fatal(err)
	}
	for said, want := range map[string]string{
		`{"abi":99,"name":"world"}`:         "device ABI 99, expected 1",
		`{"abi":1,"name":"other"}`:          `joins communicator "other"`,
		`{"abi":"one"}`:                     "not a greeting",
		"\x00\x01":                          "not a greeting",
		strings.Repeat("[", 20000):          "not a greeting",
		`{"abi":1,"name":"world","more":1}`: "",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		boots := bootstrap.InProcess(2)
		var stranger sync.WaitGroup
		stranger.Go(func() { _, _ = bootstrap.AllGatherBytes(ctx, boots[1], preamble.TagHello, []byte(said)) })
		c, err := New(ctx, boots[0], Options{Device: dev})
		stranger.Wait()
		if want == "" {
			if err != nil {
				t.Errorf("%.40q: %v, expected a newer greeting to do", said, err)
			} else {
				c.Close()
			}
		} else if !errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) != 1 || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, expected ErrPeer that names rank 1 and says %q", said, err, want)
		}
		cancel()
	}
}

// Ranks whose lists of transports differ are refused before one of them makes a call that
// others do not make. All of them hear which rank it is, where, and both lists.
func TestRanksWithOtherTransports(t *testing.T) {
	dev, err := host.Open()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		lists  string // of ranks 0, 1 and 2
		peer   int
		theirs string
	}{
		{"shm tcp, shm tcp, shm tcp", framework.NoPeer, ""},
		{", , ", framework.NoPeer, ""},
		{"shm tcp, shm tcp, tcp", 2, "[tcp]"},
		{"shm tcp, shm, tcp", 1, "[shm]"},
		{"shm tcp, tcp shm, shm tcp", 1, "[tcp shm]"},
		{"shm tcp, shm tcp, ", 2, "[]"},
		{"tcp, tcp, ib-host tcp", 2, "[ib-host tcp]"},
	} {
		t.Run(test.lists, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			lists := strings.Split(test.lists, ",")
			var ranks sync.WaitGroup
			for r, boot := range bootstrap.InProcess(len(lists)) {
				o := Options{Device: dev, Facts: framework.Facts{Host: "abc"[r : r+1]}}
				for _, name := range strings.Fields(lists[r]) {
					o.Transports = append(o.Transports, &Transport{Transport: silent{}, Name: name})
				}
				ranks.Go(func() {
					defer boot.Close()
					c, err := New(ctx, boot, o)
					if err == nil {
						defer c.Close()
					}
					if test.peer == framework.NoPeer {
						if err != nil {
							t.Errorf("rank %d: %v", r, err)
						} else if c.HostOf(2) != "c" {
							t.Errorf("rank %d: rank 2 is on host %q, expected c", r, c.HostOf(2))
						}
						return
					}
					want := fmt.Sprintf("its transports on host %c are %s, those of rank 0 on host a are [%s]", "abc"[test.peer], test.theirs, lists[0])
					if !errors.Is(err, framework.ErrInvalid) || framework.PeerOf(err) != test.peer || !strings.Contains(err.Error(), want) {
						t.Errorf("rank %d: %v, expected ErrInvalid about rank %d that says %q", r, err, test.peer, want)
					}
				})
			}
			ranks.Wait()
		})
	}
}

// A rank may say anything first: it is refused by its number, or it has this version and joins this
// communicator, so that later comparisons mean the same.
func FuzzGreeting(f *testing.F) {
	for _, seed := range []string{`{"abi":1,"host":"a","name":"world"}`, `{"abi":1,"name":"world","more":[{}]}`, `{"ABI":1,"Name":"world"}`, `{"abi":1e0,"name":"world"}`,
		`{"abi":99,"name":"world"}`, `{"abi":1,"name":"other"}`, `{"abi":9223372036854775808}`, `{"abi":1,"name":"world"}{}`, "null", "", "\x00\x01", `{"abi":`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		h, err := greeted(5, said, "world")
		if err != nil {
			if !errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) != 5 {
				t.Errorf("%q: %v: expected ErrPeer that names rank 5", said, err)
			}
			return
		}
		if h.ABI != kernel.ABI || h.Name != "world" || len(h.Host) > 3*len(said) { // a byte that is no text becomes three
			t.Errorf("%q: %+v: expected ABI %d, and communicator world", said, h, kernel.ABI)
		}
	})
}

func TestOptionsAreChecked(t *testing.T) {
	dev, err := host.Open()
	if err != nil {
		t.Fatal(err)
	}
	named := func(name string) *Transport { return &Transport{Transport: silent{}, Name: name} }
	for want, o := range map[string]Options{
		"no device":          {},
		"transport 1 of 2":   {Device: dev, Transports: []*Transport{named("a"), nil}},
		"transport 0 of 1":   {Device: dev, Transports: []*Transport{{Name: "a"}}},
		"has no name":        {Device: dev, Transports: []*Transport{named("")}},
		`"a" is there twice`: {Device: dev, Transports: []*Transport{named("a"), named("b"), named("a")}},
	} {
		if _, err := New(t.Context(), bootstrap.InProcess(1)[0], o); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected ErrInvalid that says %q", err, want)
		}
	}
	if _, err := New(t.Context(), nil, Options{Device: dev}); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("without a bootstrap: %v", err)
	}
}

// silent is a transport of which nothing is asked.
type silent struct{ framework.Transport }
