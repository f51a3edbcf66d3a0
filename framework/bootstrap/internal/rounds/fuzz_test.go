package rounds

import (
	"errors"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

func classed(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, framework.ErrPeer) && !errors.Is(err, framework.ErrInvalid) {
		t.Fatalf("error without a class: %v", err)
	}
}

func FuzzBlocks(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 'x'}, 1)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 'x'}, 1)
	f.Add([]byte{}, 1<<40)
	f.Fuzz(func(t *testing.T, b []byte, count int) {
		if _, err := checkHeader(b, kindGather, round{number: 1}, 9); err != nil {
			classed(t, err)
		}
		blocks, err := splitBlocks(b, max(count, 0))
		if err != nil {
			classed(t, err)
			return
		}
		total := 0
		for _, x := range blocks {
			total += 8 + len(x)
		}
		if total != len(b) {
			t.Fatalf("blocks of %d bytes from %d", total, len(b))
		}
	})
}
