package intra

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/framework"
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
	case a.For(c.Type) == nil:
		return false, e.load(a, c.Type, c.Stream, c.Chosen)
	}
	return false, nil
}

// readyCopies does so for copies. Where they are not possible now another algorithm takes their place, unless the
// program has named them.
func (e *Engine) readyCopies(a *algorithm, c *engine.Call) (again bool, err error) {
	if e.copier.prepared(a, c) {
		return false, nil
	}
	err = e.copier.prepare(a, c)
	var none errNoCopies
	if errors.As(err, &none) && !c.Named {
		c.NoCopies = true
		return true, nil
	}
	if err != nil {
		err = fmt.Errorf("algorithm %s: %w", a.Name, err)
	}
	return false, err
}

// load makes a kernel callable, and sets up what its algorithm needs. On a GPU it also
// loads what other calls of the collective may choose, so that one call of whatever size makes
// all quick. While a stream is captured this takes as long, and the capture knows nothing of it.
func (e *Engine) load(a *algorithm, t kernel.DataType, stream device.Stream, chosen func(collective.Kind, kernel.DataType) []*engine.Algorithm) error {
	kind := a.Algorithm.Collective
	ctx, cancel := context.WithTimeout(context.Background(), engine.PreparePatience)
	defer cancel()
	if a.window && e.memory.window == nil {
		if err := e.mayOpen(a, stream); err != nil {
			return err
		}
		window, err := e.memory.openWindow(ctx, e.comm)
		if err != nil {
			return fmt.Errorf("algorithm %s: %w", a.Name, err)
		}
		e.args.Window = window
	}
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

// mayOpen refuses to open a window while the stream is captured: ranks exchange for it, and clear it by a stream.
func (e *Engine) mayOpen(a *algorithm, stream device.Stream) error {
	d, ok := e.comm.Device().(device.Engine)
	if !ok {
		return nil
	}
	state, err := d.Query(stream)
	if err != nil || state != device.StreamCapturing {
		return err
	}
	return fmt.Errorf("%w: algorithm %s: its window is not there yet, and ranks open it together: expected its first call outside of a capture", framework.ErrInvalid, a.Name)
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
