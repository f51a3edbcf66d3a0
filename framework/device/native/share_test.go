package native

import (
	"errors"
	"fmt"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

func TestJoinedReasonsAreOneLine(t *testing.T) {
	err := join([]error{fmt.Errorf("a: %w", framework.ErrUnavailable), fmt.Errorf("b\nc: %w", framework.ErrUnsupported)})
	if !errors.Is(err, framework.ErrUnavailable) || !errors.Is(err, framework.ErrUnsupported) || err.Error() != "a: unavailable; b; c: unsupported" {
		t.Errorf("%q: expected both classes on one line", err)
	}
	if one := errors.New("one"); join([]error{one}) != one {
		t.Error("a single reason is changed")
	}
	if firstOf(nil, framework.ErrClosed, framework.ErrInvalid) != framework.ErrClosed || firstOf(nil, nil) != nil {
		t.Error("not the first error")
	}
}

func TestRanges(t *testing.T) {
	for _, c := range []struct {
		offset, bytes, size uint64
		ok                  bool
	}{
		{0, 1, 1, true}, {5, 5, 10, true}, {0, 0, 1, false}, {5, 6, 10, false}, {11, 1, 10, false}, {^uint64(0), 2, 10, false}, {1, ^uint64(0), 10, false},
	} {
		if err := within(c.offset, c.bytes, c.size); (err == nil) != c.ok || err != nil && !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// The words for a code that has no name, or no call, are what there is.
func TestErrorsWithoutNames(t *testing.T) {
	acme := framework.Device{Type: "acme", Index: -1}
	for want, e := range map[string]*Error{
		"acme start: invalid: no driver":                   {Op: "start", Device: acme, Code: 7, Text: "no driver"},
		"acme start: invalid: acmeInit answers code 7 (x)": {Op: "start", Device: acme, Code: 7, Call: "acmeInit", Text: "x"},
		"acme start: invalid: code 7":                      {Op: "start", Device: acme, Code: 7},
		"acme start: invalid: ACME_NO (x): a line":         {Op: "start", Device: acme, Code: 7, Name: "ACME_NO", Text: "x", Log: "a line\n"},
	} {
		if got := e.Error(); got != want {
			t.Errorf("%q: expected %q", got, want)
		}
	}
}

// Shares come from other processes: nothing in them is trusted.
func FuzzLocalShares(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, localBytes))
	f.Add(append([]byte{localVersion}, make([]byte, localBytes-1)...))
	f.Fuzz(func(t *testing.T, blob []byte) {
		if id, err := parseLocal(blob); err == nil {
			t.Errorf("local share of block %d of this process", id)
		} else if framework.Class(err) == nil {
			t.Errorf("%v: expected a class", err)
		}
	})
}
