package flat

import (
	"context"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
)

// Exchange performs a group of messages.
func (e *Engine) Exchange(g *engine.Group) error {
	return e.Messages(func(ctx context.Context) error { return e.Session.Exchange(ctx, g.List) })
}
