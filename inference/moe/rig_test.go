package moe_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/transports/shm"
)

var images string // folder of the kernels

func TestMain(m *testing.M) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	dev, err := host.Open()
	if err == nil {
		images, err = collectivetest.Images(ctx, collectivetest.Source("transports/shm/kernels/kernels.json"), dev.Info().Archs[0])
		dev.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kernels for tests:", err)
		os.Exit(1)
	}
	// Ranks wait in C, and each keeps one of Go's processors until the runtime notices. With one for each rank nobody
	// waits for that: ranks of a real job have processes of their own.
	runtime.GOMAXPROCS(max(24, runtime.NumCPU()))
	os.Exit(m.Run())
}

// open makes one rank's communicator over an embedded shm transport.
func open(ctx context.Context, boot framework.Bootstrap, o comm.Options) (*comm.Communicator, func() error, error) {
	dev, err := host.Open(host.Prefault(1 << 20))
	if err != nil {
		return nil, nil, err
	}
	config := shm.Config{}.Defaults()
	config.Images = images
	inner, err := shm.New(config)
	if err != nil {
		return nil, nil, err
	}
	t, err := comm.NewTransport(ctx, inner, "embedded")
	if err != nil {
		return nil, nil, err
	}
	o.Device, o.Transports = dev, []*comm.Transport{t}
	c, err := comm.New(ctx, boot, o)
	if err != nil {
		return nil, nil, err
	}
	return c, func() error {
		for _, f := range []func() error{c.Close, t.CloseModules, dev.Close} {
			if err := f(); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// job runs f as n ranks of this process and fails the test with every rank's error.
func job(t testing.TB, n int, f func(ctx context.Context, c *comm.Communicator) error) {
	t.Helper()
	jobWith(t, n, comm.Options{}, f)
}

func jobWith(t testing.TB, n int, o comm.Options, f func(ctx context.Context, c *comm.Communicator) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var ranks sync.WaitGroup
	for r, boot := range bootstrap.InProcess(n) {
		ranks.Go(func() {
			c, closeAll, err := open(ctx, boot, o)
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
				return
			}
			if err := f(ctx, c); err != nil {
				t.Errorf("rank %d: %v", r, err)
				c.Abort(err)
			}
			if err := closeAll(); err != nil {
				t.Errorf("rank %d: close: %v", r, err)
			}
			if err := boot.Close(); err != nil {
				t.Errorf("rank %d: leave: %v", r, err)
			}
		})
	}
	ranks.Wait()
}
