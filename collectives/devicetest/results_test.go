package devicetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

var reference collectivetest.Reference

type trial = collectivetest.Trial

// piece is a part of a device's memory.
type piece struct {
	dev  *cuda.Device
	base uintptr
}

func (p piece) Pointer(at int) unsafe.Pointer { return pointer(p.base + uintptr(at)) }
func (p piece) Write(b []byte, at int) error  { return p.dev.WriteAt(b, p.base+uintptr(at)) }
func (p piece) Read(b []byte, at int) error   { return p.dev.ReadAt(b, p.base+uintptr(at)) }

// rig is for trials in two halves of memory.
func (r *rank) rig(ctx context.Context, base, half uintptr) collectivetest.Rig {
	return collectivetest.Rig{
		Rank: r.Rank(), Ranks: r.Size(), Partial: !r.Shared(), In: piece{r.dev, base}, Out: piece{r.dev, base + half},
		Call:   func(t trial, in, out unsafe.Pointer) error { return t.Call(r.Comm, in, out, r.stream) },
		Settle: func() error { return r.settle(ctx) },
		Graph: func(call func() error) (launch, free func() error, err error) {
			err = errors.Join(call(), r.settle(ctx)) // loads the kernel
			if err != nil {
				return nil, nil, err
			}
			g, err := capture(r, call)
			if err != nil {
				return nil, nil, err
			}
			return func() error { return g.Launch(r.stream) }, g.Close, nil
		},
	}
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

// attempt runs a trial over registered memory, out of place if its algorithm does not work
// in place. It says whether the algorithm takes the call at all: slots may be too small.
func attempt(r *rank, rig collectivetest.Rig, x trial, seed uint64) (took bool, err error) {
	offered := func() error {
		request := x.Request(r.Size())
		request.Registered = true
		_, err := r.Choice(request, x.Algorithm)
		return err
	}
	err = offered()
	if errors.Is(err, framework.ErrUnsupported) && x.Algorithm != "" {
		x.InPlace = false
		err = offered()
	}
	if errors.Is(err, framework.ErrUnsupported) && x.Algorithm != "" {
		return false, nil
	}
	if err == nil {
		err = x.Run(rig, seed)
	}
	return true, err
}

// Every algorithm of every collective, launched and from graphs, in place and not,
// over registered memory: each says itself which calls it does not take.
func TestResults(t *testing.T) {
	const half = 8 << 20
	ranks, counts := []int{1, 2, 3, 4}, []int{1, 63, 4 << 10, 4<<10 + 4}
	if raceEnabled {
		ranks, counts = []int{3}, []int{63, 4<<10 + 4}
	}
	for _, n := range ranks {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			var mu sync.Mutex
			ran := map[string]int{}
			job(t, n, collectives.Options{Signatures: collectives.SignaturesAlways}, func(ctx context.Context, r *rank) error {
				m, err := r.memory(ctx, 2*half)
				if err != nil {
					return err
				}
				i := 0
				for _, kind := range collectivetest.Kinds() {
					for _, algorithm := range append(r.Algorithms(kind), "") {
						for k, count := range append(slices.Clone(counts), 300_000/n) {
							i++
							x := trial{Kind: kind, Algorithm: algorithm, Count: count, Type: []kernel.DataType{kernel.Float16, kernel.Float32}[(i+i/7)%2],
								Op: []kernel.Op{kernel.Sum, kernel.Sum, kernel.Avg, kernel.Max}[i%4], Root: i % n, InPlace: i/2%2 == 0, Graph: k%2 == 1}
							took, err := attempt(r, r.rig(ctx, m.Addr(), half), x, uint64(i))
							if !took {
								continue
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
			for _, want := range []string{"allreduce oneshot_ll128", "allreduce twoshot_ll128", "allgather push", "reduce direct_ll8", "broadcast push", "scatter chunk", "scatter ll128", "gather ll128"} {
				if least := len(counts) * n; ran[want] < least {
					t.Errorf("%s ran %d times, expected at least %d", want, ran[want], least)
				}
			}
			if n > 1 && (ran["allreduce copy"] == 0 || ran["alltoall copy"] == 0 || ran["reducescatter copy"] == 0) {
				t.Errorf("algorithms that ran: %v: expected those of copy engines", ran)
			}
		})
	}
}
