package preamble

import (
	"bytes"
	"errors"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

func FuzzPreamble(f *testing.F) {
	f.Add(preamble{op: "exchange", data: []byte("x")}.encode())
	f.Add(preamble{op: "memory channels", refused: true}.encode())
	f.Add([]byte{magic, 2})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decode(b)
		if err != nil {
			if !errors.Is(err, framework.ErrPeer) {
				t.Errorf("error without a class: %v", err)
			}
			return
		}
		again, err := decode(s.encode())
		if err != nil || again.op != s.op || again.refused != s.refused || !bytes.Equal(again.data, s.data) {
			t.Errorf("%+v became %+v (%v)", s, again, err)
		}
	})
}

func TestNamesOfCallsFit(t *testing.T) {
	for _, op := range []string{"barrier", "all-gather", "exchange", "memory channels", "memory channel", "port channel", "switch channel", "split", "reach by ports"} {
		if s, err := decode(preamble{op: op}.encode()); err != nil || s.op != op {
			t.Errorf("%q became %q (%v)", op, s.op, err)
		}
	}
}
