package gpulink

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/transports/internal/link"
)

var (
	someKey     = key{offset: 4096, bytes: 100, kinds: []framework.ShareKind{local, vmm, fabric, legacy, hostFD}}
	someAddress = address{
		Side: link.Side{Kind: framework.KindPort, Rank: 1<<31 - 1, Digest: [16]byte{1, 15: 2}}, instance: instance{3, 15: 4}, host: "h",
		gpu: identity{uuid: "GPU-1", pci: "0000:19:00.0", name: "NVIDIA H200"}, fabric: "ab/1",
	}
)

func TestCodecRoundTrip(t *testing.T) {
	for _, k := range []key{someKey, {bytes: maxBytes, offset: maxBytes, kinds: []framework.ShareKind{vmm}}} {
		if got, err := decodeKey(head, k.append(head, nil)); err != nil || !reflect.DeepEqual(got, k) {
			t.Errorf("%+v, %v: want %+v", got, err, k)
		}
	}
	for _, a := range []address{someAddress, {Side: link.Side{Kind: framework.KindMemory}, host: strings.Repeat("x", maxText)}} {
		if got, err := decodeAddress(head, a.append(head, nil)); err != nil || got != a {
			t.Errorf("%+v, %v: want %+v", got, err, a)
		}
	}
}

// Every cut, every byte too many and every field out of range is an error of the
// peer.
func TestCodecRefuses(t *testing.T) {
	k, a := someKey.append(head, nil), someAddress.append(head, nil)
	refused := func(what string, err error) {
		t.Helper()
		if framework.Class(err) != framework.ErrPeer {
			t.Errorf("%s: %v: want ErrPeer", what, err)
		}
	}
	for n := range len(k) + 2 {
		if n != len(k) {
			_, err := decodeKey(head, append(bytes.Clone(k), 2)[:min(n, len(k)+1)])
			refused("a key that is cut or too long", err)
		}
	}
	for n := range len(a) + 2 {
		if n != len(a) {
			_, err := decodeAddress(head, append(bytes.Clone(a), 0)[:min(n, len(a)+1)])
			refused("an address that is cut or too long", err)
		}
	}
	for name, bad := range map[string]key{
		"empty":     {kinds: someKey.kinds},
		"enormous":  {bytes: maxBytes + 1, kinds: someKey.kinds},
		"far away":  {bytes: 1, offset: 1<<64 - 1, kinds: someKey.kinds},
		"no shares": {bytes: 1},
		"nine":      {bytes: 1, kinds: slicesOf(vmm, 9)},
	} {
		_, err := decodeKey(head, bad.append(head, nil))
		refused(name, err)
	}
	for _, code := range []byte{0, 6, 255} {
		b := bytes.Clone(k)
		b[len(b)-1] = code
		_, err := decodeKey(head, b)
		refused("a kind that is unknown", err)
	}
	for i := range headBytes {
		b := bytes.Clone(k)
		b[i]++
		_, err := decodeKey(head, b)
		refused("another head", err)
	}
	_, err := decodeKey(head, a)
	refused("an address as key", err)
	_, err = decodeAddress(head, k)
	refused("a key as address", err)
}

func slicesOf(k framework.ShareKind, n int) []framework.ShareKind {
	all := make([]framework.ShareKind, n)
	for i := range all {
		all[i] = k
	}
	return all
}

// The shares that come with a key have to be those that it names.
func TestKeyAndShares(t *testing.T) {
	tr := transport(t, recorded(t, "h200"))
	good := register(t, tr, vmm, legacy).Key
	for name, shares := range map[string][]framework.Share{
		"none":     nil,
		"one":      good.Shares[:1],
		"reversed": {good.Shares[1], good.Shares[0]},
		"more":     append(good.Shares[:2:2], good.Shares[0]),
	} {
		if _, err := tr.openKey(framework.Parcel{Data: good.Data, Shares: shares}, false); framework.Class(err) != framework.ErrPeer {
			t.Errorf("%s: %v: want ErrPeer", name, err)
		}
	}
	if _, err := tr.openKey(good, false); err != nil {
		t.Error(err)
	}
	if _, err := tr.openKey(framework.Parcel{Data: good.Data, Shares: good.Shares[1:]}, true); err != nil {
		t.Errorf("from another host, without descriptors: %v", err)
	}
}

func FuzzDecodeKey(f *testing.F) {
	f.Add(someKey.append(head, nil))
	f.Add([]byte("MCIP"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if k, err := decodeKey(head, b); err == nil && !bytes.Equal(k.append(head, nil), b) {
			t.Errorf("%x decodes to %+v, which encodes otherwise", b, k)
		}
	})
}

func FuzzDecodeAddress(f *testing.F) {
	f.Add(someAddress.append(head, nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := decodeAddress(head, b); err == nil && !bytes.Equal(a.append(head, nil), b) {
			t.Errorf("%x decodes to %+v, which encodes otherwise", b, a)
		}
	})
}
