package notice

import (
	"context"
	"errors"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

func TestDepartureOfAnother(t *testing.T) {
	n := Departure(3, 1, context.Canceled)
	got, err := Decode(n.Encode(), 2)
	if err != nil || got != n {
		t.Errorf("%+v, %v: expected %+v", got, err, n)
	}
	n.Culprit = 0 // no rank says so of another one
	if _, err := Decode(n.Encode(), 2); !errors.Is(err, framework.ErrPeer) {
		t.Error(err)
	}
}

// From any bytes, Decode returns an error of class ErrPeer, or a notice that encodes to one alike.
func FuzzNotice(f *testing.F) {
	f.Add(Notice{Group: 7, Origin: 1, Culprit: 2, Class: framework.ErrInvalid, Text: "why"}.Encode())
	f.Add(Notice{Culprit: framework.NoPeer}.Encode())
	f.Add(Notice{Origin: 1 << 20, Culprit: 3}.Encode())
	f.Add([]byte{2, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := Decode(b, 16)
		if err != nil {
			if !errors.Is(err, framework.ErrPeer) {
				t.Fatalf("error without a class: %v", err)
			}
			return
		}
		again, err := Decode(n.Encode(), 16)
		if err != nil || again.Err().Error() != n.Err().Error() || framework.PeerOf(again.Err()) != n.Culprit {
			t.Fatalf("%+v became %+v (%v)", n, again, err)
		}
	})
}
