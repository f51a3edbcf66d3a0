package devicetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/gpu/cuda"
)

var reference collectivetest.Reference

// trial is one call with everything that varies.
type trial struct {
	kind      collectives.Collective
	algorithm string
	count     int
	dtype     device.DataType
	op        device.Op
	root      int
	inPlace   bool
	graph     bool
}

func (t trial) String() string {
	return fmt.Sprintf("%v %s of %d %v %v root %d in place %v graph %v", t.kind, t.algorithm, t.count, t.dtype, t.op, t.root, t.inPlace, t.graph)
}

var kinds = []collectives.Collective{
	collectives.AllReduce, collectives.AllGather, collectives.ReduceScatter, collectives.Broadcast, collectives.Reduce,
	collectives.AllToAll, collectives.Gather, collectives.Scatter,
}

// elements returns how many elements the two buffers hold.
func (t trial) elements(ranks int) (in, out int) {
	switch t.kind {
	case collectives.AllGather, collectives.Gather:
		return t.count, t.count * ranks
	case collectives.ReduceScatter, collectives.Scatter:
		return t.count * ranks, t.count
	case collectives.AllToAll:
		return t.count * ranks, t.count * ranks
	}
	return t.count, t.count
}

// expect computes a rank's output, nil where it gets none.
func (t trial) expect(rank int, inputs [][]byte) []byte {
	one := t.count * t.dtype.Size()
	reduce := func(at int) []byte {
		parts := make([][]byte, len(inputs))
		for r := range parts {
			parts[r] = inputs[r][at : at+one]
		}
		want := make([]byte, one)
		reference.Reduce(want, parts, t.dtype, t.op, 2)
		return want
	}
	switch t.kind {
	case collectives.AllReduce:
		return reduce(0)
	case collectives.ReduceScatter:
		return reduce(rank * one)
	case collectives.Broadcast:
		return inputs[t.root]
	case collectives.AllGather:
		return bytes.Join(inputs, nil)
	case collectives.AllToAll:
		var want []byte
		for r := range inputs {
			want = append(want, inputs[r][rank*one:(rank+1)*one]...)
		}
		return want
	case collectives.Scatter:
		return inputs[t.root][rank*one : (rank+1)*one]
	}
	if rank != t.root { // of Gather and Reduce
		return nil
	}
	if t.kind == collectives.Gather {
		return bytes.Join(inputs, nil)
	}
	return reduce(0)
}

func (t trial) call(r *rank, in, out uintptr) error {
	o := &collectives.CallOptions{Algorithm: t.algorithm, Scale: 2, Stream: r.stream}
	i, u := pointer(in), pointer(out)
	switch t.kind {
	case collectives.AllReduce:
		return r.AllReduce(i, u, t.count, t.dtype, t.op, o)
	case collectives.AllGather:
		return r.AllGather(i, u, t.count, t.dtype, o)
	case collectives.ReduceScatter:
		return r.ReduceScatter(i, u, t.count, t.dtype, t.op, o)
	case collectives.Broadcast:
		return r.Broadcast(i, u, t.count, t.dtype, t.root, o)
	case collectives.Reduce:
		return r.Reduce(i, u, t.count, t.dtype, t.op, t.root, o)
	case collectives.AllToAll:
		return r.AllToAll(i, u, t.count, t.dtype, o)
	case collectives.Gather:
		return r.Gather(i, u, t.count, t.dtype, t.root, o)
	case collectives.Scatter:
		return r.Scatter(i, u, t.count, t.dtype, t.root, o)
	}
	return fmt.Errorf("no call for %v", t.kind)
}

// places returns where the two buffers are in memory.
func (t trial) places(base, half uintptr, rank, ranks int) (in, out uintptr) {
	nin, nout := t.elements(ranks)
	own := uintptr(0)
	if nin != nout && (rank == t.root || t.kind == collectives.AllGather || t.kind == collectives.ReduceScatter) {
		own = uintptr(rank * t.count * t.dtype.Size())
	}
	switch {
	case !t.inPlace:
		return base, base + half
	case nout >= nin:
		return base + half + own, base + half
	}
	return base, base + own
}

// request is the trial as selectors see it.
func (t trial) request(ranks int) collectives.Request {
	nin, nout := t.elements(ranks)
	return collectives.Request{Collective: t.kind, Bytes: uint64(max(nin, nout) * t.dtype.Size()), Count: uint64(t.count), Type: t.dtype, Op: t.op,
		Root: t.root, Registered: true, InPlace: t.inPlace}
}

const guard = 32

// run performs the trial, from a graph several times, and checks the result.
func (t trial) run(ctx context.Context, r *rank, base, half uintptr, seed uint64) error {
	ranks, size := r.Size(), t.dtype.Size()
	inputs := make([][]byte, ranks)
	nin, nout := t.elements(ranks)
	for i := range inputs {
		inputs[i] = make([]byte, nin*size)
		reference.Fill(inputs[i], t.dtype, t.op, seed, i, 0)
	}
	in, out := t.places(base, half, r.Rank(), ranks)
	enqueue := func() error { return t.call(r, in, out) }
	times := 1
	if t.graph {
		graph, err := capture(r, enqueue)
		if err != nil {
			return fmt.Errorf("%v: capture: %w", t, err)
		}
		defer graph.Close()
		enqueue, times = func() error { return graph.Launch(r.stream) }, 3
	}
	for range times {
		err := errors.Join(r.dev.Fill(base+half, 0xa5, uint64(nout*size+guard)), r.dev.WriteAt(inputs[r.Rank()], in), enqueue(), r.settle(ctx))
		if err != nil {
			return fmt.Errorf("%v: %w", t, err)
		}
		got := make([]byte, nout*size+guard)
		if err := r.dev.ReadAt(got, out); err != nil {
			return err
		}
		want := t.expect(r.Rank(), inputs)
		if n := reference.Wrong(got[:len(want)], want, t.dtype, t.op, tolerance(t, ranks)); n != 0 {
			return fmt.Errorf("%v: %d wrong elements of %d", t, n, len(want)/size)
		}
		if !t.inPlace && !bytes.Equal(got[len(want):], bytes.Repeat([]byte{0xa5}, len(got)-len(want))) {
			return fmt.Errorf("%v: written beyond the output", t)
		}
	}
	return nil
}

func tolerance(t trial, ranks int) int {
	if t.algorithm == "ring" {
		return ranks
	}
	return 1
}

func capture(r *rank, enqueue func() error) (*cuda.Graph, error) {
	if err := r.dev.BeginCapture(r.stream, cuda.CaptureThreadLocal); err != nil {
		return nil, err
	}
	err := enqueue()
	graph, ended := r.dev.EndCapture(r.stream)
	return graph, errors.Join(err, ended)
}

func pointer(a uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&a)) }

// Every algorithm of every collective, launched and from graphs, in place and not,
// over registered memory: each says itself which calls it does not take.
func TestResults(t *testing.T) {
	const half = 8 << 20
	for _, n := range []int{1, 2, 3, 4} {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			var mu sync.Mutex
			ran := map[string]int{}
			job(t, n, collectives.Options{Signatures: collectives.SignaturesAlways}, func(ctx context.Context, r *rank) error {
				m, err := r.memory(ctx, 2*half)
				if err != nil {
					return err
				}
				i := 0
				for _, kind := range kinds {
					for _, algorithm := range append(r.Algorithms(kind), "") {
						for k, count := range []int{1, 63, 4 << 10, 4<<10 + 4, 300_000 / n} {
							i++
							x := trial{kind: kind, algorithm: algorithm, count: count, dtype: []device.DataType{device.Float16, device.Float32}[(i+i/7)%2],
								op: []device.Op{device.Sum, device.Sum, device.Avg, device.Max}[i%4], root: i % n, inPlace: i/2%2 == 0, graph: k%2 == 1}
							_, err := r.Choice(x.request(n), algorithm)
							if errors.Is(err, framework.ErrUnsupported) && algorithm != "" {
								x.inPlace = false
								_, err = r.Choice(x.request(n), algorithm)
							}
							if errors.Is(err, framework.ErrUnsupported) && algorithm != "" {
								continue // as slots are too small
							}
							if err == nil {
								err = x.run(ctx, r, m.Addr(), half, uint64(i))
							}
							if err != nil {
								return fmt.Errorf("%v: %w", x, err)
							}
							mu.Lock()
							ran[kind.String()+" "+algorithm]++
							mu.Unlock()
						}
					}
				}
				return nil
			})
			for _, want := range []string{"allreduce oneshot_ll128", "allreduce twoshot_ll128", "allgather push", "reduce direct_ll8", "broadcast push", "scatter chunk"} {
				if ran[want] < 4*n {
					t.Errorf("%s ran %d times, expected at least %d", want, ran[want], 4*n)
				}
			}
			if n > 1 && (ran["allreduce copy"] == 0 || ran["alltoall copy"] == 0 || ran["reducescatter copy"] == 0) {
				t.Errorf("algorithms that ran: %v: expected those of copy engines", ran)
			}
		})
	}
}
