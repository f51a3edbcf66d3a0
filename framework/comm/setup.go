package comm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
)

// A set-up call has two halves. First all who take part say which call they are in
// and whether they can go on. Who cannot says so, all others get an error that
// names that rank and its reason, and the communicator is as good as before. Then
// comes the work. If that fails on one rank, others may be waiting for its next
// message and nobody knows what was received: so the rank aborts the communicator,
// and all end with its cause.

// setUp performs one set-up call.
func (c *Communicator) setUp(ctx context.Context, op string, work func(ctx context.Context) error) error {
	c.setup.Lock()
	defer c.setup.Unlock()
	return c.together(ctx, op, work)
}

// together performs work that all take part in, and aborts if it fails half-way.
func (c *Communicator) together(ctx context.Context, op string, work func(ctx context.Context) error) error {
	if err := c.Err(); err != nil {
		return err
	}
	ctx, cancel := c.bound(ctx)
	defer cancel()
	c.call.Store(&underWay{op, time.Now()})
	err := work(ctx)
	c.call.Store(nil)
	var r *refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &r):
		return fmt.Errorf("comm %s: %w", c.opts.Name, err)
	}
	w, _ := c.boot.(bootstrap.Watcher)
	if w != nil && w.Err() != nil {
		c.fail(fmt.Errorf("comm %s: %w", c.opts.Name, w.Err())) // that is why
		return c.Err()
	}
	cause := c.accuse(op, err)
	c.Abort(cause)
	if w != nil && !c.aborted() {
		w.Announce(cause) // closed in the middle of a call: there is nothing to abort here
	}
	return c.Err()
}

// accuse puts the rank on an error that is to blame for it. The rank that an error
// of a transport names is the far side of what failed here, which may know nothing
// of it; unless the error says that the fault is there.
func (c *Communicator) accuse(op string, err error) error {
	peer := framework.PeerOf(err)
	late := errors.Is(err, context.DeadlineExceeded)
	switch {
	case peer == framework.NoPeer || !late && !errors.Is(err, framework.ErrPeer):
		peer = c.Rank()
	case late && framework.Class(err) == nil:
		err = fmt.Errorf("%w: %w", framework.ErrPeer, err)
	}
	return &framework.Error{Op: op, Peer: peer, Err: err}
}

// refusal is the error of a call that a rank could not take part in. All ranks
// have one, and the next call finds them in step.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

// say is what a rank says at the beginning of a call: a magic byte, 1 for a refusal,
// the name of the call padded with zeros, and data, or why. It is longer than the
// header of a bootstrap's collective, so that neither is taken for a piece of the
// other.
type say struct {
	op      string
	refused bool
	data    []byte
}

const (
	sayMagic = 'S' // none of the kinds of a bootstrap's collectives
	sayName  = 16  // bytes of the name
	sayBytes = 2 + sayName
)

func (s say) encode() []byte {
	b := make([]byte, sayBytes, sayBytes+len(s.data))
	b[0] = sayMagic
	if s.refused {
		b[1] = 1
	}
	copy(b[2:], s.op)
	return append(b, s.data...)
}

func decodeSay(b []byte) (say, error) {
	if len(b) < sayBytes || b[0] != sayMagic || b[1] > 1 {
		return say{}, fmt.Errorf("%w: %d bytes that do not begin a call: all ranks must make the same calls in the same order", framework.ErrPeer, len(b))
	}
	op := strings.TrimRight(string(b[2:sayBytes]), "\x00")
	return say{op: op, refused: b[1] == 1, data: b[sayBytes:]}, nil
}

// opening is what this rank says: data, or that it cannot take part.
func opening(op string, data []byte, mine error) say {
	if mine != nil {
		return say{op, true, []byte(mine.Error())}
	}
	return say{op, false, data}
}

// agree begins a call of all ranks: it returns what each of them sent, by rank.
// mine is why this one cannot take part.
func (c *Communicator) agree(ctx context.Context, op string, data []byte, mine error) ([][]byte, error) {
	all, err := bootstrap.AllGatherBytes(ctx, c.boot, tagSay, opening(op, data, mine).encode())
	if err != nil {
		return nil, err
	}
	ranks := make([]int, len(all))
	for r := range ranks {
		ranks[r] = r
	}
	return c.hear(op, ranks, all, mine)
}

// meet begins a call with some other ranks, in the same way: data by position in
// peers, both ways.
func (c *Communicator) meet(ctx context.Context, op string, peers []int, data [][]byte, mine error) ([][]byte, error) {
	for i, r := range peers {
		if err := c.boot.Send(ctx, r, tagSay, framework.Parcel{Data: opening(op, data[i], mine).encode()}); err != nil {
			return nil, err
		}
	}
	said := make([][]byte, len(peers))
	for i, r := range peers {
		p, err := c.boot.Recv(ctx, r, tagSay)
		if err != nil {
			return nil, err
		}
		p.Close()
		said[i] = p.Data
	}
	return c.hear(op, peers, said, mine)
}

// hear takes apart what the ranks have said. After a refusal it still returns the
// data of those who can take part.
func (c *Communicator) hear(op string, ranks []int, said [][]byte, mine error) ([][]byte, error) {
	var err error
	if mine != nil {
		err = &refusal{&framework.Error{Op: op, Peer: framework.NoPeer, Err: mine}}
	}
	data := make([][]byte, len(said))
	for i, b := range said {
		s, broken := decodeSay(b)
		switch {
		case broken != nil:
			return nil, &framework.Error{Op: op, Peer: ranks[i], Err: broken}
		case s.op != op:
			if err == nil {
				err = &refusal{&framework.Error{Op: op, Peer: ranks[i], Err: fmt.Errorf(
					"%w: it is in a call for a %q: all ranks must make the same calls in the same order", framework.ErrInvalid, s.op)}}
			}
		case s.refused:
			if err == nil {
				err = &refusal{&framework.Error{Op: op, Peer: ranks[i], Err: fmt.Errorf("%w: it cannot take part: %s", framework.ErrPeer, s.data)}}
			}
		default:
			data[i] = s.data
		}
	}
	return data, err
}

// undo releases what a call that failed has made: in a context of its own, since
// that of the call may be what ended it.
func (c *Communicator) undo(release func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.closeBound())
	defer cancel()
	_ = release(ctx) // the call's own error is the one to report
}
