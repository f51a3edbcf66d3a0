package verbs

import (
	"reflect"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/transports/internal/link"
	"github.com/mscclpp-go/mscclpp/transports/internal/parcel"
)

var sampleAddress = address{
	mode: Immediate, side: link.Side{Kind: framework.KindPort, Rank: 3, Digest: [16]byte{1, 2, 15: 9}}, qpn: 0x123456, psn: 0xabcdef,
	gid: [16]byte{10: 0xff, 11: 0xff, 12: 192}, lid: 7, mtu: 5, ethernet: true, atomics: 16, receives: 256, mailbox: 0x7f0000001000, rkey: 99, device: "mlx5_3",
}

func TestCodec(t *testing.T) {
	k := key{mode: Atomic, id: 7, addr: 0x7fff00001234, bytes: 1 << 33, rkey: 0xdeadbeef}
	if got, err := openKey(framework.Parcel{Data: k.append(nil)}, Atomic); err != nil || got != k {
		t.Errorf("key %+v, %v; expected %+v", got, err, k)
	}
	a := sampleAddress
	if got, err := openAddress(framework.Parcel{Data: a.append(nil)}, Immediate); err != nil || !reflect.DeepEqual(got, a) {
		t.Errorf("address %+v, %v; expected %+v", got, err, a)
	}
}

// A malformed message of a peer is refused, with the reason.
func TestCodecRefuses(t *testing.T) {
	good := key{mode: Atomic, id: 7, addr: 4096, bytes: 64, rkey: 1}
	data := func(b []byte) framework.Parcel { return framework.Parcel{Data: b} }
	version := good.append(nil)
	version[4]++
	damaged := good.append(nil)
	damaged[20] ^= 4
	empty, wraps := good, good
	empty.bytes = 0
	wraps.addr = 1<<64 - 8
	for word, p := range map[string]framework.Parcel{
		"version 4":            data(version),
		"damaged":              data(damaged),
		"key of 0 bytes":       data(empty.append(nil)),
		"64 bytes at 0xffffff": data(wraps.append(nil)),
		"expected key":         data(sampleAddress.append(nil)),
		"no key":               data([]byte("nonsense that is long enough")),
		"another way":          data(key{mode: Immediate, id: 7, addr: 4096, bytes: 64}.append(nil)),
		"1 shares":             {Data: good.append(nil), Shares: make([]framework.Share, 1)},
	} {
		_, err := openKey(p, Atomic)
		wantError(t, err, framework.ErrPeer, word)
	}
	for word, change := range map[string]func(*address){
		"MTU code 6":    func(a *address) { a.mtu = 6 },
		"0 atomics":     func(a *address) { a.atomics = 0 },
		"for 0 signals": func(a *address) { a.receives = 0 },
		"of 65 bytes":   func(a *address) { a.device = string(make([]byte, 65)) },
	} {
		a := sampleAddress
		change(&a)
		_, err := openAddress(data(a.append(nil)), Immediate)
		wantError(t, err, framework.ErrPeer, word)
	}
}

// A decoded key is within bounds, and encodes to the same bytes.
func FuzzKey(f *testing.F) {
	f.Add(key{mode: Atomic, id: 1, addr: 4096, bytes: 64, rkey: 1}.append(nil))
	f.Add([]byte("MSRV"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, mode := range modes {
			k, err := openKey(framework.Parcel{Data: b}, mode)
			if err != nil {
				if framework.Class(err) != framework.ErrPeer {
					t.Errorf("%v: want class peer failed", err)
				}
				continue
			}
			if k.bytes == 0 || k.addr+k.bytes < k.addr || string(k.append(nil)) != string(b) {
				t.Errorf("%x decodes to %+v", b, k)
			}
		}
	})
}

func FuzzAddress(f *testing.F) {
	f.Add(sampleAddress.append(nil))
	f.Add(sampleAddress.append(nil)[:20])
	f.Fuzz(func(t *testing.T, b []byte) {
		// Most of what the fuzzer makes fails the checksum; what it stands for must hold
		// with a good one as well.
		if n := len(b) - len(parcel.Seal(nil, 0)); n > 0 {
			b = parcel.Seal(b[:n:n], 0)
		}
		for _, mode := range modes {
			a, err := openAddress(framework.Parcel{Data: b}, mode)
			if err != nil {
				if framework.Class(err) != framework.ErrPeer {
					t.Errorf("%v: want class peer failed", err)
				}
				continue
			}
			if a.mtu < 1 || a.mtu > 5 || a.atomics == 0 || len(a.device) > maxName {
				t.Errorf("%x decodes to %+v", b, a)
			}
		}
	})
}
