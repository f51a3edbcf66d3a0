package main

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// work is the state of one rank: kernels, matrices, and the channels to its peers.
type work struct {
	collectives *collectives.Comm
	comm        *comm.Communicator
	rank        int
	shape       shape
	device      executor

	module     device.Module
	gemm, wait device.Kernel
	a, b       *comm.Memory
	c          [2]*comm.Memory // of the fused kernel, and of the other way
	done       *comm.Memory
	fusedArgs  args
	plainArgs  args
}

// newWork is collective.
func newWork(ctx context.Context, x *collectives.Comm, code []byte, s shape) (w *work, err error) {
	w = &work{collectives: x, comm: x.Communicator(), rank: x.Communicator().Rank(), shape: s}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close(ctx))
		}
	}()
	if w.device, err = newExecutor(w.comm.Device()); err != nil {
		return w, err
	}
	if w.module, err = w.comm.LoadImage(code); err != nil {
		return w, err
	}
	if w.gemm, err = w.module.Kernel("fused_gemm"); err != nil {
		return w, err
	}
	if w.wait, err = w.module.Kernel("fused_wait"); err != nil {
		return w, err
	}
	for _, m := range []struct {
		to    **comm.Memory
		bytes int
	}{{&w.a, s.rows() * s.k * 2}, {&w.b, s.n * s.k * 2}, {&w.c[0], s.m * s.n * 2}, {&w.c[1], s.m * s.n * 2}, {&w.done, s.rows() / tile * 4}} {
		if *m.to, err = w.comm.Alloc(uint64(m.bytes)); err != nil {
			return w, err
		}
	}
	return w, w.connect(ctx)
}

// connect makes both results known to all ranks: the fused kernel writes to those of
// its peers, and the all-gather then needs no memory between.
func (w *work) connect(ctx context.Context) error {
	mine, err := w.comm.Exchange(ctx, w.c[0])
	if err != nil {
		return err
	}
	if _, err := w.comm.Exchange(ctx, w.c[1]); err != nil {
		return err
	}
	// Two channels to every peer, for two different signals.
	tiles, err := w.comm.MemoryChannels(ctx, mine)
	if err != nil {
		return err
	}
	ready, err := w.comm.MemoryChannels(ctx, mine)
	if err != nil {
		return err
	}
	w.plainArgs = args{
		A: w.a.Addr(), B: w.b.Addr(), C: w.c[1].Addr(), Done: w.done.Addr(), First: uint64(w.rank * w.shape.rows()),
		Rows: uint32(w.shape.rows()), N: uint32(w.shape.n), K: uint32(w.shape.k),
	}
	w.fusedArgs = w.plainArgs
	w.fusedArgs.C = w.c[0].Addr()
	// Every rank begins with the one after it, so that no link gets all at once.
	for i := range w.comm.Size() - 1 {
		peer := (w.rank + 1 + i) % w.comm.Size()
		w.fusedArgs.Tiles[i], w.fusedArgs.Ready[i] = tiles[peer], ready[peer]
		w.fusedArgs.Peers++
	}
	return nil
}

func (w *work) launch(k device.Kernel, grid int, a *args) error {
	l := device.Launch{Grid: uint32(grid), Block: threads, Stream: w.device.stream()}
	return k.Launch(l, unsafe.Pointer(a), unsafe.Sizeof(*a))
}

// fused enqueues the multiplication that sends its tiles, and the wait for those of all
// peers. Work that is enqueued behind it finds all of C.
func (w *work) fused() error {
	if err := w.launch(w.gemm, w.shape.tiles(), &w.fusedArgs); err != nil {
		return err
	}
	return w.launch(w.wait, 1, &w.fusedArgs)
}

// multiply enqueues the same without peers.
func (w *work) multiply() error { return w.launch(w.gemm, w.shape.tiles(), &w.plainArgs) }

// gather enqueues the all-gather of what multiply has made, in place.
func (w *work) gather() error {
	count := w.shape.rows() * w.shape.n
	all := w.c[1].Addr()
	own := all + uintptr(w.rank*count*2)
	// Read as pointers: the memory is not Go's, and does not move.
	return w.collectives.AllGather(*(*unsafe.Pointer)(unsafe.Pointer(&own)), *(*unsafe.Pointer)(unsafe.Pointer(&all)), count,
		kernel.Float16, &collectives.CallOptions{Stream: w.device.stream()})
}

// finish waits for all that was enqueued. Kernels end when a rank dies; the
// communicator then names the rank.
func (w *work) finish() error {
	err := w.device.finish()
	if cause := w.comm.Check(); cause != nil {
		return cause
	}
	return err
}

// lap is one measurement.
type lap struct{ fused, multiply, gather time.Duration }

// measure runs both ways by turns, without the host between, after a few that do not
// count.
func (w *work) measure(iters int) ([]lap, error) {
	const warm = 3
	watch, err := w.device.watch(4 * (warm + iters))
	if err != nil {
		return nil, err
	}
	defer watch.close()
	for range warm + iters {
		for _, f := range []func() error{nil, w.fused, w.multiply, w.gather} {
			if f != nil {
				if err := f(); err != nil {
					return nil, err
				}
			}
			if err := watch.mark(); err != nil {
				return nil, err
			}
		}
	}
	if err := w.finish(); err != nil {
		return nil, err
	}
	laps := make([]lap, iters)
	for i := range laps {
		at := 4 * (warm + i)
		for j, to := range []*time.Duration{&laps[i].fused, &laps[i].multiply, &laps[i].gather} {
			if *to, err = watch.between(at+j, at+j+1); err != nil {
				return nil, fmt.Errorf("measurement %d: %w", i, err)
			}
		}
	}
	return laps, nil
}

// close releases all, after what still runs on the device has ended.
func (w *work) close(ctx context.Context) error {
	var all []error
	if w.device != nil {
		all = append(all, w.comm.Settle(context.WithoutCancel(ctx), w.device.stream()))
	}
	for _, m := range []*comm.Memory{w.a, w.b, w.c[0], w.c[1], w.done} {
		if m != nil {
			all = append(all, m.Close())
		}
	}
	if w.module != nil {
		all = append(all, w.module.Close())
	}
	if w.device != nil {
		all = append(all, w.device.close())
	}
	return errors.Join(all...)
}
