package porting

import (
	"errors"
	"fmt"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

// A proxy that ended because its peer has died is no fault of the rank that had it.
func TestBlameForAProxy(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{&framework.Error{Op: "proxy", Transport: "x", Peer: 3, Err: fmt.Errorf("%w: gone", framework.ErrPeer)}, 3},
		{&framework.Error{Op: "proxy", Transport: "x", Peer: framework.NoPeer, Err: framework.ErrPeer}, 1},
		{&framework.Error{Op: "proxy", Transport: "x", Peer: 3, Err: framework.ErrInvalid}, 1},
		{fmt.Errorf("%w: it ended", framework.ErrPlugin), 1},
	} {
		got := blameProxy(1, c.err)
		if framework.PeerOf(got) != c.want || !errors.Is(got, framework.Class(c.err)) {
			t.Errorf("%v: blames rank %d, want %d, and class %v", got, framework.PeerOf(got), c.want, framework.Class(c.err))
		}
	}
}
