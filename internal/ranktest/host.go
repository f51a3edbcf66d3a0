// Package ranktest runs several ranks of one process, for tests of what runs over any transport.
package ranktest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/transports/shm"
	"github.com/mscclpp-go/mscclpp/transports/tcp"
)

const patience = 3 * time.Minute

var images string // folder of the kernels for this processor

// buildImages builds the kernels for the host, unless this is the process of a rank on a GPU.
func buildImages(ctx context.Context) (err error) {
	if os.Getenv(noImages) == "" {
		images, err = collectivetest.BuildHostImages(ctx)
	}
	return err
}

// Main builds kernels for this processor, and runs the tests.
func Main(m *testing.M) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if err := buildImages(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kernels for tests:", err)
		os.Exit(1)
	}
	// Ranks wait in C, and each keeps one of Go's processors until the runtime notices, for up to 10 ms. There is one for each rank, as
	// processes of a real job have.
	runtime.GOMAXPROCS(max(24, runtime.NumCPU()))
	os.Exit(m.Run())
}

// open makes one rank's communicator over an embedded shm transport, and others behind it.
func open(ctx context.Context, boot *bootstrap.Local, o comm.Options, more ...framework.Transport) (*comm.Communicator, func() error, error) {
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
	for _, inner := range more {
		other, err := comm.NewTransport(ctx, inner, "embedded")
		if err != nil {
			return nil, nil, err
		}
		o.Transports = append(o.Transports, other)
	}
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

// Job runs f as n ranks, and fails the test with every rank's error.
func Job(t testing.TB, n int, f func(ctx context.Context, c *comm.Communicator) error) {
	t.Helper()
	JobWith(t, n, comm.Options{}, f)
}

// JobWith is Job with options of the communicators.
func JobWith(t testing.TB, n int, o comm.Options, f func(ctx context.Context, c *comm.Communicator) error) {
	t.Helper()
	ranks(t, n, func(ctx context.Context, r int, boot *bootstrap.Local) error {
		c, closeAll, err := open(ctx, boot, o)
		if err != nil {
			return err
		}
		if err = f(ctx, c); err != nil {
			c.Abort(err)
		}
		return errors.Join(err, closeAll(), boot.Close())
	})
}

// OverHosts is JobWith for ranks that say they are on several hosts, one name for each, with sockets between them. Drive says whether the rank or a plugin drives these, as
// the configuration of tcp does: "rank", or "plugin" for a proxy like that of an adapter.
func OverHosts(t testing.TB, hosts []string, drive string, o comm.Options, f func(ctx context.Context, c *comm.Communicator) error) {
	t.Helper()
	ranks(t, len(hosts), func(ctx context.Context, r int, boot *bootstrap.Local) error {
		config := tcp.Config{}.Defaults()
		config.Drive = drive
		sockets, err := tcp.New(config)
		if err != nil {
			return err
		}
		mine := o
		mine.Facts = framework.Facts{Host: hosts[r], NUMA: -1}
		c, closeAll, err := open(ctx, boot, mine, sockets)
		if err != nil {
			return err
		}
		if err = f(ctx, c); err != nil {
			c.Abort(err)
		}
		return errors.Join(err, closeAll(), boot.Close())
	})
}

func ranks(t testing.TB, n int, f func(ctx context.Context, r int, boot *bootstrap.Local) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all sync.WaitGroup
	for r, boot := range bootstrap.InProcess(n) {
		all.Go(func() {
			if err := f(ctx, r, boot); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	all.Wait()
}

// Broken runs f as n ranks, which are to fail, and returns the errors of ranks. All have what setup makes before f begins.
func Broken[T any](t *testing.T, n int, setup func(ctx context.Context, c *comm.Communicator) (T, error), f func(ctx context.Context, c *comm.Communicator, x T) error) []error {
	t.Helper()
	errs := make([]error, n)
	var ready sync.WaitGroup
	ready.Add(n)
	ranks(t, n, func(ctx context.Context, r int, boot *bootstrap.Local) error {
		defer boot.Close()
		c, closeAll, err := open(ctx, boot, comm.Options{})
		if err != nil {
			ready.Done()
			return err
		}
		x, err := setup(ctx, c)
		ready.Done()
		ready.Wait()
		if err == nil {
			errs[r] = f(ctx, c, x)
		}
		_ = closeAll() // of a job that has failed
		return err
	})
	return errs
}

// Aligned is memory of the host that begins at a multiple of 256.
func Aligned(n int) collectivetest.Bytes {
	b := make([]byte, n+256)
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & 255
	return b[skip : skip+n]
}
