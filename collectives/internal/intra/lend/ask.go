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
	rounds := map[*Lender]int{}
	for _, l := range lenders.list(d) {
		if l == self {
			continue
		}
		if n, asked := l.ask(ctx); asked {
			rounds[l] = n
		}
	}
	for l, n := range rounds {
		l.ended(ctx, n)
	}
}

// ask asks for a round, and returns how many have ended so far; false: there is none. A round in progress is as good: its memory may
// be taken from the peers already, and not be free yet.
func (l *Lender) ask(ctx context.Context) (rounds int, asked bool) {
	l.mu.Lock()
	rounds = l.rounds
	frozen, willing := l.frozen, l.willing()
	l.mu.Unlock()
	switch {
	case frozen:
		return rounds, true
	case !willing:
		return rounds, false
	case l.link.Rank() != 0:
		return rounds, l.send(ctx, request, 0) == nil
	}
	select {
	case l.asks <- struct{}{}:
	default: // it is asked already
	}
	return rounds, true
}

// ended waits for the end of the round behind so many.
func (l *Lender) ended(ctx context.Context, rounds int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.rounds == rounds && !l.over && l.wait(ctx) == nil {
	}
}
