package life

import (
	"context"
	"slices"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Parts are all that a communicator has to release. What is on the list is mapped: Each
// may look at it.
type Parts struct {
	partsMu sync.Mutex
	ended   bool
	made    uint64
	live    map[*Lifetime]uint64 // when it was made
	leaving sync.WaitGroup       // parts that are off the list, and not yet released
}

func (p *Parts) add(x *Lifetime) error {
	p.partsMu.Lock()
	defer p.partsMu.Unlock()
	if p.ended {
		return framework.ErrClosed
	}
	if p.live == nil {
		p.live = make(map[*Lifetime]uint64)
	}
	p.made++
	p.live[x] = p.made
	return nil
}

// leave takes a part off the list. The caller calls what it returns when the part is
// released.
func (p *Parts) leave(x *Lifetime) (released func()) {
	p.partsMu.Lock()
	defer p.partsMu.Unlock()
	if _, ok := p.live[x]; !ok {
		return func() {}
	}
	delete(p.live, x)
	p.leaving.Add(1)
	return p.leaving.Done
}

// list returns the parts in the order in which they were made. The caller holds the lock.
func (p *Parts) list() []*Lifetime {
	all := make([]*Lifetime, 0, len(p.live))
	for x := range p.live {
		all = append(all, x)
	}
	slices.SortFunc(all, func(a, b *Lifetime) int { return int(p.live[a]) - int(p.live[b]) })
	return all
}

// Each calls f for what has a lifetime, in the order in which it was made. Nothing is
// released meanwhile. It reports whether the communicator still has parts.
func (p *Parts) Each(f func(self any)) (open bool) {
	p.partsMu.Lock()
	defer p.partsMu.Unlock()
	if p.ended {
		return false
	}
	for _, x := range p.list() {
		f(x.self)
	}
	return true
}

// CloseParts ends all parts, the youngest first, and takes no more.
func (p *Parts) CloseParts(ctx context.Context) error {
	p.partsMu.Lock()
	p.ended = true
	all := p.list()
	p.partsMu.Unlock()
	var first error
	for _, x := range slices.Backward(all) {
		if err := x.Shut(ctx); err != nil && first == nil {
			first = err
		}
	}
	p.leaving.Wait() // those that others began to close before
	return first
}
