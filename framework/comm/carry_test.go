package comm_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/loopback"
)

// others are all ranks but this one.
func others(c *comm.Communicator) (ranks []int) {
	for r := range c.Size() {
		if r != c.Rank() {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// carried asks for port channels of kernels, and that all ranks get the same, and
// are as good as before.
func carried(ctx context.Context, c *comm.Communicator, peers []int, m *comm.Memory, unwilling error) (apart error, err error) {
	if apart, err = c.ReachPorts(ctx, peers, m, unwilling); err != nil {
		return nil, err
	}
	all, err := c.AllGather(ctx, []byte(fmt.Sprint(apart)))
	if err != nil {
		return nil, err
	}
	for r, text := range all {
		if string(text) != fmt.Sprint(apart) {
			return nil, fmt.Errorf("rank %d was told %q, expected as here %v", r, text, apart)
		}
	}
	return apart, nil
}

func TestReachPorts(t *testing.T) {
	job(t, 3, func(ctx context.Context, c *comm.Communicator) error {
		m, err := c.Alloc(4096)
		if err != nil {
			return err
		}
		// No rank makes a link while one has no use for any.
		var mine error
		if c.Rank() == 1 {
			mine = fmt.Errorf("%w: no kernels here", framework.ErrUnsupported)
		}
		apart, err := carried(ctx, c, others(c), m, mine)
		if err != nil || !errors.Is(apart, framework.ErrUnsupported) || framework.PeerOf(apart) != 1 || !strings.Contains(apart.Error(), "no kernels here") {
			return fmt.Errorf("%v, %v: expected what rank 1 said", apart, err)
		}
		if links := c.Links(); len(links) != 0 {
			return fmt.Errorf("links %v: expected none", links)
		}
		// Ranks 0 and 2 alone are peers.
		peers := map[int][]int{0: {2}, 2: {0}}[c.Rank()]
		for range 2 {
			if apart, err := carried(ctx, c, peers, m, nil); apart != nil || err != nil {
				return fmt.Errorf("%v, %v: expected that memory of the host goes over loopback", apart, err)
			}
		}
		if n := len(c.Links()); n != len(peers) {
			return fmt.Errorf("%d links: expected %d", n, len(peers))
		}
		if len(peers) == 0 {
			return nil
		}
		ch, err := c.PortChannel(ctx, peers[0], m, m)
		if err != nil {
			return err
		}
		return errors.Join(ch.Signal(), ch.Wait(ctx), ch.Close())
	})
}

// A rank without memory, and ranks that no transport joins, are reported to all.
func TestReachPortsOfRanksApart(t *testing.T) {
	g := newRig(3)
	g.wrap = func(rank int, inner framework.Transport) framework.Transport {
		return farOff{inner, []string{"a", "a", "b"}[rank]}
	}
	g.run(t, func(ctx context.Context, c *comm.Communicator) error {
		m, err := c.Alloc(4096)
		if err != nil {
			return err
		}
		apart, err := carried(ctx, c, others(c), m, nil)
		if err != nil || !errors.Is(apart, framework.ErrUnavailable) || !strings.Contains(fmt.Sprint(apart), "host:b") {
			return fmt.Errorf("%v, %v: expected ErrUnavailable with host b", apart, err)
		}
		none := m
		if c.Rank() == 2 {
			none = nil
		}
		apart, err = carried(ctx, c, nil, none, nil)
		if err != nil || framework.PeerOf(apart) != 2 || !strings.Contains(fmt.Sprint(apart), "no memory") {
			return fmt.Errorf("%v, %v: expected that rank 2 has no memory", apart, err)
		}
		apart, err = carried(ctx, c, nil, m, nil)
		return errors.Join(apart, err)
	})
}

// Memory of GPUs goes over adapters that take it. Where one does not, or there is none
// that would, nothing ends, which PortChannel would have done.
func TestReachPortsFromGPUs(t *testing.T) {
	needsEmulated(t)
	refused := errors.New("the adapter is out of regions")
	for name, x := range map[string]struct {
		transport func() framework.Transport
		want      []string
	}{
		"raised":     {adapters()["raised"], nil},
		"forwarded":  {adapters()["forwarded"], nil},
		"refused":    {func() framework.Transport { return &adapter{side: loopback.New(), refuse: refused} }, []string{"out of regions"}},
		"none":       {func() framework.Transport { return loopback.New() }, []string{"no transport", "dma-buf"}},
		"copyengine": {func() framework.Transport { return copying{loopback.NewByRank()} }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			cudaJobOver(t, 2, x.transport, func(ctx context.Context, p *player) error {
				m, err := p.Alloc(4096)
				if err != nil {
					return err
				}
				apart, err := carried(ctx, p.Communicator, others(p.Communicator), m, nil)
				if err != nil || (apart == nil) != (x.want == nil) {
					return fmt.Errorf("%v, %v: expected %v", apart, err, x.want)
				}
				if slices.ContainsFunc(x.want, func(s string) bool { return !strings.Contains(apart.Error(), s) }) {
					return fmt.Errorf("%w: expected it to say %v", apart, x.want)
				}
				return errors.Join(m.Close(), p.Barrier(ctx))
			})
		})
	}
}

// copying says that it takes dma-bufs, and has ranks move the data.
type copying struct{ framework.Transport }

func (c copying) Describe(ctx context.Context) (framework.Description, error) {
	d, err := c.Transport.Describe(ctx)
	d.Needs = append(d.Needs, framework.NeedDMABuf)
	return d, err
}
