package lend

import (
	"context"
	"slices"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
)

// lenders are those of this process.
var lenders registry

type registry struct {
	mu sync.Mutex
	of map[framework.Device][]*Lender
}

func (r *registry) add(d framework.Device, l *Lender) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[framework.Device][]*Lender{}
	}
	r.of[d] = append(r.of[d], l)
}

func (r *registry) remove(l *Lender) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for d, list := range r.of {
		r.of[d] = slices.DeleteFunc(list, func(x *Lender) bool { return x == l })
	}
}

func (r *registry) list(d framework.Device) []*Lender {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.of[d])
}

// Ask has the other communicators of a device give up all that they can, and waits for that. Calls in progress and graphs keep
// their memory.
func Ask(ctx context.Context, d framework.Device, self *Lender) {
	ctx, stop := context.WithTimeout(ctx, askPatience)
	defer stop()
	var waits []<-chan struct{}
	for _, l := range lenders.list(d) {
		if l != self {
			waits = append(waits, l.ask(ctx))
		}
	}
	for _, ended := range waits {
		if ended == nil {
			continue
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return
		}
	}
}

// ask asks for a round, and returns what is closed when it has ended; nil: there is none.
func (l *Lender) ask(ctx context.Context) <-chan struct{} {
	l.mu.Lock()
	if !l.willing() {
		l.mu.Unlock()
		return nil
	}
	ended := l.change()
	l.mu.Unlock()
	if l.link.Rank() != 0 {
		if l.send(ctx, request, 0) != nil {
			return nil
		}
		return ended
	}
	select {
	case l.asks <- struct{}{}:
	default: // it is asked already
	}
	return ended
}
