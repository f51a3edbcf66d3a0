// Package fault puts on the errors of a transport which operation failed and which
// rank is to blame, each once, however deep the cause was found.
package fault

import "github.com/mscclpp-go/mscclpp/framework"

// Of blames a rank. The operation is added by In, further out.
func Of(rank int, err error) error { return &framework.Error{Peer: rank, Err: err} }

// In says which operation of which transport failed. The rank is the one that err
// blames, or none.
func In(transport, op string, err error) error {
	peer := framework.PeerOf(err)
	if e, ok := err.(*framework.Error); ok && e.Op == "" && e.Transport == "" && e.Err != nil { //nolint:errorlint // the outermost error only
		err = e.Err // it names a rank and nothing else, and that is said further out
	}
	return &framework.Error{Op: op, Transport: transport, Peer: peer, Err: err}
}
