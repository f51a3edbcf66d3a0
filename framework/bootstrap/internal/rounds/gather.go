package rounds

import (
	"context"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/failure"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/wire"
)

// SameHoster tells to which ranks descriptors can travel. Local and TCP implement it;
// for another Bootstrap, AllGather tries all ranks.
type SameHoster interface {
	SameHost(rank int) bool
}

// AllGather gives every rank the parcels of all ranks, in the order of ranks; the
// caller closes them. Bytes travel in O(log N) rounds. Descriptors go directly between
// the ranks of one host; on other hosts those shares are missing. Collective.
func AllGather(ctx context.Context, b framework.Bootstrap, tag framework.Tag, p framework.Parcel, count func()) (all []framework.Parcel, err error) {
	if err := wire.Valid(p); err != nil {
		return nil, opError("all-gather", err)
	}
	blocks, err := AllGatherBytes(ctx, b, tag, wire.AppendParcel(nil, p, true), count)
	if err != nil {
		return nil, err
	}
	all = make([]framework.Parcel, b.Size())
	defer func() {
		if err != nil {
			for _, p := range all {
				_ = p.Close()
			}
			all = nil
		}
	}()
	awaited := make([][]int, b.Size())
	for r := range blocks {
		if all[r], awaited[r], err = wire.DecodeParcel(blocks[r]); err != nil {
			return all, opError("all-gather", failure.Named(r, err))
		}
	}
	me := b.Rank()
	if all[me].Shares, err = framework.DupShares(p.Shares); err != nil {
		return all, opError("all-gather", err)
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := make(chan error, 1)
	go func() { sent <- handOut(ctx, b, tag, p) }()
	err = collect(ctx, b, tag, all, awaited)
	if err != nil {
		cancel()
	}
	if failed := <-sent; err == nil {
		err = failed
	}
	if err != nil {
		return all, opError("all-gather", err)
	}
	return all, nil
}

// handOut sends the descriptors of p to all other ranks of this host. The nearest rank above comes
// first, so that not all ranks start with rank 0.
func handOut(ctx context.Context, b framework.Bootstrap, tag framework.Tag, p framework.Parcel) error {
	var descriptors []framework.Share
	for _, s := range p.Shares {
		if s.FD != nil {
			descriptors = append(descriptors, framework.Share{Kind: s.Kind, FD: s.FD})
		}
	}
	if len(descriptors) == 0 {
		return nil
	}
	for i := 1; i < b.Size(); i++ {
		to := (b.Rank() + i) % b.Size()
		if !SameHost(b, to) {
			continue
		}
		if err := b.Send(ctx, to, tag, framework.Parcel{Shares: descriptors}); err != nil {
			return failure.Named(to, err)
		}
	}
	return nil
}

// collect receives the descriptors of all other ranks of this host, and removes
// the shares of those that stay away.
func collect(ctx context.Context, b framework.Bootstrap, tag framework.Tag, all []framework.Parcel, awaited [][]int) error {
	for from := range all {
		if from == b.Rank() || len(awaited[from]) == 0 {
			continue
		}
		var got framework.Parcel
		if SameHost(b, from) {
			var err error
			if got, err = b.Recv(ctx, from, tag); err != nil {
				return failure.Named(from, err)
			}
		}
		switch len(got.Shares) {
		case len(awaited[from]):
			for i, at := range awaited[from] {
				all[from].Shares[at].FD = got.Shares[i].FD
			}
		case 0:
			all[from].Shares = without(all[from].Shares, awaited[from])
		default:
			_ = got.Close()
			return failure.Named(from, fmt.Errorf("%w: %d descriptors arrived, expected %d", framework.ErrPeer, len(got.Shares), len(awaited[from])))
		}
	}
	return nil
}

func without(shares []framework.Share, dropped []int) []framework.Share {
	kept := shares[:0]
	for i, s := range shares {
		if len(dropped) > 0 && dropped[0] == i {
			dropped = dropped[1:]
			continue
		}
		kept = append(kept, s)
	}
	return kept
}

// SameHost reports whether descriptors of b travel to a rank.
func SameHost(b framework.Bootstrap, rank int) bool {
	if h, ok := b.(SameHoster); ok {
		return h.SameHost(rank)
	}
	return true
}
