package failure

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Op says which operation failed and with whom. An error that already blames
// a rank keeps its culprit: that is the one to name, not the rank in the middle.
// Layers of this package that would only repeat it are taken off.
func Op(op string, peer int, err error) error {
	if culprit := framework.PeerOf(err); culprit != framework.NoPeer {
		peer = culprit
	}
	return &framework.Error{Op: "bootstrap " + op, Peer: peer, Err: Innermost(err)}
}

// Innermost takes layers of this package off an error.
func Innermost(err error) error {
	for {
		var e *framework.Error
		if !errors.As(err, &e) || e.Transport != "" || e.Err == nil || !strings.HasPrefix(e.Op, "bootstrap") {
			return err
		}
		err = e.Err
	}
}

// Named puts the peer's rank on an error that has none.
func Named(peer int, err error) error {
	if err == nil || framework.PeerOf(err) != framework.NoPeer {
		return err
	}
	return &framework.Error{Op: "bootstrap exchange", Peer: peer, Err: err}
}

// Left is the error of a rank that has left in good order.
func Left(rank int) error {
	return fmt.Errorf("%w: rank %d has left the job", framework.ErrPeer, rank)
}
