package devicetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/observe"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/transports/cudaipc"
)

func TestMain(m *testing.M) {
	if algorithm := os.Getenv(childMode); algorithm != "" {
		os.Exit(child(algorithm))
	}
	// Ranks wait in C, and each keeps one of Go's processors until the runtime notices, for up to 10 ms. With one for
	// each rank nobody waits for that: ranks of a real job have processes of their own.
	runtime.GOMAXPROCS(max(16, runtime.NumCPU()))
	code := m.Run()
	for _, dir := range []string{imageFolder, adapterFolder} {
		if dir != "" {
			_ = os.RemoveAll(dir)
		}
	}
	os.Exit(code)
}

// imageFolder is where the kernels of emulated GPUs are; "" for others.
var imageFolder string

// machine lists the GPUs. Without a driver it points the process, once, to the
// emulated one.
var machine = sync.OnceValues(func() (gpus []topo.GPU, err error) {
	count, err := cuda.Count()
	if errors.Is(err, framework.ErrUnavailable) && os.Getenv(cuda.EnvLibrary) == "" {
		if err := emulate(); err != nil {
			return nil, err
		}
		count, err = cuda.Count()
	}
	if err != nil {
		return nil, err
	}
	for i := range count {
		d, err := cuda.Open(i)
		if err != nil {
			return nil, err
		}
		gpus = append(gpus, topo.GPU{Device: d.Info().Device, Name: d.Info().Name, PCI: d.PCI(), NUMA: -1})
		if err := d.Close(); err != nil {
			return nil, err
		}
	}
	return gpus, nil
})

// needsGPU returns what machine does. Only what is missing is a reason to skip.
func needsGPU(t *testing.T) []topo.GPU {
	t.Helper()
	gpus, err := machine()
	if errors.Is(err, framework.ErrUnavailable) {
		t.Skipf("needs a GPU, or a compiler for an emulated one: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return gpus
}

func emulate() error {
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	library, err := emulated.Library(ctx)
	if err != nil {
		return err
	}
	if imageFolder, err = os.MkdirTemp("", "mscclpp-collectives-test-*"); err != nil {
		return err
	}
	if err := emulated.Prepare(ctx, imageFolder, emulated.Source{Spec: "../image/kernels.json", Types: []string{"f16", "f32", "e4m3b15"}},
		emulated.Source{Spec: "../internal/scaling/kernels/kernels.json", Images: "../internal/scaling/image", Types: []string{"f16", "f32", "e4m3b15", "i64", "u64"}},
		emulated.Source{Spec: productSpec, Images: productTree}); err != nil {
		return err
	}
	// Little memory, because a test fills it.
	return errors.Join(os.Setenv(cuda.EnvLibrary, library), os.Setenv(emulated.EnvImages, imageFolder), os.Setenv(emulated.EnvMemory, strconv.Itoa(768<<20)))
}

// rank is one rank of a job on GPUs.
type rank struct {
	*collectives.Comm
	world     *comm.Communicator
	dev       *cuda.Device
	stream    device.Stream
	host      string // "": ranks are all on one
	limit     time.Duration
	over      string // which network is between hosts
	noDirect  bool
	nvls      bool
	window    *comm.Transport // of the switch
	transport *comm.Transport
	network   *comm.Transport // between hosts
	boot      framework.Bootstrap
	second    device.Stream       // of tests that need two
	modules   []device.Module     // of kernels that are no collectives
	patch     func([]byte) []byte // changes images before they are loaded
	observer  *observe.Rank       // nil: its calls are not observed
}

// job runs f as n ranks of this process, each on a GPU of its own: of two on one, the
// driver may make the first wait for the second when that loads its kernels.
func job(t *testing.T, n int, o collectives.Options, f func(ctx context.Context, r *rank) error) {
	t.Helper()
	hosts(t, make([]string, n), o, f)
}

// hosts is job with ranks of several hosts: at[i] is that of rank i.
func hosts(t *testing.T, at []string, o collectives.Options, f func(ctx context.Context, r *rank) error) {
	t.Helper()
	run(t, at, setting{}, o, f)
}

// bounded is hosts with a limit for each wait.
func bounded(t *testing.T, at []string, limit time.Duration, f func(ctx context.Context, r *rank) error) {
	t.Helper()
	run(t, at, setting{limit: limit}, collectives.Options{}, f)
}

// setting is what tests change.
type setting struct {
	limit time.Duration
	over  string

	nvls       bool // there is the transport of a switch
	observer   *observe.Rank
	allSignals bool                       // of adapters, in overAdapters
	noDirect   bool                       // the adapter does not reach memory of the GPU
	per        func(rank int, o *setting) // for one rank
}

func run(t *testing.T, at []string, with setting, o collectives.Options, f func(ctx context.Context, r *rank) error) {
	t.Helper()
	n := len(at)
	gpus := needsGPU(t)
	if len(gpus)*max(1, o.Sharing) < n {
		t.Skipf("needs %d GPUs, there are %d", n, len(gpus))
	}
	if o.Scratch == 0 {
		o.Scratch = 24 << 20
	}
	if o.CopyScratch == 0 {
		o.CopyScratch = 2 << 20
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var ranks sync.WaitGroup
	for i, boot := range bootstrap.InProcess(n) {
		ranks.Go(func() {
			defer boot.Close()
			own := with
			if own.per != nil {
				own.per(i, &own)
			}
			r := &rank{boot: boot, host: at[i], limit: own.limit, over: own.over, noDirect: own.noDirect, nvls: own.nvls, observer: own.observer}
			err := r.open(ctx, gpus, i, o)
			if err == nil {
				err = f(ctx, r)
			}
			if err != nil && r.world != nil {
				r.world.Abort(err)
			}
			if err := errors.Join(err, r.close()); err != nil {
				t.Errorf("rank %d: %v", i, err)
			}
		})
	}
	ranks.Wait()
}

func (r *rank) open(ctx context.Context, gpus []topo.GPU, index int, o collectives.Options) (err error) {
	if r.dev, err = cuda.Open(index % len(gpus)); err != nil {
		return err
	}
	inner, err := cudaipc.NewWith(cudaipc.Config{}.Defaults(), func(context.Context) ([]topo.GPU, error) { return gpus, nil })
	if err != nil {
		return err
	}
	offered := inner
	if r.patch != nil {
		offered = patched{inner.(*cudaipc.Transport), r.patch}
	}
	if r.transport, err = comm.NewTransport(ctx, offered, "embedded"); err != nil {
		return err
	}
	facts := framework.Facts{Host: r.host, NUMA: -1, Other: map[string]string{topo.FactPCI: r.dev.PCI()}}
	all := []*comm.Transport{r.transport}
	if r.nvls {
		if err := r.openSwitch(ctx, &facts); err != nil {
			return err
		}
		all = append(all, r.window)
	}
	if r.host != "" {
		between, err := networks(r.over, !r.noDirect, gpus)
		if err != nil {
			return err
		}
		for _, inner := range between {
			if r.network, err = comm.NewTransport(ctx, inner, "embedded"); err != nil {
				return err
			}
			all = append(all, r.network)
		}
	}
	if r.world, err = comm.New(ctx, r.boot, comm.Options{Device: r.dev, Transports: all, Facts: facts, Deadline: uint64(r.limit), Observer: r.observer}); err != nil {
		return err
	}
	if r.stream, err = r.dev.NewStream(); err != nil {
		return err
	}
	r.Comm, err = collectives.New(ctx, r.world, o)
	return err
}

// close ends the rank as programs should: what it enqueued has ended first.
func (r *rank) close() error {
	var all []error
	if r.stream != 0 {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		all = append(all, r.world.Settle(ctx, r.stream), r.dev.CloseStream(r.stream))
	}
	for _, m := range r.modules {
		all = append(all, m.Close())
	}
	if r.Comm != nil {
		all = append(all, r.Comm.Close())
	}
	if r.world != nil {
		all = append(all, r.world.Close())
	}
	if r.transport != nil {
		all = append(all, r.transport.CloseModules())
	}
	if r.window != nil {
		all = append(all, r.window.CloseModules())
	}
	if r.network != nil {
		all = append(all, r.network.CloseModules())
	}
	if r.dev != nil {
		all = append(all, r.dev.Close())
	}
	return errors.Join(all...)
}

// settle waits for the rank's stream.
func (r *rank) settle(ctx context.Context) error {
	return errors.Join(r.world.Settle(ctx, r.stream), r.world.Check())
}

// memory is exchanged memory of all ranks, where that can be.
func (r *rank) memory(ctx context.Context, bytes uint64) (*comm.Memory, error) {
	m, err := r.world.Alloc(bytes)
	if err != nil {
		return nil, err
	}
	if r.Shared() {
		_, err = r.world.Exchange(ctx, m)
	}
	return m, err
}

// patched is the transport with images that were changed.
type patched struct {
	*cudaipc.Transport
	patch func([]byte) []byte
}

func (p patched) Describe(ctx context.Context) (framework.Description, error) {
	d, err := p.Transport.Describe(ctx)
	d.Images = slices.Clone(d.Images)
	for i := range d.Images {
		d.Images[i].SHA256 = "" // of what they were before
	}
	return d, err
}

func (p patched) Image(ctx context.Context, id string) ([]byte, error) {
	code, err := p.Transport.Image(ctx, id)
	if err != nil {
		return nil, err
	}
	return p.patch(code), nil
}

// patience bounds waits for what takes seconds where nothing else runs: it is there for what never comes.
const patience = 4 * time.Minute

// until asks every few milliseconds until f says that it is so.
func until(ctx context.Context, what string, f func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s did not happen within %v", what, patience)
		case <-tick.C:
		}
	}
	return nil
}
