package bootstrap

import (
	"context"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/rounds"
)

// SameHoster tells to which ranks descriptors can travel. Local and TCP implement it;
// for another Bootstrap, AllGather tries all ranks.
type SameHoster = rounds.SameHoster

// Barrier returns when all ranks have called it. Collective.
func Barrier(ctx context.Context, b framework.Bootstrap, tag framework.Tag) error {
	return rounds.Barrier(ctx, b, tag, counterOf(b))
}

// AllGatherBytes gives every rank the data of all ranks, in the order of ranks. Sizes
// may differ. Collective.
func AllGatherBytes(ctx context.Context, b framework.Bootstrap, tag framework.Tag, data []byte) ([][]byte, error) {
	return rounds.AllGatherBytes(ctx, b, tag, data, counterOf(b))
}

// AllGather gives every rank the parcels of all ranks, in the order of ranks; the
// caller closes them. Bytes travel in O(log N) rounds. Descriptors go directly between
// the ranks of one host; on other hosts those shares are missing. Collective.
func AllGather(ctx context.Context, b framework.Bootstrap, tag framework.Tag, p framework.Parcel) ([]framework.Parcel, error) {
	return rounds.AllGather(ctx, b, tag, p, counterOf(b))
}

// counterOf is what counts the rounds of collectives over b.
func counterOf(b framework.Bootstrap) func() {
	if c, ok := b.(interface{ addRound() }); ok {
		return c.addRound
	}
	return func() {}
}
