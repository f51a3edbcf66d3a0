package shm

import (
	"context"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
	"github.com/mscclpp-go/mscclpp/transports/internal/fault"
	"github.com/mscclpp-go/mscclpp/transports/internal/ids"
)

// Attach returns the recipe that makes the peers' memory reachable.
func (t *Transport) Attach(ctx context.Context, conn, local framework.ID, keys []framework.Parcel) (framework.Attachment, error) {
	a, err := t.attach(ctx, conn, local, keys)
	if err != nil {
		return framework.Attachment{}, failure("attach", err)
	}
	return a, nil
}

func (t *Transport) attach(ctx context.Context, conn, local framework.ID, keys []framework.Parcel) (framework.Attachment, error) {
	var none framework.Attachment
	if err := ctx.Err(); err != nil {
		return none, err
	}
	c, err := ids.Find[*connection](&t.made, conn, "connection")
	if err != nil {
		return none, err
	}
	var own *registration
	if local != 0 {
		if own, err = ids.Find[*registration](&t.made, local, "registration"); err != nil {
			return none, err
		}
	}
	if len(keys) != len(c.peers) {
		return none, fmt.Errorf("%w: %d keys for %d peers", framework.ErrInvalid, len(keys), len(c.peers))
	}
	theirs := make([]peerMemory, len(keys))
	for i, k := range keys {
		theirs[i].key, theirs[i].share, err = openKey(k)
		if err != nil {
			return none, fault.Of(c.peers[i], err)
		}
		theirs[i].all = k.Shares
	}
	switch c.config.Kind {
	case framework.KindMemory:
		return attachMemory(c, theirs[0])
	case framework.KindPort:
		return none, nil // the proxy maps what it needs; the rank has nothing to do
	default:
		return attachSwitch(c, own, theirs)
	}
}

// peerMemory is a key, decoded, and its shares, borrowed.
type peerMemory struct {
	key
	share framework.Share // the memfd
	all   []framework.Share
}

func attachMemory(c *connection, m peerMemory) (framework.Attachment, error) {
	shares, err := framework.DupShares(m.all)
	if err != nil {
		return framework.Attachment{}, err
	}
	return framework.Attachment{
		Mappings: []framework.Mapping{{Role: framework.RolePeer, Peer: c.peers[0], Shares: shares, Offset: m.offset, Bytes: m.bytes}},
		Steps:    []framework.Step{{Op: framework.StepMap, Mapping: 0}},
	}, nil
}

// attachSwitch has the steps of a multicast group, in the order in which hardware
// wants them. The binding is emulated: every member binds the memory of
// all, each into the slot of its owner.
func attachSwitch(c *connection, own *registration, theirs []peerMemory) (framework.Attachment, error) {
	var a framework.Attachment
	if own == nil {
		return a, fmt.Errorf("%w: a switch group needs the rank's own registration", framework.ErrInvalid)
	}
	if err := fitsWindow(own.offset, own.bytes, c.config.Bytes); err != nil {
		return a, fmt.Errorf("own memory: %w", err)
	}
	window := framework.Mapping{Role: framework.RoleMulticast, Peer: -1, Bytes: c.config.Bytes}
	if !c.config.Root() {
		object, err := c.object.Dup()
		if err != nil {
			return a, err
		}
		window.Shares = []framework.Share{object}
		a.Steps = append(a.Steps, framework.Step{Op: framework.StepImport, Mapping: 0, Object: 0})
	}
	a.Mappings = []framework.Mapping{window}
	a.Steps = append(a.Steps, framework.Step{Op: framework.StepAdd, Object: 0}, framework.Step{Op: framework.StepBarrier})

	next := 0
	for slot, rank := range c.config.Ranks {
		bind := framework.Step{Op: framework.StepBind, Object: 0, Slot: slot, Offset: own.offset, Bytes: c.config.Bytes}
		if rank != c.config.Rank {
			m := theirs[next]
			next++
			if err := fitsWindow(m.offset, m.bytes, c.config.Bytes); err != nil {
				a.Close()
				return framework.Attachment{}, fault.Of(rank, fmt.Errorf("%w: key: %v", framework.ErrPeer, err))
			}
			share, err := m.share.Dup()
			if err != nil {
				a.Close()
				return framework.Attachment{}, err
			}
			bind.Share, bind.Offset = &share, m.offset
		}
		a.Steps = append(a.Steps, bind)
	}
	a.Steps = append(a.Steps, framework.Step{Op: framework.StepBarrier}, framework.Step{Op: framework.StepMap, Mapping: 0, Object: 0})
	return a, nil
}

// fitsWindow says whether memory can be bound: a window shows whole pages.
func fitsWindow(offset, bytes, window uint64) error {
	if offset%memfd.PageSize() != 0 || bytes < window {
		return fmt.Errorf("%w: %d bytes at offset %d: expected at least the window's %d bytes, at a multiple of the page of %d", framework.ErrInvalid, bytes, offset, window, memfd.PageSize())
	}
	return nil
}
