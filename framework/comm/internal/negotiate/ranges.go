package negotiate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/memory"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/preamble"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// ranges divide the window of a group among memory that is bound to it. The zero value has no room.
type ranges struct {
	object device.Ranges
	unit   uint64
	end    uint64 // of the window

	mu   sync.Mutex
	used []span // of this rank, in no order
}

// span is a part of a window, in bytes.
type span struct {
	At    uint64 `json:"at"`
	Bytes uint64 `json:"bytes"`
}

// divide notes what the group's own memory takes of the window.
func (g *Group) divide() {
	object := g.done.Ranges()
	if g.room == 0 || object == nil || object.Unit() == 0 {
		return
	}
	unit := object.Unit()
	g.ranges.object, g.ranges.unit, g.ranges.end = object, unit, g.Window.Bytes()
	g.ranges.used = []span{{0, roundUp(g.m.Bytes(), unit)}}
}

func roundUp(n, unit uint64) uint64 { return (n + unit - 1) / unit * unit }

// bindCall is what ranks say to each other before they bind memory.
type bindCall struct {
	Bytes uint64 `json:"bytes"`
	Name  uint64 `json:"name"` // of the memory, the same on all ranks
	Used  []span `json:"used"` // a rank may have taken memory out that others still have in
}

// Bind makes m, of all ranks, a part of the window, and returns its place there. A rank that cannot takes it from all.
func (g *Group) Bind(ctx context.Context, m *memory.Memory, name uint64) (place uint64, err error) {
	err = g.n.inLockstep(ctx, func() error {
		place, err = g.bind(ctx, m, name)
		return err
	})
	return place, err
}

func (g *Group) bind(ctx context.Context, m *memory.Memory, name uint64) (uint64, error) {
	r := &g.ranges
	mine := memory.Usable(m)
	call := bindCall{Name: name}
	switch {
	case mine != nil:
	case r.object == nil:
		mine = fmt.Errorf("%w: the window has no room for more memory", framework.ErrUnsupported)
	default:
		call.Bytes, call.Used = m.Bytes(), r.list()
	}
	data, err := json.Marshal(call)
	if err != nil {
		return 0, err
	}
	said, err := g.n.Rounds.Agree(ctx, OpBind, data, mine)
	if err != nil {
		return 0, err
	}
	place, err := r.place(said, call)
	if err != nil {
		return 0, err
	}
	mine = r.object.BindAt(place, m.Memory, call.Bytes)
	bound := mine == nil
	if err := g.n.Recipes.Agree(ctx, OpBind, g.n.Others(), mine); err != nil {
		if bound {
			g.n.Life.Rollback(func(context.Context) error { return r.object.UnbindAt(place) })
		}
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used = append(r.used, span{place, roundUp(call.Bytes, r.unit)})
	return place, nil
}

// unbind takes this rank's memory out of the window. The others may do so at another time.
func (g *Group) unbind(place uint64) error {
	r := &g.ranges
	err := r.object.UnbindAt(place)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used = slices.DeleteFunc(r.used, func(s span) bool { return s.At == place })
	return err
}

func (r *ranges) list() []span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.used)
}

// place finds room that is free on all ranks: the same place on all, since all have heard the same.
func (r *ranges) place(said [][]byte, mine bindCall) (uint64, error) {
	var used []span
	for rank, b := range said {
		var theirs bindCall
		if err := json.Unmarshal(b, &theirs); err != nil || len(theirs.Used) > maxRanges {
			return 0, &framework.Error{Op: OpBind, Peer: rank, Err: fmt.Errorf("%w: %d bytes that say nothing about its part of the window", framework.ErrPeer, len(b))}
		}
		if theirs.Bytes != mine.Bytes || theirs.Name != mine.Name {
			return 0, &preamble.Refusal{Err: &framework.Error{Op: OpBind, Peer: rank, Err: fmt.Errorf("%w: it binds %d bytes, of exchanged memory %d: expected %d of %d as here",
				framework.ErrInvalid, theirs.Bytes, theirs.Name, mine.Bytes, mine.Name)}}
		}
		used = append(used, theirs.Used...)
	}
	slices.SortFunc(used, func(a, b span) int { return cmp.Compare(a.At, b.At) })
	at, need := uint64(0), roundUp(mine.Bytes, r.unit)
	for _, s := range used {
		if s.At > at && s.At-at >= need {
			break
		}
		at = max(at, s.At+s.Bytes)
	}
	if at > r.end || need > r.end-at {
		return 0, &preamble.Refusal{Err: &framework.Error{Op: OpBind, Peer: framework.NoPeer, Err: fmt.Errorf("%w: %d bytes do not fit into the window of %d beside what is bound there",
			framework.ErrUnavailable, need, r.end)}}
	}
	return at, nil
}

// maxRanges is more than anybody binds.
const maxRanges = 1 << 16
