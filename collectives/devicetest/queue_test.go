package devicetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/promise"
)

// queuedCalls is how many calls stand in the queue of a survivor, and drainLimit how long they may take to leave the
// GPU. An emulated one shares its processors with all that is tested beside it.
const queuedCalls = 1000

func drainLimit() time.Duration {
	if imageFolder != "" {
		return 5 * time.Second
	}
	return time.Second
}

// queued is a call that a survivor has many of in its queue.
type queued struct {
	name  string
	hosts []string
	over  string // the network between them
	eager bool   // its first step is on the host, which a graph does not wait for
	call  func(r *rank, addr uintptr) error
}

func queuedSums(algorithm string, bytes int) func(r *rank, addr uintptr) error {
	return func(r *rank, addr uintptr) error { return sums(r, addr, bytes/4, algorithm) }
}

// The kernels in the queue of a survivor leave its GPU at once when another rank is gone: an abort that one kernel has
// seen is remembered for all behind it.
func TestQueueBehindAnAbort(t *testing.T) {
	one, two := make([]string, 2), []string{"a", "b"}
	for _, x := range []queued{
		{name: "oneshot_ll8", hosts: one, call: queuedSums("oneshot_ll8", 1<<10)},
		{name: "twoshot_ll128", hosts: one, call: queuedSums("twoshot_ll128", 1<<19)},
		{name: "zerocopy", hosts: one, call: queuedSums("zerocopy", 2<<20)},
		{name: "twophase_chunk", hosts: one, call: queuedSums("twophase_chunk", 2<<20)},
		{name: "copy", hosts: one, call: queuedSums("copy", 2<<20)},
		{name: "chosen", hosts: one, call: queuedSums("", 2<<20)},
		{name: "messages", hosts: one, call: func(r *rank, addr uintptr) error {
			return r.Recv(pointer(addr), 2<<18, kernel.Float32, 1-r.Rank(), &collectives.CallOptions{Stream: r.stream})
		}},
		{name: "all to all", hosts: one, call: func(r *rank, addr uintptr) error {
			return r.AllToAll(pointer(addr), pointer(addr+1<<21), 1<<18, kernel.Float32, &collectives.CallOptions{Stream: r.stream})
		}},
		{name: "staged", hosts: two, eager: true, call: queuedSums("ports", 2<<20)},
		{name: "direct", hosts: two, over: overAtomics, call: queuedSums(directly, 2<<20)},
	} {
		for _, graph := range []bool{false, true} {
			if graph && x.eager {
				continue
			}
			t.Run(fmt.Sprintf("%s, graph %v", x.name, graph), func(t *testing.T) { behindAnAbort(t, x, graph) })
		}
	}
}

func behindAnAbort(t *testing.T, x queued, graph bool) {
	var enqueued atomic.Int64
	aborted := make(chan promise.Watch, 1)
	if x.over != "" {
		needsAdapters(t)
	}
	run(t, x.hosts, setting{over: x.over}, collectives.Options{}, func(ctx context.Context, r *rank) error {
		m, err := r.memory(ctx, 8<<20)
		if err != nil {
			return err
		}
		warm := func() error {
			if x.name == "messages" { // both directions, for what it allocates
				r.GroupStart()
				o := &collectives.CallOptions{Stream: r.stream}
				return errors.Join(r.Send(pointer(m.Addr()+4<<20), 2<<18, kernel.Float32, 1-r.Rank(), o),
					r.Recv(pointer(m.Addr()), 2<<18, kernel.Float32, 1-r.Rank(), o), r.GroupEnd())
			}
			return x.call(r, m.Addr())
		}
		if err := errors.Join(warm(), r.settle(ctx), r.world.Barrier(ctx)); err != nil {
			return err
		}
		if r.Rank() == 1 {
			// A queue of the driver that is full blocks the caller: nothing is added then.
			last, since := int64(-1), time.Now()
			err := until(ctx, "a full queue", func() bool {
				if n := enqueued.Load(); n != last {
					last, since = n, time.Now()
				}
				return last == queuedCalls || last > 0 && time.Since(since) > 500*time.Millisecond
			})
			aborted <- promise.Begin()
			r.world.Abort(errors.New("rank 1 has had enough"))
			return err
		}
		if err := enqueueMany(r, graph, &enqueued, func() error { return x.call(r, m.Addr()) }); err != nil {
			return err
		}
		if err := r.world.Settle(ctx, r.stream); err != nil {
			return err
		}
		if err := (<-aborted).Kept(drainLimit()); err != nil {
			return fmt.Errorf("%d calls left %w", enqueued.Load(), err)
		}
		return wants(r.world.Err(), framework.ErrPeer, "had enough")
	})
}

// enqueueMany enqueues calls until the communicator ends.
func enqueueMany(r *rank, graph bool, enqueued *atomic.Int64, call func() error) error {
	if !graph {
		var err error
		for range queuedCalls {
			if err = call(); err != nil {
				break
			}
			enqueued.Add(1)
		}
		if r.world.Err() != nil {
			err = nil // calls are refused from then on
		}
		return err
	}
	g, err := capture(r, func() error {
		for range queuedCalls {
			if err := call(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	enqueued.Store(1) // a graph that does not fit into the driver's queue blocks the launch, as too many calls do
	if err := g.Launch(r.stream); err != nil {
		return errors.Join(err, g.Close())
	}
	enqueued.Store(queuedCalls)
	return g.Close()
}
