package comm

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/preamble"
)

// Split divides the communicator: ranks with the same color form a new one, in the
// order of key, then of their rank in this communicator. A rank with a negative color
// takes part in the call and gets nil. Collective. The new communicator is closed
// separately, also by CloseSplits, and must not outlive the bootstrap.
func (c *Communicator) Split(ctx context.Context, color, key int) (*Communicator, error) {
	var sub *Communicator
	err := c.setUp(ctx, opSplit, func(ctx context.Context) error {
		message := binary.LittleEndian.AppendUint64(nil, uint64(color))
		message = binary.LittleEndian.AppendUint64(message, uint64(key))
		all, err := c.rounds.Agree(ctx, opSplit, message, nil)
		if err != nil {
			return err
		}
		ranks, err := group(all, color)
		if err != nil {
			return err
		}
		c.children++
		if color < 0 {
			return nil
		}
		o := c.opts
		o.Name = fmt.Sprintf("%s/%d.%d", c.opts.Name, c.children, color)
		o.members = nil
		for _, r := range ranks {
			o.members = append(o.members, c.JobRank(r))
		}
		sub, err = New(ctx, bootstrap.Sub(c.boot, ranks, tagRange(o.Name)), o)
		if err != nil { // New has informed the group, and the other groups are not concerned
			err = &preamble.Refusal{Err: err}
		}
		if err == nil {
			c.keep(sub)
		}
		return err
	})
	return sub, err
}

// members has the number of each rank in the job, where Split has given it another; nil: they are the same.
type members []int

// JobRank returns the number that a rank of the communicator has in the job.
func (m members) JobRank(rank int) int {
	if m == nil {
		return rank
	}
	return m[rank]
}

// group lists the ranks that gave a color, in the order of their keys.
func group(all [][]byte, color int) (ranks []int, err error) {
	keys := make([]int64, len(all))
	for r, m := range all {
		if len(m) != 16 {
			return nil, &framework.Error{Op: opSplit, Peer: r, Err: fmt.Errorf("%w: %d bytes, expected 16", framework.ErrPeer, len(m))}
		}
		keys[r] = int64(binary.LittleEndian.Uint64(m[8:]))
		if int64(binary.LittleEndian.Uint64(m)) == int64(color) {
			ranks = append(ranks, r)
		}
	}
	slices.SortStableFunc(ranks, func(a, b int) int { return cmp.Compare(keys[a], keys[b]) })
	return ranks, nil
}

// tagRange tells the conversations of a communicator from those of all others that
// two ranks share.
func tagRange(name string) framework.Tag {
	h := fnv.New64a()
	h.Write([]byte(name))
	return framework.Tag(h.Sum64())
}
