package collectives_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/gpu/host"
	"github.com/mscclpp-go/mscclpp/transports/shm"
)

// lost is a network whose adapters are down.
type lost struct{ wire }

func (t lost) Describe(ctx context.Context) (framework.Description, error) {
	d, err := t.wire.Describe(ctx)
	d.Name, d.Probe = "lost", true
	return d, err
}

func (t lost) Probe(context.Context, framework.Facts) (framework.Live, error) {
	return framework.Live{Reason: "port 1 is down"}, nil
}

// Collectives that go over another network than the one that is preferred have a job say so
// once, at the default level.
func TestLostNetworkIsToldOnce(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	at := strings.Split("aabb", "")
	var mu sync.Mutex
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(writer(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return said.Write(b)
	}), &slog.HandlerOptions{Level: slog.LevelWarn}))
	one := func(r int, boot framework.Bootstrap) error {
		dev, err := host.Open()
		if err != nil {
			return err
		}
		defer dev.Close()
		config := shm.Config{}.Defaults()
		config.Images = images
		var all []*comm.Transport
		for i := range 3 {
			inner, err := shm.New(config)
			if err != nil {
				return err
			}
			if i > 0 {
				inner = wire{portsOnly{inner}, framework.SignalAtomic}
			}
			if i == 1 {
				inner = lost{inner.(wire)}
			}
			tr, err := comm.NewTransport(ctx, inner, "embedded")
			if err != nil {
				return err
			}
			defer tr.CloseModules()
			all = append(all, tr)
		}
		world, err := comm.New(ctx, boot, comm.Options{Device: dev, Transports: all, Log: log, Facts: framework.Facts{Host: at[r], NUMA: -1}})
		if err != nil {
			return err
		}
		c, err := collectives.New(ctx, world, collectives.Options{})
		if err != nil {
			return errors.Join(err, world.Close())
		}
		err = errors.Join(c.Barrier(nil), c.Barrier(nil), carriers(world, at))
		return errors.Join(err, c.Close(), world.Close())
	}
	var ranks sync.WaitGroup
	boots := bootstrap.InProcess(len(at))
	for r, boot := range boots {
		ranks.Go(func() {
			if err := one(r, boot); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	ranks.Wait()
	for _, boot := range boots {
		boot.Close()
	}
	if text := said.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `transport=lost ranks=4 first=0 host=a reason="port 1 is down"`) {
		t.Errorf("warnings %q: expected one, that lost is passed over on 4 ranks and why", text)
	}
}

type writer func(b []byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }
