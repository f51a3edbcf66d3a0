package comm_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/internal/leaktest"
	"github.com/mscclpp-go/mscclpp/transports/shm"
)

func TestMain(m *testing.M) {
	// Ranks wait in C, and each keeps one of Go's processors until the runtime notices, for up to 10 ms. With one for
	// each rank nobody waits for that: ranks of a real job have processes of their own.
	runtime.GOMAXPROCS(max(16, runtime.NumCPU()))
	leaktest.Main(m, goleak.Cleanup(func(code int) {
		if imageFolder != "" {
			os.RemoveAll(imageFolder)
		}
		os.Exit(code)
	}))
}

// rig is a job of several ranks in this process. Its fields may be changed before
// run.
type rig struct {
	wrap   func(rank int, t framework.Transport) framework.Transport
	adjust func(rank int, t *comm.Transport)
	boots  []*bootstrap.Local
	ids    []*ledger // by rank
	device func(rank int, d device.Device) device.Device
	fail   map[int]int   // by rank: which allocation of its device finds no memory
	prober bool          // the transports are framework.Probers
	lies   bool          // the transports do, so that they may be left with something
	limit  time.Duration // of the context that the ranks get
}

func newRig(n int) *rig {
	return &rig{boots: bootstrap.InProcess(n), ids: make([]*ledger, n), limit: 4 * time.Minute}
}

// job runs f as n ranks over the embedded shm transport and fails the test with
// every rank's error.
func job(t *testing.T, n int, f func(ctx context.Context, c *comm.Communicator) error) {
	t.Helper()
	newRig(n).run(t, f)
}

// run runs f as all ranks, closes everything, and checks that nothing is left:
// neither in the transports, nor of memory and descriptors.
func (g *rig) run(t *testing.T, f func(ctx context.Context, c *comm.Communicator) error) {
	t.Helper()
	g.each(t, func(ctx context.Context, boot *bootstrap.Local) error {
		c, closeAll, err := g.open(ctx, boot)
		if err != nil {
			return err
		}
		err = f(ctx, c)
		if cerr := c.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("close: %w", cerr)
		}
		return errors.Join(err, closeAll())
	})
}

// meeting returns what n ranks call to wait for each other, once. Where a rank ends the
// job next, the communicator's own barrier will not do: the end may overtake it.
func meeting(n int32) func(ctx context.Context) error {
	var here atomic.Int32
	all := make(chan struct{})
	return func(ctx context.Context) error {
		if here.Add(1) == n {
			close(all)
		}
		select {
		case <-all:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// each runs f as all ranks, without a communicator.
func (g *rig) each(t *testing.T, f func(ctx context.Context, boot *bootstrap.Local) error) {
	t.Helper()
	before := memfds(t)
	ctx, cancel := context.WithTimeout(t.Context(), g.limit)
	defer cancel()
	var ranks sync.WaitGroup
	for r, boot := range g.boots {
		ranks.Go(func() {
			if err := f(ctx, boot); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	ranks.Wait()
	for _, boot := range g.boots {
		boot.Close()
	}
	// Fewer may be left: the collector closes what a test before dropped on purpose.
	if after := memfds(t); (after[0] > before[0] || after[1] > before[1]) && !g.lies {
		t.Errorf("descriptors and mappings of memfds: %v before, %v after", before, after)
	}
}

// open makes one rank's communicator. The second result ends the transport, and says what is left
// in it.
func (g *rig) open(ctx context.Context, boot framework.Bootstrap) (*comm.Communicator, func() error, error) {
	dev, err := host.Open()
	if err != nil {
		return nil, nil, err
	}
	inner, err := shm.New(shm.Config{}.Defaults())
	if err != nil {
		return nil, nil, err
	}
	if g.wrap != nil {
		inner = g.wrap(boot.Rank(), inner)
	}
	ids := newLedger(inner)
	g.ids[boot.Rank()] = ids
	known := framework.Transport(ids)
	if p, ok := inner.(framework.Prober); ok && g.prober {
		known = struct {
			*ledger
			framework.Prober
		}{ids, p}
	}
	t, err := comm.NewTransport(ctx, known, "embedded")
	if err != nil {
		return nil, nil, err
	}
	if g.adjust != nil {
		g.adjust(boot.Rank(), t)
	}
	small := &smallDevice{Device: dev, nth: g.fail[boot.Rank()]}
	used := device.Device(small)
	if g.device != nil {
		used = g.device(boot.Rank(), used)
	}
	c, err := comm.New(ctx, boot, comm.Options{Device: used, Transports: []*comm.Transport{t}})
	if err != nil {
		return nil, nil, errors.Join(err, ids.check())
	}
	return c, func() error {
		err := errors.Join(t.CloseModules(), dev.Close())
		if !g.lies {
			err = errors.Join(err, ids.check())
		}
		return err
	}, nil
}

// memfds counts descriptors and mappings of shared memory.
func memfds(t testing.TB) (n [2]int) {
	t.Helper()
	links, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if to, err := os.Readlink("/proc/self/fd/" + l.Name()); err == nil && strings.HasPrefix(to, "/memfd:") {
			n[0]++
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	n[1] = strings.Count(string(maps), "/memfd:")
	return n
}

// ledger keeps account of what a transport has made and not closed.
type ledger struct {
	framework.Transport
	mu   sync.Mutex
	made map[framework.ID]string
	ends map[framework.ID]framework.ID // connection to its endpoint
	runs map[framework.Proxy]bool
}

func newLedger(t framework.Transport) *ledger {
	return &ledger{
		Transport: t, made: map[framework.ID]string{}, ends: map[framework.ID]framework.ID{}, runs: map[framework.Proxy]bool{},
	}
}

func (l *ledger) note(what string, id framework.ID, err error) {
	if err == nil && id != 0 {
		l.mu.Lock()
		l.made[id] = what
		l.mu.Unlock()
	}
}

func (l *ledger) Register(ctx context.Context, seg framework.Segment) (framework.Registration, error) {
	r, err := l.Transport.Register(ctx, seg)
	l.note("registration", r.ID, err)
	return r, err
}

func (l *ledger) Listen(ctx context.Context, cfg framework.EndpointConfig) (framework.Endpoint, error) {
	e, err := l.Transport.Listen(ctx, cfg)
	l.note(cfg.Kind.String()+" endpoint", e.ID, err)
	return e, err
}

func (l *ledger) Connect(ctx context.Context, local framework.ID, peers []framework.Peer) (framework.ID, error) {
	id, err := l.Transport.Connect(ctx, local, peers)
	l.note("connection", id, err)
	if err == nil {
		l.mu.Lock()
		l.ends[id] = local
		l.mu.Unlock()
	}
	return id, err
}

// Close refuses to work for a context that has ended, as a transport in another
// process would.
func (l *ledger) Close(ctx context.Context, id framework.ID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	delete(l.made, id)
	for conn, end := range l.ends {
		if end == id {
			delete(l.made, conn)
		}
	}
	l.mu.Unlock()
	return l.Transport.Close(ctx, id)
}

func (l *ledger) NewProxy(ctx context.Context) (framework.Proxy, error) {
	p, err := l.Transport.(framework.Proxier).NewProxy(ctx)
	if err != nil {
		return nil, err
	}
	n := &notedProxy{p, l}
	l.mu.Lock()
	l.runs[n] = true
	l.mu.Unlock()
	return n, nil
}

type notedProxy struct {
	framework.Proxy
	l *ledger
}

func (p *notedProxy) Stop(ctx context.Context) error {
	p.l.mu.Lock()
	delete(p.l.runs, p)
	p.l.mu.Unlock()
	return p.Proxy.Stop(ctx)
}

// proxies counts those that run.
func (l *ledger) proxies() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.runs)
}

func (l *ledger) check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.made) == 0 && len(l.runs) == 0 {
		return nil
	}
	return fmt.Errorf("the transport still has %v and %d proxies", l.made, len(l.runs))
}

// smallDevice has no memory left at its n-th allocation.
type smallDevice struct {
	device.Device
	nth, made int
}

func (d *smallDevice) Alloc(bytes uint64) (device.Memory, error) {
	if d.made++; d.made == d.nth {
		return nil, fmt.Errorf("%w: no memory left", framework.ErrUnavailable)
	}
	return d.Device.Alloc(bytes)
}

// count is how many things of a kind there are.
func (l *ledger) count(what string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.made {
		if w == what {
			n++
		}
	}
	return n
}
