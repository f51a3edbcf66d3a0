package hiptest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/device/hip"
	hipemulated "github.com/mscclpp-go/mscclpp/framework/device/hip/emulated"
	"github.com/mscclpp-go/mscclpp/framework/device/native"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	machines "github.com/mscclpp-go/mscclpp/internal/gfx/gpus"
	"github.com/mscclpp-go/mscclpp/transports/ib-host"
	"github.com/mscclpp-go/mscclpp/transports/ib-nonatomic"
	"github.com/mscclpp-go/mscclpp/transports/xgmi"
)

func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(max(16, runtime.NumCPU())) // ranks wait in C
	os.Exit(m.Run())
}

// emulate has emulated GPUs of AMD's and adapters for the rest of the test, and returns the adapters' library. Memory of the GPUs
// has dma-bufs from HIP 7 on.
func emulate(t *testing.T) (gpus []topo.GPU, adapters string) {
	t.Helper()
	library, _ := hipemulated.Build(t)
	adapters = filepath.Join(t.TempDir(), "libibverbs.so")
	cc := exec.CommandContext(t.Context(), "cc", "-shared", "-fPIC", "-O1", "-DDMABUF", "-o", adapters, "../../transports/internal/verbs/testdata/fake.c")
	if text, err := cc.CombinedOutput(); errors.Is(err, exec.ErrNotFound) {
		t.Skip("needs a compiler for emulated adapters")
	} else if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	t.Setenv(hip.EnvLibrary, library)
	t.Setenv(hipemulated.EnvVersion, "7.0")
	t.Setenv(emulated.EnvImages, emulated.Images(t, hipemulated.Tree("../..", "f32")...))
	return list(t, ranks), adapters
}

// list describes the first n GPUs.
func list(t *testing.T, n int) (gpus []topo.GPU) {
	t.Helper()
	for i := range n {
		d, err := hip.Open(i)
		if err != nil {
			t.Fatal(err)
		}
		gpus = append(gpus, topo.GPU{Device: d.Info().Device, Name: d.Info().Name, PCI: d.PCI(), NUMA: -1})
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return gpus
}

const ranks = 4

// Kernels on AMD's GPUs of two hosts exchange with each other: adapters read and write the GPUs' memory by its dma-bufs, whichever
// way they signal. All of it can be recorded in graphs.
func TestAdaptersReachMemoryOfHIP(t *testing.T) {
	gpus, library := emulate(t)
	for name, adapter := range map[string]func() (framework.Transport, error){
		ibhost.Name: func() (framework.Transport, error) {
			c := ibhost.Config{}.Defaults()
			c.Library, c.GPUDirect = library, true
			return ibhost.New(c)
		},
		ibnonatomic.Name: func() (framework.Transport, error) {
			c := ibnonatomic.Config{}.Defaults()
			c.Library, c.GPUDirect = library, true
			return ibnonatomic.New(c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			var all sync.WaitGroup
			for i, boot := range bootstrap.InProcess(ranks) {
				all.Go(func() {
					defer boot.Close()
					r := &rank{}
					err := r.open(ctx, boot, gpus, i, adapter)
					if err == nil {
						err = r.trials(ctx)
					}
					if err != nil && r.world != nil {
						r.world.Abort(err)
					}
					if err := errors.Join(err, r.close(ctx)); err != nil {
						t.Errorf("rank %d: %v", i, err)
					}
				})
			}
			all.Wait()
		})
	}
}

// rank is one of two ranks of one of two hosts.
type rank struct {
	*collectives.Comm
	dev        *native.Marking
	world      *comm.Communicator
	transports []*comm.Transport
	stream     device.Stream
}

func (r *rank) open(ctx context.Context, boot framework.Bootstrap, gpus []topo.GPU, index int, adapter func() (framework.Transport, error)) (err error) {
	if r.dev, err = hip.Open(index); err != nil {
		return err
	}
	inside, err := xgmi.NewWith(xgmi.Config{}.Defaults(), func(context.Context) ([]topo.GPU, error) { return gpus, nil })
	if err != nil {
		return err
	}
	between, err := adapter()
	if err != nil {
		return err
	}
	for _, inner := range []framework.Transport{inside, between} {
		t, err := comm.NewTransport(ctx, inner, "embedded")
		if err != nil {
			return err
		}
		r.transports = append(r.transports, t)
	}
	facts := framework.Facts{Host: []string{"a", "b"}[index/2], NUMA: -1, Other: map[string]string{topo.FactKey("hip", "pci"): r.dev.PCI()}}
	if r.world, err = comm.New(ctx, boot, comm.Options{Device: r.dev, Transports: r.transports, Facts: facts}); err != nil {
		return err
	}
	if r.stream, err = r.dev.NewStream(); err != nil {
		return err
	}
	r.Comm, err = collectives.New(ctx, r.world, collectives.Options{Scratch: 5 << 20, CopyScratch: 1 << 20})
	return err
}

func (r *rank) close(ctx context.Context) error {
	var all []error
	if r.stream != 0 {
		all = append(all, r.world.Settle(ctx, r.stream), r.dev.CloseStream(r.stream))
	}
	if r.Comm != nil {
		all = append(all, r.Comm.Close())
	}
	if r.world != nil {
		all = append(all, r.world.Close())
	}
	for _, t := range r.transports {
		all = append(all, t.CloseModules())
	}
	if r.dev != nil {
		all = append(all, r.dev.Close())
	}
	return errors.Join(all...)
}

const half = 1 << 20 // of each of a rank's two buffers

// trials runs every collective by kernels that exchange between hosts, where there are such, and by what is chosen.
func (r *rank) trials(ctx context.Context) error {
	m, err := r.world.Alloc(2 * half)
	if err != nil {
		return err
	}
	settle := func() error { return errors.Join(r.world.Settle(ctx, r.stream), r.world.Check()) }
	rig := collectivetest.Rig{
		Rank: r.Rank(), Ranks: ranks, Partial: true, In: piece{r.dev, m.Addr()}, Out: piece{r.dev, m.Addr() + half},
		Call:   func(x collectivetest.Trial, in, out unsafe.Pointer) error { return x.Call(r.Comm, in, out, r.stream) },
		Settle: settle,
		Graph: func(call func() error) (launch, free func() error, err error) {
			if err := errors.Join(call(), settle()); err != nil { // loads the kernels
				return nil, nil, err
			}
			if err := r.dev.BeginCapture(r.stream, native.CaptureThreadLocal); err != nil {
				return nil, nil, err
			}
			recorded := call()
			g, err := r.dev.EndCapture(r.stream)
			if err = errors.Join(recorded, err); err != nil {
				return nil, nil, err
			}
			return func() error { return g.Launch(r.stream) }, g.Close, nil
		},
	}
	if err := errors.Join(r.Barrier(&collectives.CallOptions{Stream: r.stream}), settle()); err != nil {
		return err
	}
	direct := 0
	for i, kind := range collectivetest.Kinds() {
		algorithms := []string{""}
		if slices.Contains(r.Algorithms(kind), directly) {
			algorithms = append(algorithms, directly)
			direct++
		}
		for k, algorithm := range algorithms {
			for j, count := range []int{1, 1000, 40_000} {
				x := collectivetest.Trial{Kind: kind, Algorithm: algorithm, Count: count, Type: kernel.Float32, Op: kernel.Sum, Root: i % ranks, InPlace: j == 1, Graph: algorithm != "" && j < 2}
				if err := x.Run(rig, uint64(10*i+3*k+j)); err != nil {
					return err
				}
			}
		}
	}
	if direct < 4 {
		return fmt.Errorf("%d collectives have %s: the adapters do not reach memory of the GPUs: %s", direct, directly, strings.Join(r.Algorithms(collectives.AllReduce), " "))
	}
	return errors.Join(m.Close(), r.world.Barrier(ctx)) // the first rank that closes takes its adapter away
}

const directly = "hierarchical_direct"

// piece is a buffer in memory of a GPU.
type piece struct {
	dev  *native.Marking
	base uintptr
}

func (p piece) Pointer(at int) unsafe.Pointer {
	addr := p.base + uintptr(at)
	return *(*unsafe.Pointer)(unsafe.Pointer(&addr))
}

func (p piece) Write(b []byte, at int) error { return p.dev.WriteAt(b, p.base+uintptr(at)) }

func (p piece) Read(b []byte, at int) error { return p.dev.ReadAt(b, p.base+uintptr(at)) }

// The kernels that exchange between hosts are executed as the committed code objects as well, by an interpreter under the model of the
// caches. The emulated runtime reads its environment once, so another process runs the test.
func TestExchangesExecuteCodeObjects(t *testing.T) {
	hipemulated.Build(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for arch, adapter := range map[string]string{"gfx942": ibhost.Name, "gfx90a": ibnonatomic.Name} {
		machine, err := machines.Start(machines.Options{GPUs: ranks, Shape: machines.Shape(arch), Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		c := exec.CommandContext(t.Context(), program, "-test.run=^TestAdaptersReachMemoryOfHIP$/^"+adapter+"$")
		c.Env = append(os.Environ(), hipemulated.MachineEnv(machine.Path(), arch)...)
		text, err := c.CombinedOutput()
		ran := machine.Kernels()
		if mistakes := machine.Close(); err != nil || mistakes != nil {
			t.Fatalf("%s: %v, %v\n%s", arch, err, mistakes, text)
		}
		for _, symbol := range []string{"mscclpp_steps_exchange", "mscclpp_steps_sendrecv"} {
			if !slices.Contains(ran, symbol) {
				t.Errorf("%s: %q have run: expected %s among them", arch, ran, symbol)
			}
		}
	}
}
