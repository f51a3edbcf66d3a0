package recipe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/preamble"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Together carries out the recipe of a group. mine is why this rank has none. Where one of the members fails, all of them do:
// at the next barrier each hears of it, nothing is left of the recipe anywhere, and the error is a Refusal that leaves the
// communicator as good as before. Only a member that is gone, or that nobody hears from in time, ends the communicator.
func (c *Performer) Together(ctx context.Context, op string, att framework.Attachment, sc Operands, mine error) (*Result, error) {
	defer att.Close()
	p := c.begin(att, sc)
	err := c.steps(ctx, op, p, att, sc, mine)
	if err != nil {
		c.Life.Rollback(p.Close)
		return nil, err
	}
	return p, nil
}

func (c *Performer) steps(ctx context.Context, op string, p *Result, att framework.Attachment, sc Operands, mine error) error {
	for i, s := range att.Steps {
		if mine != nil {
			break
		}
		if s.Op == framework.StepBarrier {
			if err := c.Agree(ctx, op, sc.Members, nil); err != nil {
				return err
			}
			continue
		}
		if err := c.step(ctx, p, att, s, sc); err != nil {
			mine = fmt.Errorf("step %d of %d: %w", i+1, len(att.Steps), err)
		}
	}
	if mine == nil && sc.Done != nil {
		mine = sc.Done(p)
	}
	// The last agreement is behind the recipes of all, whatever barriers they have: no member uses what another has not got.
	return c.Agree(ctx, op, sc.Members, mine)
}

// verdict is what members tell each other where they meet: nothing, or why one of them cannot go on.
type verdict struct {
	Error string `json:"error"`
	// Again says that the same may succeed a little later: a driver was not ready yet.
	Again bool `json:"again,omitempty"`
	// Full says that less may succeed.
	Full bool `json:"full,omitempty"`
}

const maxVerdict = 4 << 10 // bytes of an error that others get

func verdictOf(why error) []byte {
	if why == nil {
		return nil
	}
	text := why.Error()
	if len(text) > maxVerdict {
		text = text[:maxVerdict] + "…"
	}
	b, err := json.Marshal(verdict{text, errors.Is(why, device.ErrNotReady), errors.Is(why, device.ErrFull)})
	if err != nil { // a string and bools: it cannot fail
		return []byte(`{"error":"a failure without words"}`)
	}
	return b
}

// Agree waits for all members, each of which tells all others whether it can go on. mine is why this one cannot. Groups are
// small, and this is once per buffer.
func (c *Performer) Agree(ctx context.Context, op string, members []int, mine error) error {
	own := verdictOf(mine)
	for _, r := range members {
		if err := c.Boot.Send(ctx, r, preamble.TagStep, framework.Parcel{Data: own}); err != nil {
			return err
		}
	}
	all := preamble.Refusal{Err: c.own(op, mine), Again: mine == nil || errors.Is(mine, device.ErrNotReady), Full: mine == nil || errors.Is(mine, device.ErrFull)}
	for _, r := range members {
		theirs, err := c.verdict(ctx, op, r)
		if err != nil {
			return err
		}
		if theirs != nil {
			all.Again, all.Full = all.Again && theirs.Again, all.Full && theirs.Full
			if all.Err == nil {
				all.Err = &framework.Error{Op: op, Peer: r, Err: fmt.Errorf("%w: it cannot go on: %s", framework.ErrPeer, theirs.Error)}
			}
		}
	}
	if all.Err == nil {
		return nil
	}
	return &all
}

func (c *Performer) own(op string, mine error) error {
	if mine == nil {
		return nil
	}
	return &framework.Error{Op: op, Peer: c.Boot.Rank(), Err: mine}
}

// verdict is that of one member: why it cannot go on, or nil.
func (c *Performer) verdict(ctx context.Context, op string, r int) (*verdict, error) {
	p, err := c.Boot.Recv(ctx, r, preamble.TagStep)
	if err != nil {
		return nil, err
	}
	p.Close() // no shares are expected in it, and what is there would be ours
	if len(p.Data) == 0 {
		return nil, nil
	}
	var v verdict
	if len(p.Data) > 8*maxVerdict || json.Unmarshal(p.Data, &v) != nil || v.Error == "" {
		return nil, &framework.Error{Op: op, Peer: r, Err: fmt.Errorf("%w: %d bytes that say nothing where ranks meet", framework.ErrPeer, len(p.Data))}
	}
	return &v, nil
}
