package collectives_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
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
func TestLostNetworkIsReportedOnce(t *testing.T) {
	at := strings.Split("aabb", "")
	var mu sync.Mutex
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(writer(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return said.Write(b)
	}), &slog.HandlerOptions{Level: slog.LevelWarn}))
	across := func(_ int, plain framework.Transport) framework.Transport {
		return wire{portsOnly{plain}, framework.SignalAtomic}
	}
	down := func(r int, plain framework.Transport) framework.Transport { return lost{across(r, plain).(wire)} }
	local{at: at, offers: []offer{asItIs, down, across}, log: log, together: true}.run(t, func(ctx context.Context, world *comm.Communicator) error {
		c, err := collectives.New(ctx, world, collectives.Options{})
		if err != nil {
			return err
		}
		return errors.Join(c.Barrier(nil), c.Barrier(nil), carriers(world, at), c.Close())
	})
	if text := said.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `transport=lost ranks=4 first=0 host=a reason="port 1 is down"`) {
		t.Errorf("warnings %q: expected one, that lost is passed over on 4 ranks and why", text)
	}
}

type writer func(b []byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }
