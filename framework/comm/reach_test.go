package comm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// farOff puts a rank on a host of its own, as far as memory channels go.
type farOff struct {
	framework.Transport
	host string
}

func (f farOff) Listen(ctx context.Context, cfg framework.EndpointConfig) (framework.Endpoint, error) {
	cfg.Facts.Host = f.host
	return f.Transport.Listen(ctx, cfg)
}

func TestReachAll(t *testing.T) {
	job(t, 3, func(ctx context.Context, c *comm.Communicator) error {
		for range 2 {
			reach, err := c.ReachAll(ctx)
			if reach.Apart != nil || err != nil || fmt.Sprint(reach.Groups) != "[[0 1 2]]" {
				return fmt.Errorf("%+v, %v, expected that all are joined", reach, err)
			}
		}
		if n := len(c.Links()); n != 2 {
			return fmt.Errorf("%d links, expected 2", n)
		}
		return nil
	})
}

// One rank that is apart is reported to all, and a rank that is not still has channels.
func TestReachAllOfRanksApart(t *testing.T) {
	g := newRig(4)
	g.wrap = func(rank int, inner framework.Transport) framework.Transport {
		return farOff{inner, []string{"a", "a", "b", "a"}[rank]}
	}
	g.run(t, func(ctx context.Context, c *comm.Communicator) error {
		reach, err := c.ReachAll(ctx)
		if err != nil {
			return err
		}
		if fmt.Sprint(reach.Groups) != "[[0 1 3] [2]]" {
			return fmt.Errorf("groups %v, expected those of the hosts", reach.Groups)
		}
		apart := reach.Apart
		if !errors.Is(apart, framework.ErrUnavailable) || !strings.Contains(fmt.Sprint(apart), "host:b") {
			return fmt.Errorf("%v, expected ErrUnavailable with host b", apart)
		}
		all, err := c.AllGather(ctx, []byte(apart.Error()))
		if err != nil {
			return err
		}
		for r, text := range all {
			if string(text) != apart.Error() {
				return fmt.Errorf("rank %d was told %q, this one %q", r, text, apart)
			}
		}
		if c.Rank() > 1 {
			return nil
		}
		m, err := c.Alloc(4096)
		if err != nil {
			return err
		}
		ch, err := c.MemoryChannel(ctx, 1-c.Rank(), m)
		if err != nil {
			return err
		}
		return ch.Close()
	})
}
