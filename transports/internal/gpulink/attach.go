package gpulink

import (
	"context"
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/transports/internal/fault"
	"github.com/mscclpp-go/mscclpp/transports/internal/ids"
)

// Attach returns the recipe that makes the memory behind a key reachable: one
// mapping, of the peer, and the step that maps it. It is the same for both kinds of
// channel. Over a memory channel kernels load and store there; over a port the
// rank's copy engine writes there, data and semaphores alike.
func (t *Transport) Attach(ctx context.Context, conn, local framework.ID, keys []framework.Parcel) (framework.Attachment, error) {
	a, err := t.attach(ctx, conn, local, keys)
	if err != nil {
		return framework.Attachment{}, t.failure("attach", err)
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
	if local != 0 {
		if _, err := ids.Find[*registration](&t.made, local, "registration"); err != nil {
			return none, err
		}
	}
	if len(keys) != 1 {
		return none, fmt.Errorf("%w: %d keys for 1 peer", framework.ErrInvalid, len(keys))
	}
	k, err := t.openKey(keys[0], c.remote())
	if err != nil {
		return none, fault.Of(c.peer, err)
	}
	chosen, why, err := t.choose(c, keys[0].Shares)
	if err != nil {
		return none, fault.Of(c.peer, err)
	}
	shares, err := framework.DupShares(chosen)
	if err != nil {
		return none, err
	}
	t.log.Debug("attached", "kind", c.config.Kind.String(), "rank", c.config.Rank, "peer", c.peer, "bytes", k.bytes, "shares", kindsOf(shares), "reason", why)
	return framework.Attachment{
		Mappings: []framework.Mapping{{Role: framework.RolePeer, Peer: c.peer, Shares: shares, Offset: k.offset, Bytes: k.bytes}},
		Steps:    []framework.Step{{Op: framework.StepMap, Mapping: 0}},
	}, nil
}

// choose picks the shares by which the rank is to reach the peer's memory, best
// first, and says why these. The shares are borrowed.
func (t *Transport) choose(c *connection, offered []framework.Share) ([]framework.Share, string, error) {
	has := func(k framework.ShareKind) bool { return slices.Contains(kindsOf(offered), k) }
	one := c.far.instance == c.own.instance
	var want []framework.ShareKind
	var why string
	switch {
	case c.remote():
		want, why = t.ordered(framework.ShareFabric), "another host of the "+t.maker.Link+" network"
	case has(framework.ShareMemFD):
		// Every GPU reaches memory of the host, whatever lies between them.
		want, why = t.ordered(framework.ShareMemFD), "memory of the host, registered with both GPUs"
	case c.relation.barrier != "":
		return nil, "", fmt.Errorf("%w: %s cannot address the memory of %s: %s: expected %s",
			framework.ErrUnavailable, c.own.gpu, c.far.gpu, c.relation.barrier, t.maker.HostFixes)
	case one:
		want = t.ordered(framework.ShareVMM, framework.ShareFabric) // no process opens its own legacy handles
		why = "the same process, path " + c.relation.path
	default:
		want = t.ordered(framework.ShareVMM, framework.ShareFabric, framework.ShareLegacyIPC)
		why = "another process of this host, path " + c.relation.path
	}
	// The share itself identifies the own process: the device that maps it recognizes it. Two of
	// these transports in one process do not know of each other, so it stays last.
	if one {
		want = append([]framework.ShareKind{framework.ShareLocal}, want...)
	} else if !c.remote() {
		want = append(want, framework.ShareLocal)
	}
	var chosen []framework.Share
	for _, k := range want {
		if i := slices.IndexFunc(offered, func(s framework.Share) bool { return s.Kind == k }); i >= 0 {
			chosen = append(chosen, offered[i])
		}
	}
	if len(chosen) == 0 || !one && !slices.ContainsFunc(chosen, func(s framework.Share) bool { return s.Kind != framework.ShareLocal }) {
		advice := "the option shares may leave out what is needed"
		if c.remote() {
			advice = "memory for that is made with gpu_memory: fabric, if the driver has it"
		}
		return nil, "", fmt.Errorf("%w: memory with shares %v, reached from %s: expected one of %v; %s",
			framework.ErrUnavailable, kindsOf(offered), why, want, advice)
	}
	return chosen, why, nil
}

// ordered are the kinds among some that the options use, in their order.
func (t *Transport) ordered(some ...framework.ShareKind) []framework.ShareKind {
	some = slices.DeleteFunc(some, func(k framework.ShareKind) bool { return !t.config.uses(k) })
	slices.SortStableFunc(some, func(a, b framework.ShareKind) int { return t.config.order(a) - t.config.order(b) })
	return some
}
