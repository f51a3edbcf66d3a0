package devicetest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/promise"
)

// GPUs of several hosts, not as many on each, get the results that those of one do: by
// every algorithm, in pieces and at once.
func TestResultsOverHosts(t *testing.T) {
	const half = 8 << 20
	layouts, counts := []string{"ab", "aabb", "abab", "aab", "abbc", "abbb"}, []int{0, 1, 63, 4 << 10, 20011}
	if raceEnabled { // as many ranks on each host, and not
		layouts, counts = []string{"aabb", "abbc"}, []int{0, 63, 4 << 10}
	}
	for _, layout := range layouts {
		t.Run(layout, func(t *testing.T) {
			n := len(layout)
			var mu sync.Mutex
			ran := map[string]int{}
			hosts(t, strings.Split(layout, ""), collectives.Options{}, func(_ context.Context, r *rank) error {
				m, err := r.world.Alloc(2 * half)
				if err != nil {
					return err
				}
				rig := r.rig(t.Context(), m.Addr(), half)
				i := 0
				for _, kind := range collectivetest.Kinds() {
					for _, algorithm := range append(r.Algorithms(kind), "") {
						most := 200_000 / n
						if raceEnabled {
							most = 20_011
						}
						if kind == collectives.AllReduce && algorithm == "ports" {
							most = 1_100_000 // more than the host has room for at once
						}
						for k, count := range append(slices.Clone(counts), most) {
							i++
							x := trial{Kind: kind, Algorithm: algorithm, Count: count, Type: []kernel.DataType{kernel.Float16, kernel.Float32}[(i+i/7)%2],
								Op: []kernel.Op{kernel.Sum, kernel.PreMulSum, kernel.Avg, kernel.Max}[i%4], Root: i % n, InPlace: i/2%2 == 0, Shift: k % 3}
							if _, err := r.Choice(x.Request(n), algorithm); errors.Is(err, framework.ErrUnsupported) && algorithm != "" {
								continue
							}
							if err := x.Run(rig, uint64(i)); err != nil {
								return err
							}
							mu.Lock()
							ran[kind.String()+" "+algorithm]++
							mu.Unlock()
						}
					}
				}
				return errors.Join(r.Barrier(&collectives.CallOptions{Stream: r.stream}), r.settle(t.Context()))
			})
			want := []string{"allreduce ports", "alltoall ports", "reduce "}
			if layout != "ab" {
				want = append(want, "allreduce hierarchical_small", "allreduce hierarchical_large", "allgather hierarchical_small", "allgather hierarchical_large",
					"reducescatter hierarchical_small", "reducescatter hierarchical_large", "broadcast hierarchical_small", "broadcast hierarchical_large",
					"reduce hierarchical_small", "reduce hierarchical_large",
					"alltoall hierarchical_small", "alltoall hierarchical_large")
			}
			for _, w := range want {
				if ran[w] < 2*n {
					t.Errorf("%s ran %d times, expected at least %d: %v", w, ran[w], 2*n, ran)
				}
			}
		})
	}
}

// All ranks get the same bits, and get them again, however long the parts take.
func TestSameBitsOverHosts(t *testing.T) {
	hosts(t, []string{"a", "a", "b", "b"}, collectives.Options{}, func(ctx context.Context, r *rank) error {
		const count = 300_007
		m, err := r.world.Alloc(4 * count)
		if err != nil {
			return err
		}
		in := make([]byte, 4*count)
		reference.Fill(in, kernel.Float32, kernel.Sum, 5, r.Rank(), 0)
		for _, algorithm := range []string{"ports", "hierarchical_large"} {
			var first [32]byte
			for again := range 3 {
				if err := errors.Join(r.dev.WriteAt(in, m.Addr()), sums(r, m.Addr(), count, algorithm), r.settle(ctx)); err != nil {
					return err
				}
				out := make([]byte, 4*count)
				if err := r.dev.ReadAt(out, m.Addr()); err != nil {
					return err
				}
				digest := sha256.Sum256(out)
				all, err := r.world.AllGather(ctx, digest[:])
				if err != nil {
					return err
				}
				for rank, d := range all {
					if string(d) != string(digest[:]) {
						return fmt.Errorf("%s: rank %d has other bits than rank %d", algorithm, rank, r.Rank())
					}
				}
				if again == 0 {
					first = digest
				}
				if digest != first {
					return fmt.Errorf("%s: other bits in call %d", algorithm, again)
				}
			}
		}
		return nil
	})
}

// Calls return at once, are performed in the order of the streams, and follow each other
// also when each is on another stream.
func TestOrderOverHosts(t *testing.T) {
	hosts(t, []string{"a", "a", "b"}, collectives.Options{}, func(ctx context.Context, r *rank) (err error) {
		const count, calls = 1 << 12, 60
		m, err := r.world.Alloc(4 * count)
		if err != nil {
			return err
		}
		hold, err := r.dev.AllocHost(8)
		if err != nil {
			return err
		}
		defer hold.Close()
		ones := make([]byte, 4*count)
		for i := range count {
			copy(ones[4*i:], []byte{0, 0, 0x80, 0x3f})
		}
		// The first call loads kernels, which takes a stream that nothing holds up.
		if err := errors.Join(sums(r, m.Addr(), count, ""), r.settle(ctx), r.dev.WriteAt(ones, m.Addr())); err != nil {
			return err
		}
		other, err := r.dev.NewStream()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.dev.CloseStream(other)) }()
		// Nothing may begin before all is enqueued: a rank that waited here would wait for ever.
		if err := r.dev.WaitValue(r.stream, hold.Addr(), 1); err != nil {
			return err
		}
		streams := []device.Stream{r.stream, other}
		for i := range calls {
			op := kernel.Max
			if i%20 == 0 {
				op = kernel.Sum
			}
			o := &collectives.CallOptions{Stream: streams[i%7%2]}
			if err := r.AllReduce(pointer(m.Addr()), pointer(m.Addr()), count, kernel.Float32, op, o); err != nil {
				return err
			}
		}
		hold.HostBytes()[0] = 1
		if err := errors.Join(r.world.Settle(ctx, other), r.settle(ctx)); err != nil {
			return err
		}
		got := make([]byte, 4*count)
		if err := r.dev.ReadAt(got, m.Addr()); err != nil {
			return err
		}
		for i := range count {
			if string(got[4*i:4*i+4]) != "\x00\x00\xd8\x41" {
				return fmt.Errorf("element %d: %x, expected 27 as a float", i, got[4*i:4*i+4])
			}
		}
		return nil
	})
}

// Groups of messages are more than what passes through the host at once, and go both ways.
func TestMessagesOverHosts(t *testing.T) {
	hosts(t, []string{"a", "b", "b"}, collectives.Options{}, func(ctx context.Context, r *rank) error {
		const each, n = 3 << 20, 3
		m, err := r.world.Alloc(2 * n * each)
		if err != nil {
			return err
		}
		in := make([]byte, n*each)
		for i := range in {
			in[i] = byte(i/each*16+r.Rank()) ^ byte(i)
		}
		if err := r.dev.WriteAt(in, m.Addr()); err != nil {
			return err
		}
		o := &collectives.CallOptions{Stream: r.stream}
		for round := range 2 {
			bytes := []int{1000, each}[round]
			r.GroupStart()
			for peer := range n {
				at := uintptr(peer * each)
				if err := errors.Join(r.Send(pointer(m.Addr()+at), bytes, kernel.Uint8, peer, o), r.Recv(pointer(m.Addr()+n*each+at), bytes, kernel.Uint8, peer, o)); err != nil {
					return err
				}
			}
			if err := errors.Join(r.GroupEnd(), r.settle(ctx)); err != nil {
				return err
			}
			got := make([]byte, n*each)
			if err := r.dev.ReadAt(got, m.Addr()+n*each); err != nil {
				return err
			}
			for peer := range n {
				for i := range bytes {
					if want := byte(r.Rank()*16+peer) ^ byte(r.Rank()*each+i); got[peer*each+i] != want {
						return fmt.Errorf("byte %d of %d from rank %d: %#x, expected %#x", i, bytes, peer, got[peer*each+i], want)
					}
				}
			}
		}
		err = r.Send(pointer(m.Addr()), 4, kernel.Uint8, r.Rank(), o)
		return errors.Join(wants(err, framework.ErrUnsupported, "itself"), r.world.Check())
	})
}

// The host takes part in these calls, and would not know of a graph's launch.
func TestCaptureOverHostsIsRefused(t *testing.T) {
	hosts(t, []string{"a", "a", "b"}, collectives.Options{}, func(ctx context.Context, r *rank) error {
		m, err := r.memory(ctx, 1<<20)
		if err != nil {
			return err
		}
		for range 2 { // before the first call, and behind it
			for _, call := range []func() error{
				func() error { return sums(r, m.Addr(), 100, "") },
				func() error { return sums(r, m.Addr(), 100, "ports") },
				func() error {
					return r.Send(pointer(m.Addr()), 1, kernel.Uint8, (r.Rank()+1)%3, &collectives.CallOptions{Stream: r.stream})
				},
			} {
				graph, err := capture(r, call)
				if graph != nil {
					err = errors.Join(err, graph.Close())
				}
				if err := wants(err, framework.ErrUnsupported, "captured"); err != nil {
					return err
				}
			}
			if err := errors.Join(sums(r, m.Addr(), 100, ""), r.settle(ctx)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Hosts that are not in the same call get an error, although both have enqueued theirs
// and gone on.
func TestDisagreementOverHosts(t *testing.T) {
	for _, layout := range []string{"ab", "aabb"} {
		t.Run(layout, func(t *testing.T) {
			var mu sync.Mutex
			said := 0
			hosts(t, strings.Split(layout, ""), collectives.Options{}, func(ctx context.Context, r *rank) error {
				m, err := r.memory(ctx, 1<<20)
				if err != nil {
					return err
				}
				count := 1000
				if r.host == "b" {
					count = 1001
				}
				if err := sums(r, m.Addr(), count, ""); err != nil {
					return err
				}
				err = found(ctx, r)
				if !errors.Is(err, framework.ErrInvalid) && !errors.Is(err, framework.ErrPeer) {
					return fmt.Errorf("%w: expected ErrInvalid, or ErrPeer of the one who found out", err)
				}
				mu.Lock()
				defer mu.Unlock()
				if strings.Contains(err.Error(), "ranks disagree") && strings.Contains(err.Error(), "of 1000 f32 sum") {
					said++
				}
				return r.world.Settle(ctx, r.stream)
			})
			if said == 0 {
				t.Error("no error says that ranks disagree and on what")
			}
		})
	}
}

// A rank of another host that ends while streams wait: they go on, the error names it,
// and everything can be closed.
func TestEndWhileStreamsWait(t *testing.T) {
	for _, algorithm := range []string{"ports", "hierarchical_small", "hierarchical_large"} {
		t.Run(algorithm, func(t *testing.T) {
			hosts(t, []string{"a", "b", "a"}, collectives.Options{}, func(ctx context.Context, r *rank) error {
				return endOfRank1(ctx, r, algorithm, 3, 1<<12, "rank 1", "had enough")
			})
		})
	}
}

// A rank that does not come within the time that waits may take is named.
func TestAbsentOverHosts(t *testing.T) {
	var waiting sync.WaitGroup
	waiting.Add(2)
	bounded(t, []string{"a", "b", "a"}, 3*time.Second, func(ctx context.Context, r *rank) error {
		m, err := r.memory(ctx, 1<<20)
		if err != nil {
			return err
		}
		if err := errors.Join(sums(r, m.Addr(), 100, ""), r.settle(ctx), r.world.Barrier(ctx)); err != nil {
			return err
		}
		if r.Rank() == 1 {
			waiting.Wait()
			return nil
		}
		defer waiting.Done()
		if err := sums(r, m.Addr(), 100, ""); err != nil {
			return err
		}
		return errors.Join(wants(found(ctx, r), framework.ErrPeer, "rank 1"), r.world.Settle(ctx, r.stream))
	})
}

// A rank that lacks memory for its first call over hosts ends the job at once, for all ranks and
// with the reason, and not when the ranks that wait for it give up.
func TestFirstCallWithoutMemory(t *testing.T) {
	needsGPU(t) // its making is no part of the time
	watch := promise.Begin()
	hosts(t, []string{"a", "a", "b"}, collectives.Options{}, func(ctx context.Context, r *rank) error {
		small, err := r.world.Alloc(1 << 16)
		if err != nil {
			return err
		}
		if r.Rank() == 0 {
			for bytes := uint64(1 << 40); bytes >= 1<<20; { // all that is left
				m, err := r.dev.Alloc(bytes)
				if err != nil {
					bytes /= 2
					continue
				}
				defer m.Close()
			}
		}
		if err := r.world.Barrier(ctx); err != nil {
			return err
		}
		err = sums(r, small.Addr(), 1000, "")
		if err == nil {
			err = found(ctx, r)
		}
		if r.Rank() == 0 {
			return wants(err, nil, "channels for collectives", "memory")
		}
		return wants(err, framework.ErrPeer, "rank 0", "channels for collectives")
	})
	if err := watch.Kept(15 * time.Second); err != nil {
		t.Error(err)
	}
}
