package tcp

import (
	"bytes"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/transports/internal/parcel"
)

func someAddress() address {
	return address{
		owner: [16]byte{1, 2}, endpoint: 1 << 40, rank: 7, secret: [32]byte{3}, stack: "boot/1",
		places: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.2:4711"), netip.MustParseAddrPort("[fd00::1]:4711")},
	}
}

func TestParcels(t *testing.T) {
	a := someAddress()
	if got, err := decodeAddress(framework.Parcel{Data: a.append(nil)}); err != nil || !reflect.DeepEqual(got, a) {
		t.Errorf("address %+v, %v, want %+v", got, err, a)
	}
	k := key{owner: [16]byte{9}, id: 1 << 40, token: [16]byte{4}, bytes: 12345, align: 3}
	if got, err := decodeKey(framework.Parcel{Data: k.append(nil)}); err != nil || got != k {
		t.Errorf("key %+v, %v, want %+v", got, err, k)
	}
	old := k.append(nil)
	old[4]++
	empty, nowhere, everywhere := a, a, a
	empty.places = nil
	nowhere.places = []netip.AddrPort{netip.MustParseAddrPort("10.0.0.2:0")}
	everywhere.places = []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:1")}
	for what, data := range map[string][]byte{
		"an address":                a.append(nil),
		"a key of another version":  old,
		"a key of no memory":        key{}.append(nil),
		"a key that is not aligned": key{bytes: 8, align: 8}.append(nil),
	} {
		if _, err := decodeKey(framework.Parcel{Data: data}); !errors.Is(err, framework.ErrPeer) {
			t.Errorf("%s as a key: %v, want ErrPeer", what, err)
		}
	}
	for what, data := range map[string][]byte{
		"a key": k.append(nil), "no place": empty.append(nil), "port 0": nowhere.append(nil), "any address": everywhere.append(nil),
	} {
		if _, err := decodeAddress(framework.Parcel{Data: data}); !errors.Is(err, framework.ErrPeer) {
			t.Errorf("%s as an address: %v, want ErrPeer", what, err)
		}
	}
}

func FuzzParcels(f *testing.F) {
	f.Add(key{bytes: 1}.append(nil))
	f.Add(someAddress().append(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := framework.Parcel{Data: data}
		if k, err := decodeKey(p); err != nil && !errors.Is(err, framework.ErrPeer) {
			t.Errorf("key: %v: want ErrPeer", err)
		} else if err == nil && !bytes.Equal(k.append(nil), data) {
			t.Errorf("key %+v does not encode as it was", k)
		}
		if a, err := decodeAddress(p); err != nil && !errors.Is(err, framework.ErrPeer) {
			t.Errorf("address: %v: want ErrPeer", err)
		} else if err == nil && len(a.places) == 0 {
			t.Errorf("address without a place")
		}
		// With a right checksum more of the decoders is reached.
		for _, kind := range []byte{typeAddress, typeKey} {
			sealed := framework.Parcel{Data: parcel.Seal(append(head.Append(nil, kind), data...), 0)}
			_, keyErr := decodeKey(sealed)
			_, addressErr := decodeAddress(sealed)
			for _, err := range []error{keyErr, addressErr} {
				if err != nil && !errors.Is(err, framework.ErrPeer) {
					t.Errorf("%v: want ErrPeer", err)
				}
			}
		}
	})
}

func TestFrames(t *testing.T) {
	for _, f := range []frame{
		{kind: frameOpen, handle: 5, bytes: openBytes},
		{kind: framePut, handle: 5, offset: 1 << 33, bytes: 9},
		{kind: frameStripe, others: 3, handle: handles - 1, offset: 8, bytes: 1 << 20, number: 77},
		{kind: frameSignal, handle: memories, offset: 8},
		{kind: frameFlush, number: 3},
	} {
		if got, err := decodeFrame(f.append(nil)); err != nil || got != f {
			t.Errorf("frame %+v, %v, want %+v", got, err, f)
		}
	}
	for what, f := range map[string]frame{
		"kind 0":              {},
		"unknown kind":        {kind: 9},
		"open of no body":     {kind: frameOpen},
		"put with a number":   {kind: framePut, number: 1},
		"stripe 0":            {kind: frameStripe, bytes: 1},
		"empty stripe":        {kind: frameStripe, number: 1},
		"signal with data":    {kind: frameSignal, bytes: 8},
		"flush 0":             {kind: frameFlush},
		"handle out of range": {kind: framePut, handle: handles},
		"too many streams":    {kind: frameStripe, others: maxStreams, bytes: 1, number: 1},
	} {
		if _, err := decodeFrame(f.append(nil)); !errors.Is(err, framework.ErrPeer) {
			t.Errorf("%s: %v, want ErrPeer", what, err)
		}
	}
	long := answer{verdict: answerRefused, text: strings.Repeat("x", 2*maxText)}.append(nil)
	if _, n, err := decodeAnswer(long[:answerBytes]); err != nil || n != maxText || len(long) != answerBytes+maxText {
		t.Errorf("a long text: %d bytes, %v, want it cut to %d", n, err, maxText)
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(frame{kind: framePut, bytes: 8}.append(nil))
	f.Add(answer{verdict: answerDone, number: 1}.append(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		if fr, err := decodeFrame(data); err == nil {
			if !bytes.Equal(fr.append(nil), data) || fr.handle >= handles {
				t.Errorf("frame %+v does not encode as it was", fr)
			}
		} else if !errors.Is(err, framework.ErrPeer) {
			t.Errorf("frame: %v: want ErrPeer", err)
		}
		if a, n, err := decodeAnswer(data); err == nil {
			if n > maxText || a.verdict == 0 {
				t.Errorf("answer %+v with %d bytes of text", a, n)
			}
		} else if !errors.Is(err, framework.ErrPeer) {
			t.Errorf("answer: %v: want ErrPeer", err)
		}
	})
}

func FuzzHandshake(f *testing.F) {
	f.Add(hello{version: 1, streams: 1}.append(nil))
	f.Add(reply{version: 1}.append(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		if h, err := decodeHello(data); err == nil && (!bytes.Equal(h.append(nil), data) || h.stream >= h.streams) {
			t.Errorf("hello %+v does not encode as it was", h)
		}
		if r, err := decodeReply(data); err == nil && !bytes.Equal(r.append(nil)[8:], data[8:]) {
			t.Errorf("reply %+v does not encode as it was", r)
		}
	})
}
