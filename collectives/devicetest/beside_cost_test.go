package devicetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/bench/nccl"
	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

func sharing(ranks, gpus int) int { return (ranks + gpus - 1) / gpus }

// crowd is job where ranks may share a GPU. Each loads all kernels that it uses before
// any is launched.
func crowd(t *testing.T, n int, o collectives.Options, f func(ctx context.Context, r *rank) error) {
	t.Helper()
	gpus := needsGPU(t)
	o.Sharing = sharing(n, len(gpus))
	run(t, make([]string, n), setting{}, o, f)
}

func deviceOf(t *testing.T) string {
	t.Helper()
	return needsGPU(t)[0].Name
}

// The slowdown of a matrix multiplication by each call that runs beside it, on a stream of its own.
// The calls begin and end while the multiplications run.
func TestCostForAMultiplication(t *testing.T) {
	gpus := needsGPU(t)
	if len(gpus) < 2 {
		t.Skipf("needs 2 GPUs, there are %d: ranks of one GPU would take each other's multiprocessors", len(gpus))
	}
	n := min(4, len(gpus))
	sizes, all := []int64{16 << 20, 64 << 20, 256 << 20}, besides
	if os.Getenv(costsFile) == "" {
		sizes, all = []int64{64 << 10}, besides[3:6]
	}
	for _, bytes := range sizes {
		for _, with := range all {
			besideOne(t, n, bytes, with)
		}
	}
}

// beside is something that runs with the multiplication.
type beside struct {
	name   string
	make   maker
	blocks int  // at most, of one kernel; 0: as many as are fastest
	urgent bool // on a stream of the greatest priority
}

func (b beside) with() string {
	var words []string
	if b.blocks > 0 {
		words = append(words, fmt.Sprint("max_blocks ", b.blocks))
	}
	if b.urgent {
		words = append(words, "high priority")
	}
	return strings.Join(words, " and ")
}

// maker makes what enqueues a call.
type maker func(ctx context.Context, r *rank, bytes int64) (call func(s device.Stream) error, name string, free func() error, err error)

var besides = []beside{
	{"all-reduce", makeAllReduce, 0, false},
	{"all-reduce", makeAllReduce, 16, false},
	{"all-reduce", makeAllReduce, 0, true},
	{"all-reduce", makeAllReduce, 16, true},
	{"all-gather", makeAllGather, 0, false},
	{"all-reduce of NCCL", makeNCCL, 0, false},
	{"all-gather", makeAllGather, 0, true},
	{"all-reduce of NCCL", makeNCCL, 0, true},
}

func makeAllReduce(ctx context.Context, r *rank, bytes int64) (func(device.Stream) error, string, func() error, error) {
	m, err := r.memory(ctx, uint64(bytes))
	if err != nil {
		return nil, "", nil, err
	}
	p, count := pointer(m.Addr()), int(bytes/2)
	name, err := r.Choice(collectives.Request{Collective: collectives.AllReduce, Bytes: uint64(bytes), Count: uint64(count), Type: kernel.Float16, Registered: true, InPlace: true}, "")
	return func(s device.Stream) error {
		return r.AllReduce(p, p, count, kernel.Float16, kernel.Sum, &collectives.CallOptions{Stream: s})
	}, name, m.Close, errors.Join(err, r.Prepare(collectives.AllReduce, kernel.Float16))
}

// makeAllGather goes by copies alone, whatever the size.
func makeAllGather(ctx context.Context, r *rank, bytes int64) (func(device.Stream) error, string, func() error, error) {
	m, err := r.memory(ctx, uint64(bytes))
	if err != nil {
		return nil, "", nil, err
	}
	each := int(bytes/2) / r.Size()
	in, out := pointer(m.Addr()+uintptr(2*each*r.Rank())), pointer(m.Addr())
	return func(s device.Stream) error {
		return r.AllGather(in, out, each, kernel.Float16, &collectives.CallOptions{Stream: s, Algorithm: "copy"})
	}, "copy", m.Close, nil
}

func makeNCCL(ctx context.Context, r *rank, bytes int64) (func(device.Stream) error, string, func() error, error) {
	library, err := nccl.Open()
	if err != nil {
		return nil, "", nil, errNoPeer
	}
	m, err := r.memory(ctx, uint64(bytes))
	if err != nil {
		return nil, "", nil, err
	}
	peer, err := nccl.Join(ctx, library, ncclGroup{r.world}, r.dev, r.second)
	if err != nil {
		return nil, "", nil, errors.Join(err, m.Close())
	}
	p := pointer(m.Addr())
	c := &bench.Call{Collective: bench.AllReduce, In: p, Out: p, Count: int(bytes / 2), Type: kernel.Float16, Op: kernel.Sum}
	return func(device.Stream) error { return peer.Do(c, 1) }, peer.Name(), func() error { return errors.Join(peer.Close(), m.Close()) }, nil
}

var errNoPeer = errors.New("no NCCL")

// ncclGroup is what NCCL needs of a job to find its ranks.
type ncclGroup struct{ *comm.Communicator }

func (ncclGroup) Alloc(int64, bool) (bench.Memory, error) {
	return bench.Memory{}, errors.ErrUnsupported
}
func (ncclGroup) Barrier() error                       { return errors.ErrUnsupported }
func (ncclGroup) Queue() bench.Queue                   { return nil }
func (ncclGroup) Algorithms(bench.Collective) []string { return nil }
func (ncclGroup) Do(*bench.Call) error                 { return errors.ErrUnsupported }
func (ncclGroup) Chosen(*bench.Call) (string, error)   { return "", errors.ErrUnsupported }
func (g ncclGroup) AllGather(ctx context.Context, data []byte) ([][]byte, error) {
	return g.Communicator.AllGather(ctx, data)
}

// lost is what one rank measured, in microseconds for a call.
type lost struct{ alone, call, free, lost float64 }

func besideOne(t *testing.T, n int, bytes int64, with beside) {
	t.Helper()
	var call, free, alone, loss slowest
	var name string
	var once sync.Once
	o := costly()
	o.MaxBlocks = with.blocks
	crowd(t, n, o, func(ctx context.Context, r *rank) (err error) {
		priority := 0
		if with.urgent {
			_, priority = r.dev.Priorities()
		}
		if r.second, err = r.dev.NewPriorityStream(priority); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.dev.CloseStream(r.second)) }()
		p, err := newProduct(ctx, r, 8192, 8192)
		if err != nil {
			return err
		}
		defer p.close()
		enqueue, what, release, err := with.make(ctx, r, bytes)
		if errors.Is(err, errNoPeer) {
			return nil
		}
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.world.Settle(ctx, r.second), release()) }()
		if err := errors.Join(r.world.Barrier(ctx), enqueue(r.second), p.launch(r.stream), r.world.Settle(ctx, r.second), r.settle(ctx), r.world.Barrier(ctx)); err != nil {
			return err
		}
		x, err := measureBeside(ctx, r, p, enqueue)
		once.Do(func() { name = what })
		call.add(x.call)
		free.add(x.free)
		alone.add(x.alone)
		loss.add(x.lost)
		return err
	})
	if t.Failed() {
		return
	}
	if name == "" {
		t.Logf("%s: %v", with.name, errNoPeer)
		return
	}
	cost{Cost: "multiplication beside " + with.name, Beside: name, Ranks: n, Device: deviceOf(t), Bytes: bytes, With: with.with(),
		TimeUS: alone.most + loss.most, AloneUS: alone.most, CallUS: call.most, FreeUS: free.most}.keep(t)
}

// measureBeside times the calls alone, then as many multiplications as take three times
// as long, alone and beside the calls.
func measureBeside(ctx context.Context, r *rank, p *product, enqueue func(device.Stream) error) (x lost, err error) {
	one, err := newClock(r.dev)
	if err != nil {
		return x, err
	}
	defer one.close()
	other, err := newClock(r.dev)
	if err != nil {
		return x, err
	}
	defer other.close()
	repeat := func(times int, f func() error) func() error {
		return func() error {
			for range times {
				if err := f(); err != nil {
					return err
				}
			}
			return nil
		}
	}
	calls := func(times int) func() error { return repeat(times, func() error { return enqueue(r.second) }) }
	products := func(times int) func() error { return repeat(times, func() error { return p.launch(r.stream) }) }

	// How many there are is the same on all ranks.
	single, err := one.time(ctx, r, r.second, calls(often(4, 1)))
	if err != nil {
		return x, err
	}
	product, err := one.time(ctx, r, r.stream, products(often(4, 1)))
	if err != nil {
		return x, err
	}
	count, err := agreed(ctx, r, float64(often(10_000, 1))*float64(often(4, 1))/single)
	if err != nil {
		return x, err
	}
	long, err := agreed(ctx, r, 3*float64(count)*single/product)
	if err != nil {
		return x, err
	}
	count, long = min(max(count, 2), often(50, 2)), min(max(long, 2), often(200, 2))
	var all, multiplied, both, called []float64
	for range often(7, 1) {
		us, err := one.time(ctx, r, r.second, calls(count))
		if err != nil {
			return x, err
		}
		all = append(all, us/float64(count))
		if us, err = one.time(ctx, r, r.stream, products(long)); err != nil {
			return x, err
		}
		multiplied = append(multiplied, us)
		if err := r.world.Barrier(ctx); err != nil {
			return x, err
		}
		// The multiplications first: they are there when the calls begin.
		if err := errors.Join(one.start.Record(r.stream), products(long)(), one.end.Record(r.stream), other.start.Record(r.second), calls(count)(),
			other.end.Record(r.second), r.world.Settle(ctx, r.second), r.settle(ctx)); err != nil {
			return x, err
		}
		us, err = one.read()
		if err != nil {
			return x, err
		}
		both = append(both, us)
		if us, err = other.read(); err != nil {
			return x, err
		}
		called = append(called, us/float64(count))
	}
	x.call = median(called)
	whole := median(multiplied)
	x.free, x.alone, x.lost = median(all), whole/float64(count), (median(both)-whole)/float64(count)
	return x, nil
}

// agreed is the largest number of all ranks.
func agreed(ctx context.Context, r *rank, mine float64) (int, error) {
	if math.IsNaN(mine) || math.IsInf(mine, 0) || mine > 1e6 {
		mine = 1e6
	}
	all, err := r.world.AllGather(ctx, fmt.Append(nil, int(mine)))
	if err != nil {
		return 0, err
	}
	most := 0
	for _, text := range all {
		var x int
		if _, err := fmt.Sscan(string(text), &x); err != nil {
			return 0, err
		}
		most = max(most, x)
	}
	return most, nil
}
