package comm

import (
	"context"
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/arrange"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/memory"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/negotiate"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/preamble"
)

// Arrange is Exchange with the memory of all ranks side by side: that of rank r is r times a stride behind that of rank
// 0. The stride is a multiple of 4 GiB. Each rank's own memory is there, too, beside where it was. This needs devices that
// are a [device.Arranger], memory links between all ranks, and memory in allocations that can be mapped at a chosen address, at
// offsets that are alike. If a rank lacks any of that, or comes without memory (m is nil), all ranks get
// ErrUnsupported, and the communicator remains usable. Find returns the result up to the size of the smallest part,
// unless it is private. Collective.
func Arrange(ctx context.Context, c *Communicator, m *Memory, private bool) (*Symmetric, error) {
	s := &Symmetric{comm: c, own: m, peers: make([]negotiate.Remote, c.Size())}
	s.side = arrange.New(m, s.peers, private)
	var lacks error
	err := c.setUp(ctx, arrange.Op, func(ctx context.Context) (err error) {
		lacks, err = s.side.Make(ctx, arrange.Ranks{Rank: c.Rank(), Size: c.Size(), Device: c.dev, Links: c.links, Rounds: c.rounds})
		if err == nil {
			s.own = s.side.Own
			err = s.lifetime.Begin(&c.life.Parts, s, s.shut, memory.Users(m))
		}
		if err != nil {
			c.life.Rollback(s.release)
			return err
		}
		if c.buffers.number(s); !private {
			c.buffers.add(s)
		}
		return nil
	})
	var r *preamble.Refusal
	if errors.As(err, &r) && (lacks != nil || !errors.Is(err, framework.ErrInvalid)) {
		return nil, fmt.Errorf("%w: %w", framework.ErrUnsupported, err)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Flat returns where the memory of rank 0 is and how far those of the others are behind it, of Arrange; 0 and 0: of Exchange.
func (s *Symmetric) Flat() (base uintptr, stride uint64) { return s.side.Flat() }
