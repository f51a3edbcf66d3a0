package link

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

func config(rank int, ranks ...int) framework.EndpointConfig {
	return framework.EndpointConfig{Kind: framework.KindPort, Rank: rank, Ranks: ranks, Group: "g", Bytes: 1}
}

func TestSideRoundTrip(t *testing.T) {
	for _, s := range []Side{{}, SideOf(config(7, 7, 9)), {Kind: 255, Rank: math.MaxUint32, Digest: [16]byte{1, 15: 2}}} {
		b := s.Append([]byte("x"))
		if got := Decode(append(b[1:], "and more"...)); len(b) != 1+SideBytes || got != s {
			t.Errorf("%+v becomes %d bytes and %+v", s, len(b)-1, got)
		}
	}
}

// Ends that were configured alike accept each other, and no others do.
func TestCheck(t *testing.T) {
	own := SideOf(config(0, 0, 1))
	far := config(1, 0, 1)
	far.Device, far.Pending = framework.Device{Type: "cuda", Index: 3}, 9 // of one end alone
	if err := own.Check(1, SideOf(far)); err != nil {
		t.Errorf("the other end: %v", err)
	}
	for want, change := range map[string]func(*framework.EndpointConfig){
		"memory link: expected port":      func(c *framework.EndpointConfig) { c.Kind = framework.KindMemory },
		"of rank 2: expected rank 1":      func(c *framework.EndpointConfig) { c.Rank = 2 },
		"another group":                   func(c *framework.EndpointConfig) { c.Group = "h" },
		"with other ranks":                func(c *framework.EndpointConfig) { c.Ranks = []int{1, 2} },
		"of another size":                 func(c *framework.EndpointConfig) { c.Bytes = 2 },
		"other ranks, or of another size": func(c *framework.EndpointConfig) { c.Ranks = []int{0, 1, 2} },
	} {
		c := far
		change(&c)
		if err := own.Check(1, SideOf(c)); framework.Class(err) != framework.ErrPeer || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: expected ErrPeer that says %q", err, want)
		}
	}
	negative := Side{Kind: own.Kind, Rank: math.MaxUint32, Digest: own.Digest}
	if err := own.Check(-1, negative); framework.Class(err) != framework.ErrPeer {
		t.Errorf("a rank that wraps: %v: expected ErrPeer", err)
	}
}

// The digest is on the wire: one that changes needs new versions of all heads.
func TestDigestStays(t *testing.T) {
	const want = "198c6f584f9afd96e193f6618f0076e6" // SHA-256 of 1 in 8 bytes, 0 and 1 in 4, and "g"
	if got := fmt.Sprintf("%x", SideOf(config(0, 0, 1)).Digest); got != want {
		t.Errorf("%s, expected %s", got, want)
	}
}

func TestCheckRanks(t *testing.T) {
	for _, c := range []framework.EndpointConfig{config(0, 0, 1), config(1, 0, 1), config(math.MaxInt32, 5, math.MaxInt32), config(4, 4), config(2, 1, 2, 3)} {
		if err := CheckRanks(c, len(c.Ranks)); err != nil {
			t.Errorf("%v: %v", c.Ranks, err)
		}
		if err := CheckRanks(c, len(c.Ranks)+1); framework.Class(err) != framework.ErrInvalid {
			t.Errorf("%v for one more: %v: expected ErrInvalid", c.Ranks, err)
		}
	}
	for _, c := range []framework.EndpointConfig{config(0), config(2, 0, 1), config(1, 1, 0), config(1, 1, 1), config(0, -1, 0), config(0, 0, math.MaxInt32+1)} {
		if err := CheckRanks(c, len(c.Ranks)); framework.Class(err) != framework.ErrInvalid || !strings.Contains(err.Error(), "ascending, with the own one") {
			t.Errorf("%v with own %d: %v: expected ErrInvalid", c.Ranks, c.Rank, err)
		}
	}
}

func TestOthers(t *testing.T) {
	c := config(2, 1, 2, 5)
	peers := func(ranks ...int) (all []framework.Peer) {
		for _, r := range ranks {
			all = append(all, framework.Peer{Rank: r})
		}
		return all
	}
	if got, err := Others(c, peers(1, 5)); err != nil || !slices.Equal(got, []int{1, 5}) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := Others(config(3, 3), nil); err != nil || len(got) != 0 {
		t.Errorf("alone: %v, %v", got, err)
	}
	for _, bad := range [][]framework.Peer{nil, peers(1), peers(5, 1), peers(1, 2, 5), peers(1, 4)} {
		if _, err := Others(c, bad); framework.Class(err) != framework.ErrInvalid || !strings.Contains(err.Error(), "expected ranks [1 5]") {
			t.Errorf("%v: %v: expected ErrInvalid that names the ranks", bad, err)
		}
	}
	if !slices.Equal(c.Ranks, []int{1, 2, 5}) {
		t.Errorf("the configuration changed: %v", c.Ranks)
	}
}

func TestHost(t *testing.T) {
	if got := Host(framework.Facts{Host: "told"}); got != "told" {
		t.Errorf("%q: expected what facts say", got)
	}
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Skipf("needs a boot id: %v", err)
	}
	if got := Host(framework.Facts{}); got != strings.TrimSpace(string(id)) || got == "" {
		t.Errorf("%q: expected the boot id %q", got, id)
	}
}

// The root of a group sends its object along, of one kind; no other address has a share.
func TestObject(t *testing.T) {
	cfg := framework.EndpointConfig{Kind: framework.KindSwitch, Ranks: []int{1, 3}, Rank: 3}
	file, err := os.CreateTemp(t.TempDir(), "object")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	sent := func(kind framework.ShareKind) framework.Peer {
		return framework.Peer{Rank: 1, Address: framework.Parcel{Shares: []framework.Share{{Kind: kind, FD: file}}}}
	}
	s, err := Object(cfg, sent(framework.ShareMemFD), framework.ShareMemFD)
	if err != nil || s.FD == nil || s.FD == file {
		t.Fatalf("%+v, %v: expected a duplicate", s, err)
	}
	defer s.Close()
	port := cfg
	port.Kind = framework.KindPort
	for name, c := range map[string]struct {
		of   framework.EndpointConfig
		peer framework.Peer
		kind framework.ShareKind
	}{
		"another kind": {cfg, sent(framework.ShareMemFD), framework.ShareVMM}, "no object": {cfg, framework.Peer{Rank: 1}, framework.ShareMemFD},
		"no descriptor":       {cfg, framework.Peer{Rank: 1, Address: framework.Parcel{Shares: []framework.Share{{Kind: framework.ShareMemFD}}}}, framework.ShareMemFD},
		"of a port":           {port, sent(framework.ShareMemFD), framework.ShareMemFD},
		"of one that is none": {cfg, framework.Peer{Rank: 3, Address: sent(framework.ShareMemFD).Address}, framework.ShareMemFD},
	} {
		if s, err := Object(c.of, c.peer, c.kind); !errors.Is(err, framework.ErrPeer) || s.FD != nil {
			t.Errorf("%s: %+v, %v: expected ErrPeer", name, s, err)
		}
	}
	if s, err := Object(port, framework.Peer{Rank: 1}, framework.ShareMemFD); err != nil || s.FD != nil {
		t.Errorf("a port without a share: %+v, %v", s, err)
	}
}
