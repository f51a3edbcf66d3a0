package devicetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Every algorithm on messages of more than 4 GiB: no count of bytes may have 32 bits. Samples of
// the results are compared. It needs two GPUs with 40 GiB each.
func TestBeyondFourGiB(t *testing.T) {
	const ranks, element = 2, 4
	const count = (4<<30 + 1<<20 + 16) / element // of one rank
	needsGPU(t)
	if imageFolder != "" {
		t.Skip("needs GPUs with 40 GiB")
	}
	value := func(rank, at int) float32 { // an integer, so that sums are exact
		return float32((uint64(at+1)*0x9e3779b97f4a7c15+uint64(rank)*0xd1b54a32d192ed03)>>44 | 1)
	}
	sum := func(at int) float32 { return value(0, at) + value(1, at) }
	kinds := []struct {
		kind collectives.Collective
		call func(r *rank, in, out unsafe.Pointer, o *collectives.CallOptions) error
		out  int // elements
		want func(rank, at int) float32
	}{
		{collectives.AllReduce, func(r *rank, in, out unsafe.Pointer, o *collectives.CallOptions) error {
			return r.AllReduce(in, out, count, kernel.Float32, kernel.Sum, o)
		}, count, func(_, at int) float32 { return sum(at) }},
		{collectives.Reduce, func(r *rank, in, out unsafe.Pointer, o *collectives.CallOptions) error {
			return r.Reduce(in, out, count, kernel.Float32, kernel.Sum, 1, o)
		}, count, func(_, at int) float32 { return sum(at) }},
		{collectives.ReduceScatter, func(r *rank, in, out unsafe.Pointer, o *collectives.CallOptions) error {
			return r.ReduceScatter(in, out, count, kernel.Float32, kernel.Sum, o)
		}, count, func(rank, at int) float32 { return sum(rank*count + at) }},
		{collectives.AllGather, func(r *rank, in, out unsafe.Pointer, o *collectives.CallOptions) error {
			return r.AllGather(in, out, count, kernel.Float32, o)
		}, 2 * count, func(_, at int) float32 { return value(at/count, at%count) }},
		{collectives.AllToAll, func(r *rank, in, out unsafe.Pointer, o *collectives.CallOptions) error {
			return r.AllToAll(in, out, count, kernel.Float32, o)
		}, 2 * count, func(rank, at int) float32 { return value(at/count, rank*count+at%count) }},
		{collectives.Broadcast, func(r *rank, in, out unsafe.Pointer, o *collectives.CallOptions) error {
			return r.Broadcast(in, out, count, kernel.Float32, 1, o)
		}, count, func(_, at int) float32 { return value(1, at) }},
		{collectives.SendRecv, func(r *rank, in, out unsafe.Pointer, o *collectives.CallOptions) error {
			r.GroupStart()
			return errors.Join(r.Send(in, count, kernel.Float32, 1-r.Rank(), o), r.Recv(out, count, kernel.Float32, 1-r.Rank(), o), r.GroupEnd())
		}, count, func(rank, at int) float32 { return value(1-rank, at) }},
	}
	job(t, ranks, collectives.Options{Scratch: 256 << 20, CopyScratch: 256 << 20}, func(ctx context.Context, r *rank) error {
		const bytes = 2 * count * element
		shown, err := r.memory(ctx, 2*bytes)
		if err != nil {
			return err
		}
		hidden, err := r.dev.Alloc(2 * bytes)
		if err != nil {
			return err
		}
		defer hidden.Close()
		block := make([]byte, 64<<20)
		for at := 0; at < bytes; at += len(block) {
			block = block[:min(len(block), bytes-at)]
			for i := 0; i < len(block); i += element {
				binary.LittleEndian.PutUint32(block[i:], math.Float32bits(value(r.Rank(), (at+i)/element)))
			}
			for _, m := range []device.Memory{shown, hidden} {
				if err := r.dev.WriteAt(block, m.Addr()+uintptr(at)); err != nil {
					return err
				}
			}
		}
		const window = 4 << 10
		var wrong []error
		for _, k := range kinds {
			kind := k.kind
			var samples []int
			for i := range 200 {
				samples = append(samples, (k.out*element-window)/199/element*element*i)
			}
			for _, edge := range []int{4 << 30, count * element, 8 << 30, k.out * element} {
				if edge <= k.out*element {
					samples = append(samples, edge-window)
				}
				if edge+window <= k.out*element {
					samples = append(samples, edge)
				}
			}
			for _, m := range []device.Memory{shown, hidden} {
				out := m.Addr() + bytes
				for _, algorithm := range r.Algorithms(kind) {
					part := make([]byte, window)
					for _, at := range samples {
						if err := r.dev.WriteAt(part, out+uintptr(at)); err != nil {
							return err
						}
					}
					if err := r.world.Barrier(ctx); err != nil {
						return err
					}
					start := time.Now()
					err := k.call(r, pointer(m.Addr()), pointer(out), &collectives.CallOptions{Stream: r.stream, Algorithm: algorithm})
					if errors.Is(err, framework.ErrUnsupported) || errors.Is(err, framework.ErrInvalid) {
						continue
					}
					if err == nil {
						err = r.settle(ctx)
					}
					if err != nil {
						return fmt.Errorf("%v by %s: %w", kind, algorithm, err)
					}
					took := time.Since(start)
					if err := r.world.Barrier(ctx); err != nil {
						return err
					}
					bad := 0
					for _, at := range samples {
						if kind == collectives.Reduce && r.Rank() != 1 {
							break
						}
						if err := r.dev.ReadAt(part, out+uintptr(at)); err != nil {
							return err
						}
						for i := 0; i < window && bad == 0; i += element {
							if math.Float32frombits(binary.LittleEndian.Uint32(part[i:])) != k.want(r.Rank(), (at+i)/element) {
								bad = at + i + 1
							}
						}
					}
					if bad != 0 {
						wrong = append(wrong, fmt.Errorf("%v by %s, registered %v: byte %d is wrong", kind, algorithm, m == device.Memory(shown), bad-1))
					}
					if r.Rank() == 0 {
						t.Logf("%v by %s, registered %v: %v, wrong %v", kind, algorithm, m == device.Memory(shown), took.Round(time.Millisecond), bad != 0)
					}
				}
			}
		}
		return errors.Join(wrong...)
	})
}
