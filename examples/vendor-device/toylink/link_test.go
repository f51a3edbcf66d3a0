package toylink

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

func pair(t *testing.T, a, b *Transport) (conn framework.ID) {
	t.Helper()
	cfg := framework.EndpointConfig{Kind: framework.KindMemory, Ranks: []int{0, 1}, Device: framework.Device{Type: deviceType}, Facts: framework.Facts{Host: "here"}}
	own, err := a.Listen(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Rank = 1
	far, err := b.Listen(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if conn, err = a.Connect(t.Context(), own.ID, []framework.Peer{{Rank: 1, Address: far.Address}}); err != nil {
		t.Fatal(err)
	}
	return conn
}

func newTransport(secret byte) *Transport {
	return &Transport{secret: [16]byte{secret}, images: &images{}, made: map[framework.ID]any{}}
}

func shares(t *testing.T) []framework.Share {
	f, err := os.CreateTemp(t.TempDir(), "share")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return []framework.Share{{Kind: framework.ShareLocal, Blob: []byte("local")}, {Kind: "fd:other", FD: f}, {Kind: shareKind, FD: f}}
}

// A peer of another process maps the share of the device first, one of this process the memory itself.
func TestAttachPrefers(t *testing.T) {
	for name, c := range map[string]struct {
		far  byte
		want framework.ShareKind
	}{"another process": {2, shareKind}, "the same process": {1, framework.ShareLocal}} {
		a, b := newTransport(1), newTransport(c.far)
		conn := pair(t, a, b)
		r, err := b.Register(t.Context(), framework.Segment{Device: framework.Device{Type: deviceType}, Shares: shares(t), Offset: 4096, Bytes: 100})
		if err != nil {
			t.Fatal(err)
		}
		got, err := a.Attach(t.Context(), conn, 0, []framework.Parcel{r.Key})
		if err != nil {
			t.Fatal(err)
		}
		if m := got.Mappings[0]; len(m.Shares) != 2 || m.Shares[0].Kind != c.want || m.Offset != 4096 || m.Bytes != 100 {
			t.Errorf("%s: %+v: expected %s first", name, m, c.want)
		}
		for _, p := range []framework.Parcel{r.Key, {Shares: got.Mappings[0].Shares}} {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// Devices reach each other where links join them, and ranks on one device always do.
func TestReachFollowsLinks(t *testing.T) {
	facts := func(self string, peers ...string) framework.Facts {
		f := framework.Facts{Host: "here", Other: map[string]string{"toy/uuid": self}, LinksKnown: true}
		for _, p := range peers {
			f.Links = append(f.Links, framework.DeviceLink{Peer: p, Count: 2})
		}
		return f
	}
	elsewhere := facts("b", "a")
	elsewhere.Host = "there"
	for name, c := range map[string]struct {
		a, b framework.Facts
		want bool
	}{
		"linked":         {facts("a", "b"), facts("b", "a", "c"), true},
		"not linked":     {facts("a", "b"), facts("c", "d"), false},
		"a common peer":  {facts("a", "b"), facts("c", "b"), false},
		"one device":     {facts("a", "b"), facts("a", "b"), true},
		"no links":       {facts("a"), facts("b"), false},
		"not known":      {framework.Facts{Host: "here"}, framework.Facts{Host: "here"}, true},
		"of other hosts": {facts("a", "b"), elsewhere, false},
	} {
		far := reach(c.b)
		if got := slices.ContainsFunc(reach(c.a), func(token string) bool { return slices.Contains(far, token) }); got != c.want {
			t.Errorf("%s: %v and %v: reached %v, expected %v", name, reach(c.a), far, got, c.want)
		}
	}
}

func TestRefusals(t *testing.T) {
	a := newTransport(1)
	toy := framework.Device{Type: deviceType}
	for name, s := range map[string]framework.Segment{
		"memory of another device": {Device: framework.Device{Type: "cuda"}, Shares: shares(t), Bytes: 1},
		"memory without shares":    {Device: toy, Bytes: 1},
		"no memory":                {Device: toy, Shares: shares(t)},
		"a share without its file": {Device: toy, Shares: []framework.Share{{Kind: shareKind}}, Bytes: 1},
	} {
		if _, err := a.Register(t.Context(), s); !errors.Is(err, framework.ErrInvalid) && !errors.Is(err, framework.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	conn := pair(t, a, newTransport(2))
	for _, k := range []framework.Parcel{{}, {Data: []byte("TYK1")}, {Data: key{0, 0}.encode()}, {Data: key{1 << 60, 1}.encode()}, {Data: key{0, 1}.encode()}} {
		if _, err := a.Attach(t.Context(), conn, 0, []framework.Parcel{k}); !errors.Is(err, framework.ErrPeer) {
			t.Errorf("key %q: %v: expected ErrPeer", k.Data, err)
		}
	}
}

func FuzzMessages(f *testing.F) {
	f.Add(address{Rank: 3}.encode())
	f.Add(key{4096, 100}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := decodeAddress(framework.Parcel{Data: b}); err == nil && string(a.encode()) != string(b) {
			t.Error("an address is not what it was decoded from")
		}
		if k, err := decodeKey(b); err == nil && string(k.encode()) != string(b) {
			t.Error("a key is not what it was decoded from")
		}
	})
}
