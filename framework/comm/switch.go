package comm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// switchTail is the end of a switch channel's memory, which holds the counter of
// its barrier.
const switchTail = 128

// SwitchChannel is a window over the memory of all ranks: a store to it reaches all,
// and a load can reduce over all.
type SwitchChannel struct {
	lifetime
	handle kernel.SwitchChannelHandle
	number int // of the counter of what is expected
	group  *switchGroup
}

// SwitchChannel binds m, the rank's own part, into a window over the memory of all
// ranks. Collective. All parts have the same size; the last 128 bytes of each belong to
// the channel and must be zero. ErrUnsupported: no transport with switch channels
// reaches all ranks.
func (c *Communicator) SwitchChannel(ctx context.Context, m *Memory) (*SwitchChannel, error) {
	ch := &SwitchChannel{}
	err := c.setUp(ctx, opSwitchChannel, func(ctx context.Context) error {
		g := &switchGroup{c: c, m: m}
		err := g.gather(ctx)
		if err == nil {
			if err = g.join(ctx); err == nil {
				err = ch.open(c, g)
			}
		}
		if err != nil {
			c.undo(g.close)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return ch, nil
}

func (ch *SwitchChannel) open(c *Communicator, g *switchGroup) error {
	number, err := c.control.semaphores.take(framework.NoPeer)
	if err != nil {
		return err
	}
	c.control.clear(number)
	ch.number, ch.group = number, g
	ch.handle = kernel.SwitchChannelHandle{
		Local:    g.m.Addr(),
		Window:   g.window.Addr(),
		Bytes:    g.m.Bytes() - switchTail,
		Stride:   g.stride,
		Flag:     g.m.Bytes() - switchTail,
		Expected: c.control.expectedAddr(number),
		Control:  c.control.deviceAddr,
		Rank:     uint32(c.Rank()),
		Ranks:    uint32(c.Size()),
	}
	if err := ch.begin(c, ch, g.m); err != nil {
		c.control.semaphores.cancel(number)
		return err
	}
	return nil
}

// switchGroup is what lies under a switch channel.
type switchGroup struct {
	c       *Communicator
	t       *Transport
	m       *Memory
	end     framework.Endpoint
	conn    framework.ID
	created []device.Object
	done    *performed
	window  device.Memory
	stride  uint64
}

// switchCall is what ranks tell each other first.
type switchCall struct {
	Bytes  uint64  `json:"bytes"`
	Offers []offer `json:"offers"`
}

// gather finds a transport whose switch reaches all ranks.
func (g *switchGroup) gather(ctx context.Context) error {
	mine := g.m.usable()
	if mine == nil && g.m.Bytes() <= switchTail {
		mine = fmt.Errorf("%w: %d bytes, expected more than %d", framework.ErrInvalid, g.m.Bytes(), switchTail)
	}
	var ends map[string]framework.Endpoint
	var call switchCall
	chosen := ""
	defer func() { g.c.closeEndpoints(ends, chosen) }()
	if mine == nil {
		all := make([]int, g.c.Size())
		for r := range all {
			all[r] = r
		}
		call.Bytes = g.m.Bytes()
		var err error
		if ends, call.Offers, err = g.c.listen(ctx, framework.KindSwitch, all, call.Bytes); err != nil {
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
	said, err := g.c.agree(ctx, opSwitchChannel, data, mine)
	if err != nil {
		return err
	}
	calls := make([]switchCall, len(said))
	for r, b := range said {
		if err := json.Unmarshal(b, &calls[r]); err != nil {
			return &framework.Error{Op: opSwitchChannel, Peer: r, Err: fmt.Errorf("%w: offers: %v", framework.ErrPeer, err)}
		}
		if calls[r].Bytes != call.Bytes {
			return &refusal{&framework.Error{Op: opSwitchChannel, Peer: r, Err: fmt.Errorf(
				"%w: its part has %d bytes, expected %d as here", framework.ErrInvalid, calls[r].Bytes, call.Bytes)}}
		}
	}
	if chosen = chooseForAll(calls); chosen == "" {
		return &refusal{&framework.Error{Op: opSwitchChannel, Peer: framework.NoPeer, Err: fmt.Errorf(
			"%w: no transport has a switch that reaches all ranks: this one offers %s", framework.ErrUnsupported, describe(call.Offers))}}
	}
	g.t, g.end = g.c.transport(chosen), ends[chosen]
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

// join makes the window. From here on all ranks depend on each other.
func (g *switchGroup) join(ctx context.Context) error {
	defer func() { g.end.Address.Close() }() // as it is then: create adds to it
	for _, o := range g.end.Create {
		if err := g.create(o); err != nil {
			return err
		}
	}
	reg, err := g.m.registration(ctx, g.t, g.c.dev.Info().Device)
	if err != nil {
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
	if g.conn, err = g.t.Connect(ctx, g.end.ID, peers); err != nil {
		return err
	}
	att, err := g.t.Attach(ctx, g.conn, reg.ID, keys)
	if err != nil {
		return err
	}
	created := g.created
	g.created = nil // now in the hands of perform, also after an error
	g.done, err = g.c.perform(ctx, att, stepsContext{
		transport: g.t, members: g.c.others(), own: g.m, created: created,
		object: framework.Object{Kind: framework.ObjectMulticast, Bytes: g.m.Bytes(), Ranks: g.c.Size()},
	})
	if err != nil {
		return err
	}
	return g.findWindow()
}

// create makes an object of the group and appends its share to the address.
func (g *switchGroup) create(o framework.Object) error {
	made, err := g.c.dev.Object(o, nil)
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
func (g *switchGroup) swap(ctx context.Context, key framework.Parcel) (peers []framework.Peer, keys []framework.Parcel, err error) {
	others := g.c.others()
	for _, r := range others {
		for _, p := range []framework.Parcel{g.end.Address, key} {
			if err := g.c.boot.Send(ctx, r, tagSwitch, p); err != nil {
				return nil, nil, err
			}
		}
	}
	for _, r := range others {
		address, err := g.c.boot.Recv(ctx, r, tagSwitch)
		if err != nil {
			return peers, keys, err
		}
		k, err := g.c.boot.Recv(ctx, r, tagSwitch)
		if err != nil {
			address.Close()
			return peers, keys, err
		}
		peers = append(peers, framework.Peer{Rank: r, Address: address})
		keys = append(keys, k)
	}
	return peers, keys, nil
}

func (g *switchGroup) findWindow() error {
	for i, m := range g.done.mapped {
		if m == nil {
			continue
		}
		g.window, g.stride = m, g.done.strides[i]
		need := g.m.Bytes()
		if g.stride != 0 {
			need += g.stride * uint64(g.c.Size()-1)
		}
		if g.stride != 0 && g.stride < g.m.Bytes() || m.Bytes() < need {
			return nonsense("a window of %d bytes with stride %d over %d parts of %d", m.Bytes(), g.stride, g.c.Size(), g.m.Bytes())
		}
		return nil
	}
	return nonsense("no window was mapped")
}

func (g *switchGroup) close(ctx context.Context) error {
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
		keep(g.done.close(ctx))
	}
	for _, id := range []framework.ID{g.conn, g.end.ID} {
		if id != 0 {
			keep(g.t.Close(ctx, id))
		}
	}
	return first
}

// Kind implements framework.Channel.
func (ch *SwitchChannel) Kind() framework.Kind { return framework.KindSwitch }

// Handle returns what a kernel takes.
func (ch *SwitchChannel) Handle() kernel.SwitchChannelHandle { return ch.handle }

// AppendBinary implements framework.Channel.
func (ch *SwitchChannel) AppendBinary(b []byte) ([]byte, error) {
	return appendHandle(b, &ch.handle), nil
}

// Close takes the rank's memory out of the window.
func (ch *SwitchChannel) Close() error { return ch.shutNow(ch) }

func (ch *SwitchChannel) shut(ctx context.Context) error {
	return ch.end(ch, func() error {
		ch.comm.control.semaphores.cancel(ch.number)
		return ch.group.close(ctx)
	})
}

var _ framework.Channel = (*SwitchChannel)(nil)
