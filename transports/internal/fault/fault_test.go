package fault

import (
	"errors"
	"fmt"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

func TestIn(t *testing.T) {
	late := fmt.Errorf("%w: too late", framework.ErrPeer)
	for want, err := range map[string]error{
		"x connect: peer failed: too late":                          late,
		"x connect rank 3: peer failed: too late":                   Of(3, late),
		"x connect rank 0: peer failed: too late":                   Of(0, late),
		"x connect: y map: peer failed: too late":                   In("y", "map", late),
		"x connect rank 3: y map rank 3: peer failed: too late":     In("y", "map", Of(3, late)),
		"x connect rank 3: own side: rank 3: peer failed: too late": fmt.Errorf("own side: %w", Of(3, late)),
	} {
		got := In("x", "connect", err)
		if got.Error() != want || !errors.Is(got, framework.ErrPeer) || framework.PeerOf(got) != framework.PeerOf(err) {
			t.Errorf("%q, which blames rank %d: expected %q and rank %d", got, framework.PeerOf(got), want, framework.PeerOf(err))
		}
	}
	// An error that blames a rank and says nothing is not made to be none.
	if got := In("x", "connect", &framework.Error{Peer: 2}); got.Error() != "x connect rank 2: rank 2" {
		t.Errorf("%q", got)
	}
}
