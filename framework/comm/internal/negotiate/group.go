package negotiate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/memory"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/preamble"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/recipe"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/transport"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// SwitchTail is the end of a switch channel's memory, which holds the counter of its
// barrier.
const SwitchTail = 128

// A driver that is still starting gets some time: all ranks try again together.
const (
	groupTries = 3
	groupPause = 2 * time.Second
)

// Room is bytes of a window.
type Room uint64

// Group binds m into a window over the memory of all ranks, with room for so many bytes that are bound later. After an error
// nothing is left. A step that one rank cannot do is refused on all.
func (n *Negotiator) Group(ctx context.Context, m *memory.Memory, more ...Room) (g *Group, err error) {
	var room uint64
	for _, r := range more {
		room += uint64(r)
	}
	err = n.inLockstep(ctx, func() error {
		g = &Group{n: n, m: m, room: room}
		err := g.gather(ctx)
		if err == nil {
			err = g.join(ctx)
		}
		if err != nil {
			n.Life.Rollback(g.Close)
		}
		return err
	})
	return g, err
}

// inLockstep tries a call of all ranks again, on all of them, while a driver of one says that it is not ready yet.
func (n *Negotiator) inLockstep(ctx context.Context, attempt func() error) error {
	for try := 1; ; try++ {
		err := attempt()
		var refused *preamble.Refusal
		if err == nil || !errors.As(err, &refused) || !refused.Again || try == groupTries {
			return err
		}
		n.Log.Info("a switch is not ready yet: all ranks try again", "try", try, "of", groupTries, "pause", groupPause, "reason", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(groupPause):
		}
	}
}

// Group is what lies under a switch channel.
type Group struct {
	n         *Negotiator
	Transport *transport.Transport
	m         *memory.Memory
	room      uint64
	ranges    ranges
	end       framework.Endpoint
	conn      framework.ID
	created   []device.Object
	done      *recipe.Result
	Window    device.Memory
	Stride    uint64
}

// switchCall is what ranks say to each other first.
type switchCall struct {
	Bytes  uint64  `json:"bytes"`
	Room   uint64  `json:"room,omitempty"`
	Offers []offer `json:"offers"`
}

// gather finds a transport whose switch reaches all ranks.
func (g *Group) gather(ctx context.Context) error {
	mine := memory.Usable(g.m)
	if mine == nil && g.m.Bytes() <= SwitchTail {
		mine = fmt.Errorf("%w: %d bytes, expected more than %d", framework.ErrInvalid, g.m.Bytes(), SwitchTail)
	}
	var ends map[string]framework.Endpoint
	var call switchCall
	chosen := ""
	defer func() { g.n.closeEndpoints(ends, chosen) }()
	if mine == nil {
		all := make([]int, g.n.Boot.Size())
		for r := range all {
			all[r] = r
		}
		call.Bytes, call.Room = g.m.Bytes(), g.room
		var err error
		if ends, call.Offers, err = g.n.listen(ctx, framework.KindSwitch, all, call.Bytes); err != nil {
			return err
		}
		for i := range call.Offers {
			call.Offers[i].Data = nil // the address follows, when its transport is chosen
		}
	}
	data, err := json.Marshal(call)
	if err != nil {
		return err
	}
	said, err := g.n.Rounds.Agree(ctx, OpSwitch, data, mine)
	if err != nil {
		return err
	}
	calls := make([]switchCall, len(said))
	for r, b := range said {
		if err := json.Unmarshal(b, &calls[r]); err != nil {
			return &framework.Error{Op: OpSwitch, Peer: r, Err: fmt.Errorf("%w: offers: %v", framework.ErrPeer, err)}
		}
		if calls[r].Bytes != call.Bytes || calls[r].Room != call.Room {
			return &preamble.Refusal{Err: &framework.Error{Op: OpSwitch, Peer: r, Err: fmt.Errorf(
				"%w: its part has %d bytes, with room for %d: expected %d and %d as here", framework.ErrInvalid, calls[r].Bytes, calls[r].Room, call.Bytes, call.Room)}}
		}
	}
	if chosen = chooseForAll(calls); chosen == "" {
		return &preamble.Refusal{Err: &framework.Error{Op: OpSwitch, Peer: framework.NoPeer, Err: fmt.Errorf(
			"%w: no transport has a switch that reaches all ranks: this one offers %s", framework.ErrUnsupported, describe(call.Offers))}}
	}
	g.Transport, g.end = g.n.named(chosen), ends[chosen]
	if g.Transport.Description.Signal != framework.SignalMultimem {
		g.room = 0 // an emulated window is no object that memory is bound to
	}
	return nil
}

// chooseForAll returns the first transport, in rank 0's order, whose endpoints on
// all ranks share a reach token, or "".
func chooseForAll(calls []switchCall) string {
	for _, o := range calls[0].Offers {
		common := slices.Clone(o.Reach)
		for _, call := range calls {
			i := slices.IndexFunc(call.Offers, func(x offer) bool { return x.Name == o.Name && x.Why == "" })
			common = slices.DeleteFunc(common, func(token string) bool {
				return i < 0 || !slices.Contains(call.Offers[i].Reach, token)
			})
		}
		if len(common) > 0 {
			return o.Name
		}
	}
	return ""
}

// join makes the window. From here on all ranks depend on each other, and tell each other what they cannot do.
func (g *Group) join(ctx context.Context) error {
	defer func() { g.end.Address.Close() }() // as it is then: create adds to it
	reg, mine := g.contribute(ctx)
	if err := g.n.Recipes.Agree(ctx, OpSwitch, g.n.Others(), mine); err != nil {
		return err
	}
	peers, keys, err := g.swap(ctx, reg.Key)
	defer func() {
		for i := range peers {
			peers[i].Address.Close()
			keys[i].Close()
		}
	}()
	if err != nil {
		return err
	}
	att, mine := g.attach(ctx, reg.ID, peers, keys)
	created := g.created
	g.created = nil // now in the hands of the recipe, also after an error
	g.done, err = g.n.Recipes.Together(ctx, OpSwitch, att, recipe.Operands{
		Transport: g.Transport, Members: g.n.Others(), Own: g.m, Created: created, Done: g.findWindow,
		Object: framework.Object{Kind: framework.ObjectMulticast, Bytes: g.m.Bytes() + g.room, Ranks: g.n.Boot.Size()},
	}, mine)
	if err == nil {
		g.divide()
	}
	return err
}

// contribute makes what the others get from this rank.
func (g *Group) contribute(ctx context.Context) (framework.Registration, error) {
	for _, o := range g.end.Create {
		o.Bytes += g.room
		if err := g.create(o); err != nil {
			return framework.Registration{}, err
		}
	}
	return memory.Registration(ctx, g.m, g.Transport, g.n.Counters.Dev.Info().Device)
}

// attach has the transport say how the window is made.
func (g *Group) attach(ctx context.Context, own framework.ID, peers []framework.Peer, keys []framework.Parcel) (att framework.Attachment, err error) {
	if g.conn, err = g.Transport.Connect(ctx, g.end.ID, peers); err != nil {
		return att, err
	}
	return g.Transport.Attach(ctx, g.conn, own, keys)
}

// create makes an object of the group and appends its share to the address.
func (g *Group) create(o framework.Object) error {
	made, err := g.n.Counters.Dev.Object(o, nil)
	if err != nil {
		return err
	}
	g.created = append(g.created, made)
	share, err := made.Share()
	if err != nil {
		return err
	}
	g.end.Address.Shares = append(g.end.Address.Shares, share)
	return nil
}

// swap sends address and key to all others and collects theirs, ascending. Both
// lists are as long as what has arrived, also after an error.
func (g *Group) swap(ctx context.Context, key framework.Parcel) (peers []framework.Peer, keys []framework.Parcel, err error) {
	others := g.n.Others()
	for _, r := range others {
		for _, p := range []framework.Parcel{g.end.Address, key} {
			if err := g.n.Boot.Send(ctx, r, preamble.TagSwitch, p); err != nil {
				return nil, nil, err
			}
		}
	}
	for _, r := range others {
		address, err := g.n.Boot.Recv(ctx, r, preamble.TagSwitch)
		if err != nil {
			return peers, keys, err
		}
		k, err := g.n.Boot.Recv(ctx, r, preamble.TagSwitch)
		if err != nil {
			address.Close()
			return peers, keys, err
		}
		peers = append(peers, framework.Peer{Rank: r, Address: address})
		keys = append(keys, k)
	}
	return peers, keys, nil
}

// findWindow is the last that a rank has to say about the recipe.
func (g *Group) findWindow(done *recipe.Result) error {
	for i, m := range done.Mapped {
		if m == nil {
			continue
		}
		g.Window, g.Stride = m, done.Strides[i]
		need := g.m.Bytes()
		if g.Stride != 0 {
			need += g.Stride * uint64(g.n.Boot.Size()-1)
		}
		if g.Stride != 0 && g.Stride < g.m.Bytes() || m.Bytes() < need {
			return recipe.Nonsense("a window of %d bytes with stride %d over %d parts of %d", m.Bytes(), g.Stride, g.n.Boot.Size(), g.m.Bytes())
		}
		return nil
	}
	return recipe.Nonsense("no window was mapped")
}

// Close takes the memory out of the window.
func (g *Group) Close(ctx context.Context) error {
	var first error
	keep := func(err error) {
		if err != nil && !errors.Is(err, framework.ErrPlugin) && first == nil {
			first = err
		}
	}
	for _, o := range g.created {
		keep(o.Close())
	}
	if g.done != nil {
		keep(g.done.Close(ctx))
	}
	for _, id := range []framework.ID{g.conn, g.end.ID} {
		if id != 0 {
			keep(g.Transport.Close(ctx, id))
		}
	}
	return first
}
