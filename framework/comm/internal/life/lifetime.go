package life

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
)

// stuckTimeout bounds a Close behind one that ran into its bound: many of them in a row
// would keep a rank for minutes whose plugin hangs.
const stuckTimeout = 100 * time.Millisecond

// Lifetime is the end of something that a communicator made: memory, exchanged memory or a channel.
// That is released by its own Close, by that of memory it is built on, or at the latest by that of
// the communicator. The end comes once; a second caller waits until it is over.
type Lifetime struct {
	owner   *Parts
	self    any
	on      []*Users // of what it is built on
	release func(ctx context.Context) error
	once    sync.Once
	over    atomic.Bool // the end was there
	ended   error
}

// Release says what the end is. A Lifetime that was not begun belongs to no communicator.
func (l *Lifetime) Release(f func(ctx context.Context) error) { l.release = f }

// Begin puts self, whose lifetime this is, on the lists of those whose end is its own.
// After an error the caller releases what it has made.
func (l *Lifetime) Begin(owner *Parts, self any, release func(ctx context.Context) error, on ...*Users) error {
	l.owner, l.self, l.release, l.on = owner, self, release, on
	for i, u := range on {
		if err := u.add(l); err != nil {
			l.leave(on[:i])
			return err
		}
	}
	if err := owner.add(l); err != nil {
		l.leave(on)
		return fmt.Errorf("comm %s: %w", owner.name, err)
	}
	return nil
}

func (l *Lifetime) leave(on []*Users) {
	for _, u := range on {
		u.remove(l)
	}
}

// Over says that the end was there.
func (l *Lifetime) Over() bool { return l.over.Load() }

// Shut takes the part off the communicator's list, so that nobody looks at it any more,
// and then releases it.
func (l *Lifetime) Shut(ctx context.Context) error {
	l.once.Do(func() {
		defer l.over.Store(true)
		if l.owner != nil {
			defer l.owner.leave(l)()
		}
		l.ended = l.release(ctx)
		l.leave(l.on)
	})
	return l.ended
}

// Close is Shut for a Close without a context.
func (l *Lifetime) Close() error {
	bound := CloseTimeout
	if l.owner != nil {
		bound = l.owner.bound()
	}
	return l.closeWithin(bound)
}

func (l *Lifetime) closeWithin(bound time.Duration) error {
	if l.owner != nil && l.owner.stuck.Load() {
		bound = min(bound, stuckTimeout)
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	again := l.over.Load() // no peer is asked then, so none is waited for
	err := l.Shut(ctx)
	if l.owner != nil && !again {
		l.owner.stuck.Store(ctx.Err() != nil)
	}
	return err
}

// Users are the lifetimes of what is built on some memory. The zero value has none.
type Users struct {
	mu     sync.Mutex
	all    map[*Lifetime]struct{}
	closed bool
}

// Err says that the memory was freed, or is nil.
func (u *Users) Err() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err()
}

func (u *Users) err() error {
	if u.closed {
		return fmt.Errorf("%w: memory was freed", framework.ErrClosed)
	}
	return nil
}

func (u *Users) add(l *Lifetime) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := u.err(); err != nil {
		return err
	}
	if u.all == nil {
		u.all = make(map[*Lifetime]struct{})
	}
	u.all[l] = struct{}{}
	return nil
}

func (u *Users) remove(l *Lifetime) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.all, l)
}

// Shut ends all of them, and takes no more.
func (u *Users) Shut(ctx context.Context) error {
	u.mu.Lock()
	u.closed = true
	users := make([]*Lifetime, 0, len(u.all))
	for l := range u.all {
		users = append(users, l)
	}
	u.mu.Unlock()
	var first error
	for _, l := range users {
		if err := l.Shut(ctx); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Parts are all that a communicator has to release. An entry of the list is mapped: Each may look
// at it.
type Parts struct {
	name  string               // of the communicator
	bound func() time.Duration // of a close that begins now
	stuck atomic.Bool          // the last Close of a part ran into its bound

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

// CloseTimeout bounds what Close does in transports and proxies.
const CloseTimeout = 5 * time.Second
