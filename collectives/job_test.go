package collectives_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/transports/shm"
)

var images string // folder of the kernels

func TestMain(m *testing.M) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var err error
	if images, err = collectivetest.BuildHostImages(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kernels for tests:", err)
		os.Exit(1)
	}
	// Ranks wait in C, and each keeps one of Go's processors until the runtime notices, for up to 10 ms. There is one for each rank, as
	// processes of a real job have.
	runtime.GOMAXPROCS(max(16, runtime.NumCPU()))
	os.Exit(m.Run())
}

// prefault is what programs have, too: filling all scratch takes longer than most tests.
var prefault = host.Prefault(1 << 20)

// littleScratch is for tests that do not need more: those of hundreds of jobs would spend most of their time on pages of
// 32 MiB for each rank, which shm maps for each peer.
const littleScratch = 4 << 20

// open makes one rank's communicator over an embedded shm transport.
func open(ctx context.Context, boot framework.Bootstrap, o collectives.Options) (*collectives.Comm, func() error, error) {
	dev, err := host.Open(prefault)
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
	c, err := comm.New(ctx, boot, comm.Options{Device: dev, Transports: []*comm.Transport{t}})
	if err != nil {
		return nil, nil, err
	}
	x, err := collectives.New(ctx, c, o)
	if err != nil {
		return nil, nil, err
	}
	return x, func() error {
		for _, f := range []func() error{x.Close, c.Close, t.CloseModules, dev.Close} {
			if err := f(); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// job runs f as n ranks of this process and fails the test with every rank's error.
func job(t testing.TB, n int, o collectives.Options, f func(ctx context.Context, c *collectives.Comm) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
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
				c.Communicator().Abort(err)
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
