package intra

import (
	"context"
	"fmt"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// whileCaptured has another algorithm serve a call that is captured, for which something is not there that ranks make together.
func whileCaptured(e *Engine, a *algorithm, c *engine.Call, lacks *bool, what string) (again bool, err error) {
	captured, err := e.capturing(c.Stream)
	if err != nil || !captured {
		return false, err
	}
	if c.Named {
		return false, fmt.Errorf("%w: algorithm %s: %s not there yet, and ranks make it together: expected its first call outside of a capture", framework.ErrInvalid, a.Name, what)
	}
	*lacks = true
	return true, nil
}

// readyPlaces makes the registered buffers of a call, on all ranks, a part of the window. Where one rank cannot, another
// algorithm serves calls on this memory.
func readyPlaces(e *Engine, a *algorithm, c *engine.Call) (again bool, err error) {
	if again, err := whileCaptured(e, a, c, &c.NoPlace, "the place of its buffers in the window is"); again || err != nil {
		return again, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), engine.PreparePatience)
	defer cancel()
	for _, m := range reached(c, &a.traits) {
		if m == nil {
			continue
		}
		_, known, err := e.memory.window.Bound(m)
		if !known {
			_, err = e.memory.window.Bind(ctx, m)
		}
		switch {
		case err == nil:
		case c.Named || e.comm.Err() != nil:
			return false, fmt.Errorf("algorithm %s: %w", a.Name, err)
		default:
			e.comm.Log().Info("registered memory is no part of the window of the switch: calls on it go by other algorithms", "bytes", m.Own().Bytes(), "reason", err)
			c.NoPlace = true
			return true, nil
		}
	}
	if !e.places.find(e.memory.window, c, &a.traits) {
		return false, fmt.Errorf("%w: algorithm %s: its buffers were given up while they became a part of the window", framework.ErrClosed, a.Name)
	}
	return false, e.load(a, c.Type, c.Chosen)
}

// reached is the exchanged memory of a call that the window has to reach: of the input and of the output, nil for none.
func reached(c *engine.Call, t *choose.Traits) (list [2]*comm.Symmetric) {
	if t.Reach&engine.ReachInputs != 0 {
		list[0] = c.In.Memory
	}
	if t.Reach&engine.ReachOutputs != 0 {
		list[1] = c.Out.Memory
	}
	return list
}

// places are where in the window the buffers are of the call that is made: input and output.
type places [2]struct {
	memory *comm.Symmetric
	at     uint64
}

// find reports whether the buffers of a call are a part of the window, and notes where. It does not allocate.
func (p *places) find(window *comm.SwitchChannel, c *engine.Call, t *choose.Traits) bool {
	for i, m := range reached(c, t) {
		if m == nil || m == p[i].memory {
			continue
		}
		at, known, err := window.Bound(m)
		if !known || err != nil {
			return false
		}
		p[i].memory, p[i].at = m, at
	}
	return true
}
