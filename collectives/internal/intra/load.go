package intra

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// ready makes ready what an algorithm needs. again says that another one has to take its place.
func (e *Engine) ready(a *algorithm, c *engine.Call) (again bool, err error) {
	switch {
	case a.traits.Copies:
		return e.readyCopies(a, c)
	case a.Name == choose.Pull && e.trial == untried && !c.Named:
		return true, e.try()
	case a.window && e.memory.window == nil:
		return e.readyWindow(a, c)
	case a.traits.Placed && !e.places.find(e.memory.window, c, &a.traits):
		return readyPlaces(e, a, c)
	case a.For(c.Type) == nil:
		return false, e.load(a, c.Type, c.Chosen)
	}
	return false, nil
}

// readyCopies does so for copies. Where they are not possible now another algorithm takes their place, unless the
// program has named them.
func (e *Engine) readyCopies(a *algorithm, c *engine.Call) (again bool, err error) {
	if err = e.copier.lender.Enter(); err == nil { // until run
		if e.copier.prepared(a, c) {
			return false, nil
		}
		if err = e.copier.prepare(a, c); err == nil {
			return false, nil
		}
		e.copier.lender.Leave()
	}
	var none errNoCopies
	if errors.As(err, &none) && !c.Named {
		c.NoCopies = true
		return true, nil
	}
	return false, fmt.Errorf("algorithm %s: %w", a.Name, err)
}

// load makes a kernel callable, and sets up what its algorithm needs. On a GPU it also
// loads what other calls of the collective may choose, so that one call of whatever size makes
// all quick. While a stream is captured this takes as long, and the capture knows nothing of it.
func (e *Engine) load(a *algorithm, t kernel.DataType, chosen func(collective.Kind, kernel.DataType) []*engine.Algorithm) error {
	kind := a.Algorithm.Collective
	ctx, cancel := context.WithTimeout(context.Background(), engine.PreparePatience)
	defer cancel()
	all := []*algorithm{a}
	if !e.host {
		var others []*engine.Algorithm
		if chosen != nil {
			others = chosen(kind, t)
		}
		all = append(all, e.loadable(kind, others)...)
	}
	return e.loadAll(ctx, all, t)
}

// readyWindow opens the window with the first call that needs it, of all ranks. A switch that one of them cannot have is
// refused on all: then another algorithm takes the place of this one, for good, unless the program has named it. While the
// stream is captured no window is opened: ranks exchange for it, and clear it by a stream; another algorithm serves the call.
func (e *Engine) readyWindow(a *algorithm, c *engine.Call) (again bool, err error) {
	if captured, err := whileCaptured(e, a, c, &c.NoWindow, "its window is"); captured || err != nil {
		return captured, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), engine.PreparePatience)
	defer cancel()
	e.args.Window, err = e.memory.openWindow(ctx, e.comm, e.host)
	switch {
	case err == nil && a.traits.Placed:
		return readyPlaces(e, a, c)
	case err == nil:
		return false, e.load(a, c.Type, c.Chosen)
	case e.comm.Err() != nil: // a rank is gone: that ends the job
		return false, fmt.Errorf("algorithm %s: %w", a.Name, err)
	}
	e.noWindow = err
	if c.Named {
		return false, fmt.Errorf("algorithm %s: %w", a.Name, err)
	}
	e.comm.Log().Warn("there is no switch for this communicator: it goes on without", "algorithm", a.Name, "reason", err)
	return true, nil
}

func (e *Engine) capturing(stream device.Stream) (bool, error) {
	d, ok := e.comm.Device().(device.Engine)
	if !ok {
		return false, nil
	}
	state, err := d.Query(stream)
	return state == device.StreamCapturing, err
}

// loadable lists the algorithms whose kernels calls of a collective use: for messages all, else those of the chosen
// ones that are nothing but a kernel.
func (e *Engine) loadable(k collective.Kind, chosen []*engine.Algorithm) []*algorithm {
	if k.Messages() {
		return e.messenger.kernels()
	}
	var list []*algorithm
	for _, x := range chosen {
		if x.Engine != e {
			continue
		}
		if a := e.byKey[x.Key]; !a.traits.Copies && !a.window && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	return list
}

func (e *Engine) loadAll(ctx context.Context, all []*algorithm, t kernel.DataType) error {
	for _, a := range all {
		if _, err := a.Load(ctx, e.comm, t); err != nil {
			return err
		}
	}
	return nil
}
