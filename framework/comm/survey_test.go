package comm_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/transports/shm"
)

// absent is a transport whose hardware is there or not.
type absent struct {
	framework.Transport
	live framework.Live
}

func (a absent) Describe(ctx context.Context) (framework.Description, error) {
	d, err := a.Transport.Describe(ctx)
	d.Name, d.Probe = "fast", true
	return d, err
}

func (a absent) Probe(context.Context, framework.Facts) (framework.Live, error) { return a.live, nil }

func (a absent) NewProxy(ctx context.Context) (framework.Proxy, error) {
	return a.Transport.(framework.Proxier).NewProxy(ctx)
}

// warnings collects what is logged at the default level.
type warnings struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *warnings) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

func (w *warnings) lines() []string {
	return strings.FieldsFunc(w.text.String(), func(r rune) bool { return r == '\n' })
}

// warned runs f as the ranks of several hosts, which have the transports fast and shm in
// this order, and returns what all of them warn of. live is the hardware of each rank.
func warned(t *testing.T, live []framework.Live, last bool, f func(ctx context.Context, c *comm.Communicator) error) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	w := new(warnings)
	one := func(r int, boot framework.Bootstrap) error {
		dev, err := host.Open()
		if err != nil {
			return err
		}
		defer dev.Close()
		var all []*comm.Transport
		for i := range 2 {
			inner, err := shm.New(shm.Config{}.Defaults())
			if err != nil {
				return err
			}
			if (i == 1) == last {
				inner = absent{inner, live[r]}
			}
			tr, err := comm.NewTransport(ctx, inner, "embedded")
			if err != nil {
				return err
			}
			all = append(all, tr)
		}
		log := slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
		c, err := comm.New(ctx, boot, comm.Options{Device: dev, Transports: all, Log: log})
		if err != nil {
			return err
		}
		return errors.Join(f(ctx, c), c.Close())
	}
	var ranks sync.WaitGroup
	boots := bootstrap.InProcess(len(live))
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
	return w.lines()
}

// mesh makes port channels between all ranks.
func mesh(ctx context.Context, c *comm.Communicator) error {
	m, err := c.Alloc(4096)
	if err != nil {
		return err
	}
	for round := range c.Size() {
		if peer := (round - c.Rank() + c.Size()) % c.Size(); peer != c.Rank() {
			if _, err := c.PortChannel(ctx, peer, m, m); err != nil {
				return err
			}
		}
	}
	return c.Barrier(ctx)
}

// A transport that is preferred and cannot be used is not passed over in silence: the log says
// which it is, where and why, and says it once.
func TestPassedOverIsWarnedOfOnce(t *testing.T) {
	there, down := framework.Live{Available: true}, framework.Live{Reason: "unavailable: port 1 is down"}
	surveyed := func(ctx context.Context, c *comm.Communicator) error {
		if err := c.Survey(ctx, framework.KindPort); err != nil {
			return err
		}
		return mesh(ctx, c)
	}
	for name, x := range map[string]struct {
		live  []framework.Live
		last  bool
		do    func(ctx context.Context, c *comm.Communicator) error
		lines int
		words []string
	}{
		"everywhere, surveyed": {[]framework.Live{down, down, down, down}, false, surveyed, 1, []string{"transport=fast ranks=4 first=0 ", `reason="port 1 is down"`}},
		"on one, surveyed":     {[]framework.Live{there, there, down, there}, false, surveyed, 1, []string{"transport=fast ranks=1 first=2 ", "host=", `reason="port 1 is down"`}},
		"there, surveyed":      {[]framework.Live{there, there, there, there}, false, surveyed, 0, nil},
		"not preferred":        {[]framework.Live{down, down}, true, surveyed, 0, nil},
		"everywhere":           {[]framework.Live{down, down, down, down}, false, mesh, 3, []string{"transport=fast instead=shm peer=", `reason="port 1 is down"`}},
		"on the last":          {[]framework.Live{there, there, there, down}, false, mesh, 3, []string{"transport=fast instead=shm peer=3 first=3 "}},
		"there":                {[]framework.Live{there, there}, false, mesh, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			lines := warned(t, x.live, x.last, func(ctx context.Context, c *comm.Communicator) error {
				if err := x.do(ctx, c); err != nil {
					return err
				}
				sub, err := c.Split(ctx, 0, 0)
				if err != nil {
					return err
				}
				dev, err := host.Open()
				if err != nil {
					return err
				}
				defer dev.Close()
				moved, err := c.OnDevice(ctx, dev)
				if err != nil {
					return err
				}
				return errors.Join(x.do(ctx, sub), x.do(ctx, moved), sub.Close(), moved.Close())
			})
			if len(lines) != x.lines {
				t.Errorf("%d warnings, expected %d: %q", len(lines), x.lines, lines)
			}
			for _, l := range lines {
				for _, w := range append([]string{"level=WARN", "a transport is passed over"}, x.words...) {
					if !strings.Contains(l, w) {
						t.Errorf("%q, expected it to say %q", l, w)
					}
				}
			}
		})
	}
}

// An error of ranks that nothing joins has each reason once, without the class of another.
func TestNothingInCommonIsReportedOnce(t *testing.T) {
	down := framework.Live{Reason: "unavailable: port 1 is down"}
	g := newRig(2)
	g.prober = true
	g.wrap = func(_ int, inner framework.Transport) framework.Transport { return absent{inner, down} }
	g.run(t, func(ctx context.Context, c *comm.Communicator) error {
		reach, err := c.ReachAll(ctx)
		if err != nil {
			return err
		}
		m, err := c.Alloc(4096)
		if err != nil {
			return err
		}
		_, port := c.PortChannel(ctx, 1-c.Rank(), m, m)
		for _, err := range []error{reach.Apart, port} {
			if !errors.Is(err, framework.ErrUnavailable) {
				return fmt.Errorf("%w: expected ErrUnavailable", err)
			}
			for _, once := range []string{"port 1 is down", "unavailable", "both ranks lack fast"} {
				if strings.Count(err.Error(), once) != 1 {
					return fmt.Errorf("%w: expected %q in it once", err, once)
				}
			}
		}
		return nil
	})
}
