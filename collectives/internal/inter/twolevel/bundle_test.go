package twolevel

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
)

// bundle is a piece with messages of some lengths, and what they hold behind them.
func bundle(data []byte, lengths ...uint64) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(lengths)))
	for _, n := range lengths {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return append(b, data...)
}

func TestBundles(t *testing.T) {
	data := []byte("abcdefgh")
	for name, x := range map[string]struct {
		b     []byte
		other int
		sent  uint64
		ok    bool
	}{
		"as expected":        {bundle(data, 3, 0, 5), -1, 0, true},
		"more behind it":     {bundle(append(data, 'i'), 3, 0, 5), -1, 0, true},
		"another length":     {bundle(data, 3, 1, 4), 1, 1, true},
		"a length of 2^64-1": {bundle(data, math.MaxUint64, 0, 5), 0, math.MaxUint64, true},
		"of fewer messages":  {bundle(data, 3, 5), -1, 0, false},
		"a single message":   {binary.LittleEndian.AppendUint64(nil, 3), -1, 0, false},
		"data are missing":   {bundle(data[:7], 3, 0, 5), -1, 0, false},
		"lengths are cut":    {bundle(nil, 3, 0, 5)[:31], -1, 0, false},
		"empty":              {nil, -1, 0, false},
	} {
		places := [][]byte{make([]byte, 3), nil, make([]byte, 5)}
		other, sent, ok := openBundle(x.b, 3, func(k int) []byte { return places[k] })
		if other != x.other || sent != x.sent || ok != x.ok {
			t.Errorf("%s: message %d of %d bytes, %v: expected %d, %d, %v", name, other, sent, ok, x.other, x.sent, x.ok)
		}
		if whole := ok && other < 0; whole != bytes.Equal(bytes.Join(places, nil), data) {
			t.Errorf("%s: %q, expected %q: %v", name, places, data, whole)
		}
	}
}

// A bundle of any content is taken only where each message has the length of its place and is there
// in full, and nothing is written behind a place.
func FuzzBundle(f *testing.F) {
	f.Add(bundle([]byte("abcdefgh"), 3, 0, 5), uint8(3), uint8(0), uint8(5))
	f.Add(bundle([]byte("abcdefgh"), 3, math.MaxUint64, 5), uint8(3), uint8(0), uint8(5))
	f.Add(bundle(nil, 255, 255, 255), uint8(255), uint8(255), uint8(255))
	f.Add(bundle(nil, 0, 0, 0), uint8(0), uint8(0), uint8(0))
	f.Add(bundle(nil, 0, 0), uint8(0), uint8(0), uint8(0))
	f.Add([]byte{3}, uint8(1), uint8(2), uint8(3))
	f.Fuzz(func(t *testing.T, b []byte, first, second, third uint8) {
		const guard = 0xa5
		lengths := []int{int(first), int(second), int(third)}
		var places [3][]byte
		for k, n := range lengths {
			places[k] = bytes.Repeat([]byte{guard}, n+1)
		}
		other, sent, ok := openBundle(b, len(places), func(k int) []byte { return places[k][:lengths[k]] })
		for k, n := range lengths {
			if places[k][n] != guard {
				t.Fatalf("message %d was written behind its place of %d bytes", k, n)
			}
		}
		switch {
		case !ok && other != -1:
			t.Errorf("no bundle, and message %d has another length", other)
		case ok && other >= 0:
			if other >= len(lengths) || sent == uint64(lengths[other]) || sent != binary.LittleEndian.Uint64(b[8+8*other:]) {
				t.Errorf("message %d has another length: %d, expected %v", other, sent, lengths)
			}
		case ok:
			at := 32
			for k, n := range lengths {
				if !bytes.Equal(places[k][:n], b[at:at+n]) {
					t.Errorf("message %d is %x, expected %x", k, places[k][:n], b[at:at+n])
				}
				at += n
			}
		}
	})
}
