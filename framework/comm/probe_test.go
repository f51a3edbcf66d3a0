package comm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// picky is a transport that looks at its hardware first.
type picky struct {
	framework.Transport
	live   framework.Live
	probes *atomic.Int32
	listen *atomic.Int32
}

func (p *picky) Describe(ctx context.Context) (framework.Description, error) {
	d, err := p.Transport.Describe(ctx)
	d.Probe = true
	return d, err
}

func (p *picky) Probe(context.Context, framework.Facts) (framework.Live, error) {
	p.probes.Add(1)
	return p.live, nil
}

func (p *picky) Listen(ctx context.Context, cfg framework.EndpointConfig) (framework.Endpoint, error) {
	p.listen.Add(1)
	return p.Transport.Listen(ctx, cfg)
}

func TestHardwareIsProbedOnceBeforeTheFirstListen(t *testing.T) {
	for _, live := range []framework.Live{{Available: true}, {Reason: "no adapter: load the driver"}} {
		var probes, listens atomic.Int32
		g := newRig(3)
		g.prober = true
		g.wrap = func(rank int, inner framework.Transport) framework.Transport {
			return &picky{inner, live, &probes, &listens}
		}
		g.run(t, func(ctx context.Context, c *comm.Communicator) error {
			_, err := exchanged(ctx, c, 4096)
			if live.Available {
				return err
			}
			if err == nil || !strings.Contains(err.Error(), live.Reason) {
				return fmt.Errorf("%v, expected to hear %q", err, live.Reason)
			}
			if !errors.Is(err, framework.ErrUnavailable) && !errors.Is(err, framework.ErrPeer) {
				return err
			}
			return nil
		})
		if live.Available && probes.Load() != 3 || !live.Available && (probes.Load() > 3 || listens.Load() != 0) {
			t.Errorf("available %v: %d probes and %d endpoints on 3 ranks", live.Available, probes.Load(), listens.Load())
		}
	}
}
