// Package inbox holds parcels that have arrived until their receiver asks for them.
package inbox

import (
	"context"
	"fmt"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/failure"
)

// Message is a parcel that has arrived. Its descriptors may still be on their way
// over another socket: then First is the number of the first of them, and Awaited
// lists the shares that they belong to.
type Message struct {
	Parcel  framework.Parcel
	First   uint64
	Awaited []int
}

// Inbox holds what has arrived until its receiver asks for it: in order per sender and tag. Readers
// of sockets never wait for it, so ranks cannot block each other.
type Inbox struct {
	mu     sync.Mutex
	boxes  map[address]*box
	gone   map[int]error         // senders that have left, and what to say
	leave  map[int]chan struct{} // closed when they do; made for the caller that asks
	closed error
}

type address struct {
	from int
	tag  framework.Tag
}

type box struct {
	messages []Message
	waiters  []chan result
}

type result struct {
	Message
	err error
}

// New returns an empty inbox.
func New() *Inbox {
	return &Inbox{boxes: map[address]*box{}, gone: map[int]error{}}
}

func (b *Inbox) at(a address) *box {
	x := b.boxes[a]
	if x == nil {
		x = &box{}
		b.boxes[a] = x
	}
	return x
}

// tidy forgets empty boxes: tags may be used once.
func (b *Inbox) tidy(a address, x *box) {
	if len(x.messages) == 0 && len(x.waiters) == 0 {
		delete(b.boxes, a)
	}
}

// Put delivers m, which it owns from here on. It reports false when nobody can
// ever receive it.
func (b *Inbox) Put(from int, tag framework.Tag, m Message) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed != nil {
		_ = m.Parcel.Close()
		return false
	}
	a := address{from, tag}
	x := b.at(a)
	if len(x.waiters) > 0 {
		w := x.waiters[0]
		x.waiters = x.waiters[1:]
		w <- result{Message: m} // has room for one
		b.tidy(a, x)
		return true
	}
	x.messages = append(x.messages, m)
	return true
}

// Take returns the next message, waiting until ctx, the end of the job, or the
// Departure of the sender.
func (b *Inbox) Take(ctx context.Context, from int, tag framework.Tag, job *failure.State) (Message, error) {
	if err := job.Cause(); err != nil {
		return Message{}, err
	}
	a := address{from, tag}
	b.mu.Lock()
	if b.closed != nil {
		b.mu.Unlock()
		return Message{}, b.closed
	}
	x := b.at(a)
	if len(x.messages) > 0 {
		m := x.messages[0]
		x.messages[0] = Message{}
		x.messages = x.messages[1:]
		b.tidy(a, x)
		b.mu.Unlock()
		return m, nil
	}
	if err := b.gone[from]; err != nil {
		b.tidy(a, x)
		b.mu.Unlock()
		return Message{}, err
	}
	w := make(chan result, 1)
	x.waiters = append(x.waiters, w)
	b.mu.Unlock()

	var cause error
	select {
	case r := <-w:
		return r.Message, r.err
	case <-ctx.Done():
		cause = fmt.Errorf("nothing with tag %#x arrived: %w", uint64(tag), context.Cause(ctx))
	case <-job.Done():
		cause = job.Cause()
	}
	if r, delivered := b.withdraw(a, w); delivered {
		return r.Message, r.err
	}
	return Message{}, cause
}

// withdraw ends a wait. A message that was delivered in the same moment is not lost.
func (b *Inbox) withdraw(a address, w chan result) (result, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if x := b.boxes[a]; x != nil {
		for i := range x.waiters {
			if x.waiters[i] == w {
				x.waiters = append(x.waiters[:i:i], x.waiters[i+1:]...)
				break
			}
		}
		b.tidy(a, x)
	}
	select {
	case r := <-w:
		return r, true
	default:
		return result{}, false
	}
}

// Depart says that nothing more will come from a rank. Messages that have arrived can still be
// received.
func (b *Inbox) Depart(from int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone[from] != nil {
		return
	}
	b.gone[from] = err
	if c := b.leave[from]; c != nil {
		close(c)
	}
	for a, x := range b.boxes {
		if a.from == from {
			b.failWaiters(a, x, err)
		}
	}
}

// Departed returns why a rank has left; nil if it has not.
func (b *Inbox) Departed(from int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gone[from]
}

// Departure returns a channel that is closed when a rank has left.
func (b *Inbox) Departure(from int) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leave == nil {
		b.leave = map[int]chan struct{}{}
	}
	c := b.leave[from]
	if c == nil {
		c = make(chan struct{})
		b.leave[from] = c
		if b.gone[from] != nil {
			close(c)
		}
	}
	return c
}

func (b *Inbox) failWaiters(a address, x *box, err error) {
	for _, w := range x.waiters {
		w <- result{err: err}
	}
	x.waiters = nil
	b.tidy(a, x)
}

// Close ends all waits with err and closes what was never received.
func (b *Inbox) Close(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed != nil {
		return
	}
	b.closed = err
	for a, x := range b.boxes {
		for _, m := range x.messages {
			_ = m.Parcel.Close()
		}
		x.messages = nil
		b.failWaiters(a, x, err)
	}
}
