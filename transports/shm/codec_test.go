package shm

import (
	"bytes"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/transports/internal/link"
)

func TestCodecRoundTrip(t *testing.T) {
	for _, k := range []key{{offset: 0, bytes: 1}, {offset: 1 << 40, bytes: 1<<63 - 1, local: true}} {
		got, err := decodeKey(k.append(nil))
		if err != nil || got != k {
			t.Errorf("%+v, %v: expected %+v", got, err, k)
		}
	}
	for _, a := range []address{
		{Side: link.Side{Kind: framework.KindSwitch, Rank: 1<<31 - 1, Digest: [16]byte{1, 2, 15: 3}}, host: "h"},
		{Side: link.Side{Kind: framework.KindMemory}, host: strings.Repeat("x", maxHost)},
	} {
		got, err := decodeAddress(a.append(nil))
		if err != nil || got != a {
			t.Errorf("%+v, %v: expected %+v", got, err, a)
		}
	}
}

// Every cut, and every byte too many, is an error of the peer.
func TestCodecLengths(t *testing.T) {
	k := key{offset: 1, bytes: 2}.append(nil)
	a := address{Side: link.Side{Kind: framework.KindPort, Rank: 3}, host: "host"}.append(nil)
	check := func(what string, n int, err error) {
		t.Helper()
		if framework.Class(err) != framework.ErrPeer {
			t.Errorf("%s of %d bytes: %v: expected ErrPeer", what, n, err)
		}
	}
	for n := range len(k) + 2 {
		if n != len(k) {
			_, err := decodeKey(append(bytes.Clone(k), 0)[:min(n, len(k)+1)])
			check("key", n, err)
		}
	}
	for n := range len(a) + 2 {
		if n != len(a) {
			_, err := decodeAddress(append(bytes.Clone(a), 0)[:min(n, len(a)+1)])
			check("address", n, err)
		}
	}
	_, err := decodeKey(a)
	check("address as key", len(a), err)
	_, err = decodeAddress(k)
	check("key as address", len(k), err)
	_, err = decodeKey(key{offset: 1 << 63, bytes: 1 << 63}.append(nil))
	check("key whose end wraps", 0, err)
	_, err = decodeKey(key{offset: 1}.append(nil))
	check("empty key", 0, err)
}

func FuzzDecodeKey(f *testing.F) {
	f.Add(key{offset: 4096, bytes: 100, local: true}.append(nil))
	f.Add([]byte("MSHM"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if k, err := decodeKey(b); err == nil && !bytes.Equal(k.append(nil), b) {
			t.Errorf("%x decodes to %+v, which encodes otherwise", b, k)
		}
	})
}

func FuzzDecodeAddress(f *testing.F) {
	f.Add(address{Side: link.Side{Kind: 2, Rank: 7}, host: "a-b-c"}.append(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := decodeAddress(b); err == nil && !bytes.Equal(a.append(nil), b) {
			t.Errorf("%x decodes to %+v, which encodes otherwise", b, a)
		}
	})
}
