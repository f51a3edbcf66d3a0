package collectives

import (
	"context"
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Prepare loads the kernels that calls of a collective with elements of these types may
// choose, for all sizes. For a collective that does not reduce, all types use the same
// kernels, and none need be given. Without Prepare the first call loads them. On a GPU
// that takes seconds the first time on a machine, when the driver compiles them, and it
// is refused within a capture. Prepare is local. Kernels that the tables do not choose,
// and the memory of algorithms that use copy engines, are left to the first call that
// needs them. Over several hosts the first call of a job comes before: it decides which
// kernels there are, and without it nothing is loaded.
func (c *Comm) Prepare(k Collective, types ...kernel.DataType) error {
	if !c.progress.enter() {
		return errClosed()
	}
	defer c.progress.leave()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.ready(); err != nil {
		return err
	}
	if k == 0 || k >= collectives {
		return fmt.Errorf("prepare: %w: %v", framework.ErrInvalid, k)
	}
	if !k.Reduces() {
		types = []kernel.DataType{kernel.Uint8}
	}
	for _, t := range types {
		if t >= kernel.DataTypes {
			return fmt.Errorf("prepare %v: %w: %v: no such element type", k, framework.ErrInvalid, t)
		}
		if c.ports != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), prepareTimeout)
		err := c.loadAll(ctx, c.chosen(k, t), t)
		cancel()
		if err != nil {
			return fmt.Errorf("prepare %v: %w", k, err)
		}
	}
	if c.ports != nil {
		if err := c.ports.prepare(k, types...); err != nil {
			return fmt.Errorf("prepare %v: %w", k, err)
		}
	}
	return nil
}

// load makes a kernel callable, and sets up what its algorithm needs. On a GPU it also
// loads what other calls of the collective may choose: after one call of whatever size,
// all can be captured.
func (c *Comm) load(a *algorithm, t kernel.DataType, stream device.Stream) error {
	if err := c.loadable(a, t, stream); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), prepareTimeout)
	defer cancel()
	if a.window && c.window == nil {
		if err := c.openWindow(ctx); err != nil {
			return fmt.Errorf("algorithm %s: %w", a.name, err)
		}
	}
	all := []*algorithm{a}
	if !c.host {
		all = append(all, c.chosen(a.collective, t)...)
	}
	return c.loadAll(ctx, all, t)
}

// loadable refuses streams that are captured: a driver may compile for seconds, and
// wait for all that runs, before it has loaded a kernel.
func (c *Comm) loadable(a *algorithm, t kernel.DataType, stream device.Stream) error {
	engine, ok := c.comm.Device().(device.Engine)
	if !ok {
		return nil
	}
	state, err := engine.Query(stream)
	if err != nil || state != device.StreamCapturing {
		return err
	}
	what := a.collective.String()
	if a.collective.Reduces() {
		what += " of " + t.String()
	}
	return fmt.Errorf("%w: algorithm %s: its kernel is not loaded yet, and a capture is no time to do it: expected Prepare, or a call of %s outside of a capture, before",
		framework.ErrInvalid, a.name, what)
}

func (c *Comm) loadAll(ctx context.Context, all []*algorithm, t kernel.DataType) error {
	for _, a := range all {
		if a.loaded[t] != nil {
			continue
		}
		k, err := c.comm.Load(ctx, a.kernel, t)
		if err != nil {
			return err
		}
		a.keep(t, k)
	}
	return nil
}

// keep remembers the kernel for a type, and for all where bytes are bytes.
func (a *algorithm) keep(t kernel.DataType, k device.Kernel) {
	a.loaded[t] = k
	if a.collective.Reduces() {
		return
	}
	for i := range a.loaded {
		a.loaded[i] = k
	}
}

// chosen lists the kernels that calls of a collective choose by the tables: of sizes
// between any two rows, with and without registered buffers.
func (c *Comm) chosen(k Collective, t kernel.DataType) []*algorithm {
	var all []*algorithm
	add := func(a *algorithm) {
		if a != nil && a.own == nil && !a.copies && !a.window && !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	if k.Messages() {
		add(c.messages)
		add(c.few)
		add(c.chunks)
		return all
	}
	selector := c.selector
	c.selector = nil
	defer func() { c.selector = selector }()
	r := Request{Collective: k, Type: t, Ranks: int(c.args.Ranks), Device: deviceName(c.host), slot: c.near[0].Slot, lineSlot: c.near[1].Slot}
	for _, r.Bytes = range c.bounds(k) {
		r.Count = r.Bytes / uint64(t.Size())
		if k.Wide() {
			r.Count /= uint64(r.Ranks)
		}
		for _, r.Registered = range []bool{false, true} {
			r.reached = 0
			if r.Registered {
				r.reached = reachInputs | reachOutputs
			}
			for _, r.InPlace = range []bool{false, true} {
				for _, r.noCopies = range []bool{false, true} { // copies may not be prepared when a call is captured
					if a, _, err := c.find(&r, ""); err == nil {
						add(a)
					}
				}
			}
		}
	}
	return all
}

// bounds are sizes of which one falls under each row of the tables, and some between.
func (c *Comm) bounds(k Collective) []uint64 {
	var sizes []uint64
	for _, table := range [][]Row{c.table, c.builtin} {
		for i := range table {
			if (table[i].Collective == 0 || table[i].Collective == k) && table[i].MaxBytes > 0 {
				sizes = append(sizes, table[i].MaxBytes, table[i].MaxBytes+1)
			}
		}
	}
	for bytes := uint64(1); bytes <= mostInPieces; bytes *= 2 {
		sizes = append(sizes, bytes)
	}
	return sizes
}
