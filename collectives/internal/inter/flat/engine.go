// Package flat performs collectives over lanes alone, driven by the host: for ranks on the host that do not all share
// memory, and for data that others have brought to the host. Every rank talks to every other one; it knows of no
// hosts, no GPUs and no kernels.
package flat

import (
	"context"
	"fmt"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
)

// New makes the engine. It opens nothing.
func New(s *lanes.Session) *Engine {
	e := &Engine{Session: s}
	for _, k := range Collectives {
		e.Add(e, engine.Row{Collective: k, Algorithm: lanes.Name}, nil, func(c *engine.Call) error {
			return s.Collective(c, lanes.Name, func(ctx context.Context) error { return e.Perform(ctx, c) })
		})
	}
	return e
}

// Collectives are those that there are algorithms for.
var Collectives = []collective.Kind{
	collective.AllReduce, collective.AllGather, collective.ReduceScatter, collective.Broadcast, collective.Reduce, collective.AllToAll, collective.Barrier,
}

// Perform performs a call whose buffers are on the host; within Session.Do.
func (e *Engine) Perform(ctx context.Context, c *engine.Call) error {
	if err := e.LinkAll(ctx); err != nil {
		return err
	}
	switch c.Collective {
	case collective.AllReduce:
		return e.allReduce(ctx, c)
	case collective.AllGather:
		return e.allGather(ctx, c)
	case collective.ReduceScatter:
		return e.reduceScatter(ctx, c)
	case collective.Broadcast:
		return e.broadcast(ctx, c)
	case collective.Reduce:
		return e.reduce(ctx, c)
	case collective.AllToAll:
		return e.allToAll(ctx, c)
	case collective.Barrier:
		return e.barrier(ctx)
	}
	return fmt.Errorf("%w: %v over %s", framework.ErrUnsupported, c.Collective, lanes.Name)
}

// Run performs a call.
func (e *Engine) Run(c *engine.Call) error { return e.List.Run(c) }

// Close has nothing to release: the opener of lanes closes them.
func (e *Engine) Close() error { return nil }
