package loopback

import (
	"context"
	"fmt"
	"slices"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
)

// Connect implements framework.Transport.
func (t *Transport) Connect(_ context.Context, local framework.ID, peers []framework.Peer) (framework.ID, error) {
	t.mu.Lock()
	end, err := find[*endpoint](t, "connect", "endpoint", local)
	t.mu.Unlock()
	if err != nil {
		return 0, err
	}
	cfg := end.cfg
	c := &connection{endpoint: local, cfg: cfg}
	if len(peers) != len(cfg.Ranks)-1 {
		return 0, failure("connect", framework.NoPeer, framework.ErrInvalid, "%d peers: expected %d", len(peers), len(cfg.Ranks)-1)
	}
	var object *framework.Share
	for _, p := range peers {
		if !slices.Contains(cfg.Ranks, p.Rank) || p.Rank == cfg.Rank || slices.Contains(c.peers, p.Rank) {
			return 0, failure("connect", p.Rank, framework.ErrInvalid, "not another member of %v", cfg.Ranks)
		}
		kind, rank, err := decode(wireAddress, p.Address.Data)
		if err != nil {
			return 0, &framework.Error{Op: "connect", Transport: "loopback", Peer: p.Rank, Err: err}
		}
		if kind != uint64(cfg.Kind) || rank != uint64(p.Rank) {
			return 0, failure("connect", p.Rank, framework.ErrPeer, "address of a %s link of rank %d: expected %s", framework.Kind(kind), rank, cfg.Kind)
		}
		want := 0
		if cfg.Kind == framework.KindSwitch && p.Rank == cfg.Ranks[0] {
			want = 1 // the root's address brings the window
		}
		if len(p.Address.Shares) != want || want == 1 && p.Address.Shares[0].Kind != framework.ShareMemFD {
			return 0, failure("connect", p.Rank, framework.ErrPeer, "address with %d shares: expected %d", len(p.Address.Shares), want)
		}
		if want == 1 {
			object = &p.Address.Shares[0]
		}
		c.peers = append(c.peers, p.Rank)
	}
	if object != nil {
		if c.object, err = object.Dup(); err != nil {
			return 0, failure("connect", framework.NoPeer, framework.ErrUnavailable, "%v", err)
		}
	}
	return t.keep(c), nil
}

// Attach implements framework.Transport.
func (t *Transport) Attach(_ context.Context, conn, local framework.ID, keys []framework.Parcel) (framework.Attachment, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, err := find[*connection](t, "attach", "connection", conn)
	if err != nil {
		return framework.Attachment{}, err
	}
	var own *registration
	if local != 0 {
		if own, err = find[*registration](t, "attach", "registration", local); err != nil {
			return framework.Attachment{}, err
		}
	}
	if len(keys) != len(c.peers) {
		return framework.Attachment{}, failure("attach", framework.NoPeer, framework.ErrInvalid, "%d keys: expected %d", len(keys), len(c.peers))
	}
	ranges := make([][2]uint64, len(keys))
	for i, k := range keys {
		if ranges[i][0], ranges[i][1], err = t.decodeKey(k); err != nil {
			return framework.Attachment{}, &framework.Error{Op: "attach", Transport: "loopback", Peer: c.peers[i], Err: err}
		}
	}
	var a framework.Attachment
	switch c.cfg.Kind {
	case framework.KindMemory:
		a, err = attachMemory(c.peers[0], keys[0], ranges[0])
	case framework.KindPort:
		if t.byRank { // else the proxy moves the data: there is nothing to map
			a, err = attachMemory(c.peers[0], keys[0], ranges[0])
		}
	case framework.KindSwitch:
		a, err = attachSwitch(c, own, keys, ranges)
	}
	if err != nil {
		_ = a.Close()
		return framework.Attachment{}, &framework.Error{Op: "attach", Transport: "loopback", Peer: framework.NoPeer, Err: err}
	}
	return a, nil
}

func attachMemory(peer int, key framework.Parcel, r [2]uint64) (framework.Attachment, error) {
	shares, err := framework.DupShares(key.Shares)
	return framework.Attachment{
		Mappings: []framework.Mapping{{Role: framework.RolePeer, Peer: peer, Shares: shares, Offset: r[0], Bytes: r[1]}},
		Steps:    []framework.Step{{Op: framework.StepMap}},
	}, err
}

// attachSwitch has the rank bind the memory of every member, since there is no
// switch that would fan out: the window holds all of it side by side.
func attachSwitch(c *connection, own *registration, keys []framework.Parcel, ranges [][2]uint64) (framework.Attachment, error) {
	if own == nil {
		return framework.Attachment{}, fmt.Errorf("switch group without own memory: %w", framework.ErrInvalid)
	}
	if own.bytes > c.cfg.Bytes {
		return framework.Attachment{}, fmt.Errorf("memory of %d bytes in a window of %d: %w", own.bytes, c.cfg.Bytes, framework.ErrInvalid)
	}
	a := framework.Attachment{
		Mappings: []framework.Mapping{{Role: framework.RoleMulticast, Peer: -1, Bytes: c.cfg.Bytes}},
		Steps:    []framework.Step{{Op: framework.StepImport}, {Op: framework.StepAdd}, {Op: framework.StepBarrier}},
	}
	if c.object.FD != nil {
		share, err := c.object.Dup()
		if err != nil {
			return a, err
		}
		a.Mappings[0].Shares = []framework.Share{share}
	}
	for slot, rank := range c.cfg.Ranks {
		s := framework.Step{Op: framework.StepBind, Slot: slot, Offset: own.offset, Bytes: own.bytes}
		if i := slices.Index(c.peers, rank); i >= 0 {
			if ranges[i][1] != own.bytes {
				return a, fmt.Errorf("rank %d offers %d bytes, this rank %d: %w", rank, ranges[i][1], own.bytes, framework.ErrPeer)
			}
			share, err := keys[i].Shares[0].Dup()
			if err != nil {
				return a, err
			}
			s.Share, s.Offset = &share, ranges[i][0]
		}
		a.Steps = append(a.Steps, s)
	}
	a.Steps = append(a.Steps, framework.Step{Op: framework.StepBarrier}, framework.Step{Op: framework.StepMap})
	return a, nil
}

// wordAt is a counter in mapped memory.
func wordAt(m *memfd.Memory, offset uint64) *uint64 {
	return (*uint64)(unsafe.Add(m.Addr(), offset))
}
