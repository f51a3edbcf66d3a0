package exec

import (
	"context"
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// reach is how ranks of a plan make their memory addressable for each other.
type reach struct {
	comm  *comm.Communicator // of those that share memory; nil: no ranks have to
	ranks []int              // of the job, by rank of comm
	split bool               // comm is the executor's own
}

// newReach finds out who shares memory. Collective.
func newReach(ctx context.Context, c *comm.Communicator, p *schema.Plan, u *use) (*reach, error) {
	if !u.memory || c.Size() == 1 {
		return &reach{}, nil
	}
	found, err := c.ReachAll(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]int, c.Size())
	for r := range all {
		all[r] = r
	}
	if found.Apart == nil {
		return &reach{comm: c, ranks: all}, nil
	}
	if err := together(p, found); err != nil {
		return nil, err
	}
	color := slices.IndexFunc(found.Groups, func(g []int) bool { return slices.Contains(g, c.Rank()) })
	sub, err := c.Split(ctx, color, c.Rank())
	if err != nil {
		return nil, err
	}
	return &reach{comm: sub, ranks: found.Groups[color], split: true}, nil
}

// together says which memory of a plan its ranks do not share, the same on all of them; nil: none.
func together(p *schema.Plan, found comm.Reach) error {
	group := map[int]int{}
	for i, g := range found.Groups {
		for _, r := range g {
			group[r] = i + 1
		}
	}
	check := func(what string, a, b int) error {
		if a == b || group[a] != 0 && group[a] == group[b] {
			return nil
		}
		return fmt.Errorf("%w: plan %s: %s joins ranks %d and %d, which do not share memory: %w", framework.ErrUnavailable, p.Name, what, a, b, found.Apart)
	}
	for r := range p.GPUs {
		g := &p.GPUs[r]
		for k, peer := range g.Peers(schema.Memory) {
			if err := check(fmt.Sprintf("memory channel %d", k), r, peer); err != nil {
				return err
			}
		}
		for k, s := range g.Switches() {
			for _, peer := range s.Ranks {
				if err := check(fmt.Sprintf("switch channel %d", k), r, peer); err != nil {
					return err
				}
			}
		}
		for k, b := range g.RemoteBuffers {
			if slices.Contains(b.Access, schema.Memory) {
				if err := check(fmt.Sprintf("remote buffer %d", k), r, b.Rank); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (r *reach) close() error {
	if r == nil || !r.split {
		return nil
	}
	return r.comm.Close()
}

// exchange makes memory of all ranks addressable, and returns where that of each begins; 0: not here.
func (r *reach) exchange(ctx context.Context, c *comm.Communicator, m *comm.Memory) (*comm.Symmetric, []uint64, error) {
	at := make([]uint64, c.Size())
	at[c.Rank()] = uint64(m.Addr())
	if r.comm == nil {
		return nil, at, nil
	}
	s, err := r.comm.Exchange(ctx, m)
	if err != nil {
		return nil, nil, err
	}
	for i, rank := range r.ranks {
		at[rank] = uint64(s.Peer(i))
	}
	return s, at, nil
}
