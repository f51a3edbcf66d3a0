package loopnet

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/plugins"
)

func TestParcelsRoundTrip(t *testing.T) {
	a := address{Owner: [16]byte{1, 2, 3}, Rank: 7, Host: netip.MustParseAddrPort("[::1]:4711")}
	if got, err := decodeAddress(framework.Parcel{Data: a.encode()}); err != nil || got != a {
		t.Errorf("address %+v, %v, want %+v", got, err, a)
	}
	k := key{Owner: [16]byte{9}, ID: 1 << 40, Bytes: 12345}
	if got, err := decodeKey(framework.Parcel{Data: k.encode()}); err != nil || got != k {
		t.Errorf("key %+v, %v, want %+v", got, err, k)
	}
	if _, err := decodeKey(framework.Parcel{Data: a.encode()}); !errors.Is(err, framework.ErrPeer) {
		t.Errorf("an address as a key: %v, want ErrPeer", err)
	}
	f := frame{Kind: framePut, Region: 3, Offset: 1 << 33, Bytes: 9}
	if got := decodeFrame(f.append(nil)); got != f {
		t.Errorf("frame %+v, want %+v", got, f)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(key{}.encode())
	f.Add(address{Host: netip.MustParseAddrPort("127.0.0.1:1")}.encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		p := framework.Parcel{Data: data}
		if _, err := decodeKey(p); err != nil && !errors.Is(err, framework.ErrPeer) {
			t.Errorf("key: %v: want ErrPeer", err)
		}
		if _, err := decodeAddress(p); err != nil && !errors.Is(err, framework.ErrPeer) {
			t.Errorf("address: %v: want ErrPeer", err)
		}
	})
}

func TestConfig(t *testing.T) {
	for _, c := range []struct {
		options map[string]any
		reach   string // "" when it is refused
	}{
		{nil, "host:h"},
		{map[string]any{"listen": "::1"}, "host:h"},
		{map[string]any{"listen": "10.0.0.1", "network": "blue"}, "net:blue"},
		{map[string]any{"listen": "10.0.0.1"}, ""},
		{map[string]any{"listen": "localhost"}, ""},
		{map[string]any{"buffer": 1}, ""},
		{map[string]any{"bufer": 4096}, ""},
	} {
		config, err := plugins.Decode[Config](c.options)
		if c.reach == "" {
			if !errors.Is(err, framework.ErrInvalid) {
				t.Errorf("%v: %v, want ErrInvalid", c.options, err)
			}
		} else if err != nil || config.reach("h") != c.reach {
			t.Errorf("%v: reach %q, %v, want %q", c.options, config.reach("h"), err, c.reach)
		}
	}
}
