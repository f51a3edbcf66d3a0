// Package preamble is how a call begins in which several ranks take part: each says which
// call it is in, and whether it can go on.
//
// A call has two halves. First all participants say which call they are in and whether they can go
// on. A rank that cannot says so: all others get an error that names that rank and its reason, and
// the communicator is as good as before. Then comes the work. If that fails on one rank, others may
// be waiting for its next message and nobody knows what was received: so the rank aborts the
// communicator, and all end with its cause.
package preamble

import (
	"context"
	"fmt"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Tags of a communicator's own conversations. Sub-groups shift them.
const (
	tagBase  framework.Tag = 1 << 40
	TagHello               = tagBase + iota
	TagLink
	TagKeys
	TagStep
	tagPreamble
	TagSwitch
	TagUser
	TagFarewell // nothing is ever sent with it
	TagGoodbye  // from Close, when a rank has closed its channels
	TagHostCounters
	TagAside
)

// Refusal is the error of a call that a rank could not take part in. All ranks have one,
// and the next call finds them in step.
type Refusal struct {
	Err error

	// Again says that the same call may succeed a little later, on all ranks.
	Again bool

	// Full says that a call for less may succeed, on all ranks. It is errors.Is(err, device.ErrFull).
	Full bool
}

// Is implements what errors.Is asks for.
func (r *Refusal) Is(target error) bool { return r.Full && target == device.ErrFull }

// Error implements error.
func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns the reason.
func (r *Refusal) Unwrap() error { return r.Err }

// Rounds are the beginnings of calls between the ranks of a bootstrap.
type Rounds struct{ Boot framework.Bootstrap }

// preamble is what a rank sends at the beginning of a call: a magic byte, 1 for a refusal,
// the name of the call padded with zeros, and data, or why. It is longer than the
// header of a bootstrap's collective, so that neither is taken for a piece of the
// other.
type preamble struct {
	op      string
	refused bool
	data    []byte
}

const (
	magic     = 'S' // none of the kinds of a bootstrap's collectives
	nameBytes = 16  // bytes of the name
	headBytes = 2 + nameBytes
)

func (s preamble) encode() []byte {
	b := make([]byte, headBytes, headBytes+len(s.data))
	b[0] = magic
	if s.refused {
		b[1] = 1
	}
	copy(b[2:], s.op)
	return append(b, s.data...)
}

func decode(b []byte) (preamble, error) {
	if len(b) < headBytes || b[0] != magic || b[1] > 1 {
		return preamble{}, fmt.Errorf("%w: %d bytes that do not begin a call: all ranks must make the same calls in the same order", framework.ErrPeer, len(b))
	}
	op := strings.TrimRight(string(b[2:headBytes]), "\x00")
	return preamble{op: op, refused: b[1] == 1, data: b[headBytes:]}, nil
}

// opening is what this rank says: data, or that it cannot take part.
func opening(op string, data []byte, mine error) preamble {
	if mine != nil {
		return preamble{op, true, []byte(mine.Error())}
	}
	return preamble{op, false, data}
}

// Agree begins a call of all ranks: it returns what each of them sent, by rank.
// mine is why this one cannot take part.
func (r Rounds) Agree(ctx context.Context, op string, data []byte, mine error) ([][]byte, error) {
	all, err := bootstrap.AllGatherBytes(ctx, r.Boot, tagPreamble, opening(op, data, mine).encode())
	if err != nil {
		return nil, err
	}
	ranks := make([]int, len(all))
	for i := range ranks {
		ranks[i] = i
	}
	return hear(op, ranks, all, mine)
}

// Meet begins a call with some other ranks, in the same way: data by position in
// peers, both ways.
func (r Rounds) Meet(ctx context.Context, op string, peers []int, data [][]byte, mine error) ([][]byte, error) {
	for i, peer := range peers {
		if err := r.Boot.Send(ctx, peer, tagPreamble, framework.Parcel{Data: opening(op, data[i], mine).encode()}); err != nil {
			return nil, err
		}
	}
	got := make([][]byte, len(peers))
	for i, peer := range peers {
		p, err := r.Boot.Recv(ctx, peer, tagPreamble)
		if err != nil {
			return nil, err
		}
		p.Close()
		got[i] = p.Data
	}
	return hear(op, peers, got, mine)
}

// hear takes apart what the ranks have sent. After a refusal it still returns the data of the ranks
// that can take part.
func hear(op string, ranks []int, got [][]byte, mine error) ([][]byte, error) {
	var err error
	if mine != nil {
		err = &Refusal{Err: &framework.Error{Op: op, Peer: framework.NoPeer, Err: mine}}
	}
	data := make([][]byte, len(got))
	for i, b := range got {
		s, broken := decode(b)
		switch {
		case broken != nil:
			return nil, &framework.Error{Op: op, Peer: ranks[i], Err: broken}
		case s.op != op:
			if err == nil {
				err = &Refusal{Err: &framework.Error{Op: op, Peer: ranks[i], Err: fmt.Errorf(
					"%w: it is in a call for a %q: all ranks must make the same calls in the same order", framework.ErrInvalid, s.op)}}
			}
		case s.refused:
			if err == nil {
				err = &Refusal{Err: &framework.Error{Op: op, Peer: ranks[i], Err: fmt.Errorf("%w: it cannot take part: %s", framework.ErrPeer, s.data)}}
			}
		default:
			data[i] = s.data
		}
	}
	return data, err
}
