package lanes

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// A preamble of any bytes is taken apart without loss: where two differ their fields differ, and
// the call can be described in a line.
func FuzzHead(f *testing.F) {
	var l *Lanes
	sample := func(s kernelargs.Signature, bytes uint64) []byte {
		b := make([]byte, PreambleBytes)
		l.Preamble(b, &s, bytes)
		return b
	}
	for kind := range uint32(collective.Kinds) {
		f.Add(sample(kernelargs.Signature{Sequence: 7, Count: 100, Collective: kind, Algorithm: kernelargs.NameID(Name), Type: uint32(kernel.Float16), Op: uint32(kernel.Max), Root: 3}, 200))
	}
	f.Add(sample(kernelargs.Signature{Sequence: 1, Count: 1, Collective: uint32(collective.Reduce), Algorithm: kernelargs.NameID("oneshot_ll8"), Type: kernel.DataTypes, Op: kernel.Ops, Root: 65535}, 1<<40))
	f.Add(make([]byte, PreambleBytes))
	f.Add(bytes.Repeat([]byte{0xff}, PreambleBytes))
	f.Add([]byte("shorter"))
	f.Fuzz(func(t *testing.T, head []byte) {
		if len(head) < PreambleBytes {
			return // a slot has as many
		}
		head = head[:PreambleBytes]
		var words [4]uint64
		for i := range words {
			words[i] = binary.LittleEndian.Uint64(head[8*i:])
		}
		s := signatureOf(words)
		if s.Type > 0xff || s.Op > 0xff || s.Root > 0xffff || s.Collective > 0xff || s.Algorithm > 0xffffff {
			t.Errorf("%x: %+v: a part has more bits than there are in a head", head, s)
		}
		if again := sample(s, words[3]); !bytes.Equal(again, head) {
			t.Errorf("%x is %+v, and that is %x", head, s, again)
		}
		text := s.Describe(func(collective.Kind, uint32) string { return "" })
		if text == "" || len(text) > 200 || strings.ContainsAny(text, "\n\x00") {
			t.Errorf("%+v is described by %d bytes, %q: expected a line", s, len(text), text)
		}
	})
}
