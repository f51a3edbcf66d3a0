package comm

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
)

// part is something that a communicator made and that is released by its own Close,
// by that of memory it is built on, or at the latest by that of the communicator.
//
// Implemented by memory, exchanged memory and channels, by embedding lifetime.
type part interface {
	shut(ctx context.Context) error
}

// lifetime is the end of a part. It comes once; whoever asks for it meanwhile waits
// until it is over.
type lifetime struct {
	comm  *Communicator
	on    []*Memory // what the part is built on
	once  sync.Once
	over  atomic.Bool // the end was there
	ended error
}

// begin puts a part on the lists of those whose end is its own.
func (l *lifetime) begin(c *Communicator, self part, on ...*Memory) error {
	l.comm, l.on = c, on
	for i, m := range on {
		if err := m.use(self); err != nil {
			l.abandon(self, on[:i])
			return err
		}
	}
	if err := c.parts.add(self); err != nil {
		l.abandon(self, on)
		return fmt.Errorf("comm %s: %w", c.opts.Name, err)
	}
	return nil
}

// abandon undoes begin; the caller releases what it has made.
func (l *lifetime) abandon(self part, on []*Memory) {
	for _, m := range on {
		m.unuse(self)
	}
}

// end takes the part off the communicator's list, so that nobody looks at it any
// more, and then releases it.
func (l *lifetime) end(self part, release func() error) error {
	l.once.Do(func() {
		defer l.over.Store(true)
		if l.comm != nil {
			defer l.comm.parts.leave(self)()
		}
		l.ended = release()
		for _, m := range l.on {
			m.unuse(self)
		}
	})
	return l.ended
}

// stuckTimeout bounds a Close behind one that ran into its bound: many of them in a row
// would keep a rank for minutes whose plugin hangs.
const stuckTimeout = 100 * time.Millisecond

// shutNow is how a Close without a context ends a part.
func (l *lifetime) shutNow(p part) error {
	bound := closeTimeout
	if l.comm != nil {
		bound = l.comm.closeBound()
	}
	return l.shutWithin(bound, p)
}

func (l *lifetime) shutWithin(bound time.Duration, p part) error {
	if l.comm != nil && l.comm.stuck.Load() {
		bound = min(bound, stuckTimeout)
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	again := l.over.Load() // nobody is asked then, so nobody hangs
	err := p.shut(ctx)
	if l.comm != nil && !again {
		l.comm.stuck.Store(ctx.Err() != nil)
	}
	return err
}

// parts are all that a communicator has to release. What is on the list is mapped:
// it may be looked at while mu is held.
type parts struct {
	mu     sync.Mutex
	closed bool
	made   uint64
	live   map[part]uint64 // when it was made
	ending sync.WaitGroup  // parts that are off the list, and not yet released
}

func (p *parts) add(x part) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return framework.ErrClosed
	}
	if p.live == nil {
		p.live = make(map[part]uint64)
	}
	p.made++
	p.live[x] = p.made
	return nil
}

// leave takes a part off the list. The caller calls what it returns when the part
// is released.
func (p *parts) leave(x part) (released func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.live[x]; !ok {
		return func() {}
	}
	delete(p.live, x)
	p.ending.Add(1)
	return p.ending.Done
}

// list returns the parts in the order in which they were made. The caller holds mu.
func (p *parts) list() []part {
	all := make([]part, 0, len(p.live))
	for x := range p.live {
		all = append(all, x)
	}
	slices.SortFunc(all, func(a, b part) int { return int(p.live[a]) - int(p.live[b]) })
	return all
}

// closeAll ends all parts, the youngest first, and takes no more.
func (p *parts) closeAll(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	all := p.list()
	p.mu.Unlock()
	var first error
	for _, x := range slices.Backward(all) {
		if err := x.shut(ctx); err != nil && first == nil {
			first = err
		}
	}
	p.ending.Wait() // those that others began to close before
	return first
}
