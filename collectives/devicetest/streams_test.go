package devicetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Calls on several streams, which nobody else puts in an order, follow each other: all use the
// same scratch. Streams come and go, and one is captured meanwhile.
func TestCallsOnSeveralStreams(t *testing.T) {
	const calls, count = 40, 1024
	for _, algorithm := range []string{"oneshot_ll8", "twophase_chunk", "zerocopy", "copy", "messages"} {
		t.Run(algorithm, func(t *testing.T) {
			job(t, 2, collectives.Options{}, func(ctx context.Context, r *rank) error {
				m, err := r.memory(ctx, 2*calls*count*4)
				if err != nil {
					return err
				}
				b := make([]byte, calls*count*4)
				for i := 0; i < len(b); i += 4 {
					binary.LittleEndian.PutUint32(b[i:], math.Float32bits(float32(i/4+r.Rank())))
				}
				if err := r.dev.WriteAt(b, m.Addr()); err != nil {
					return err
				}
				call := func(i int, s device.Stream) error {
					in := m.Addr() + uintptr(i*count*4)
					out := in + calls*count*4
					o := &collectives.CallOptions{Stream: s, Algorithm: algorithm}
					if algorithm != "messages" {
						return r.AllReduce(pointer(in), pointer(out), count, kernel.Float32, kernel.Sum, o)
					}
					o.Algorithm = ""
					r.GroupStart()
					return errors.Join(r.Send(pointer(in), count, kernel.Float32, 1-r.Rank(), o), r.Recv(pointer(out), count, kernel.Float32, 1-r.Rank(), o), r.GroupEnd())
				}
				// The first stream is closed before there is another.
				first, err := r.dev.NewStream()
				if err != nil {
					return err
				}
				if err := errors.Join(call(0, first), r.world.Settle(ctx, first), r.dev.CloseStream(first)); err != nil {
					return err
				}
				second, err := r.dev.NewStream()
				if err != nil {
					return err
				}
				for i := range calls {
					if i == calls/2 {
						graph, err := capture(r, func() error { return call(i, r.stream) })
						if err != nil {
							return err
						}
						if err := graph.Close(); err != nil {
							return err
						}
					}
					if err := call(i, []device.Stream{r.stream, second}[i%2]); err != nil {
						return err
					}
				}
				if err := errors.Join(r.settle(ctx), r.world.Settle(ctx, second), r.dev.CloseStream(second)); err != nil {
					return err
				}
				if err := r.dev.ReadAt(b, m.Addr()+calls*count*4); err != nil {
					return err
				}
				bad := 0
				for i := 0; i < len(b); i += 4 {
					want := i/4*2 + 1
					if algorithm == "messages" {
						want = i/4 + 1 - r.Rank()
					}
					if math.Float32frombits(binary.LittleEndian.Uint32(b[i:])) != float32(want) {
						bad++
					}
				}
				if bad > 0 {
					return fmt.Errorf("%d of %d elements are wrong", bad, calls*count)
				}
				return nil
			})
		})
	}
}
