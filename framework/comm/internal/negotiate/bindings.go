package negotiate

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework/comm/internal/life"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/memory"
)

// Bindings are the windows of which some exchanged memory is a part, or cannot be. The zero value has none.
type Bindings struct {
	refused atomic.Bool

	mu   sync.Mutex
	list []*binding
}

// binding ends with the exchanged memory, with the memory itself, or with its group.
type binding struct {
	lifetime life.Lifetime
	group    *Group
	place    uint64
	refused  error
}

// Bind makes m a part of the window of a group, as Group.Bind does, and notes that, or why it is refused.
func (b *Bindings) Bind(ctx context.Context, g *Group, m *memory.Memory, name uint64) (uint64, error) {
	place, err := g.Bind(ctx, m, name)
	x := &binding{group: g, place: place, refused: err}
	if err == nil {
		shut := func(context.Context) error { return g.unbind(place) }
		if err := x.lifetime.Begin(&g.n.Life.Parts, x, shut, memory.Users(m)); err != nil {
			g.n.Life.Rollback(shut)
			return 0, err
		}
	} else {
		b.refused.Store(true)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = append(b.list, x)
	return place, err
}

// Refused reports whether a group has refused it.
func (b *Bindings) Refused() bool { return b.refused.Load() }

// Place returns the place in the window of a group, or why it is refused; not known: Bind was not called. It does not allocate.
func (b *Bindings) Place(g *Group) (place uint64, known bool, refused error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, x := range b.list {
		if x.group == g {
			return x.place, true, x.refused
		}
	}
	return 0, false, nil
}

// Close takes the memory out of all windows.
func (b *Bindings) Close(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []error
	for _, x := range b.list {
		if x.refused == nil {
			all = append(all, x.lifetime.Shut(ctx))
		}
	}
	b.list = nil
	return errors.Join(all...)
}
