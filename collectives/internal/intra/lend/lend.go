// Package lend has communicators give memory up that another communicator of the same device needs.
//
// A rank cannot give memory up alone: peers have mapped it, and copy into it as soon as they begin a call. So the ranks of
// the communicator that has it agree on a place between its calls, each by a goroutine of its own, beside all calls. Rank 0
// leads rounds:
//
//	rank 0                          the others
//	prepare                         nothing that was enqueued uses the memory, and no call begins from here on: yes, or no
//	commit, if all said yes         they take the memory of the peers away: done
//	release, if all have            they free their own, and calls go on; they make new memory, together, as for the first time
//	cancel, otherwise               calls go on
//
// A rank that has said yes waits for rank 0 alone, which decides. Should rank 0 leave, or a rank stay silent, there are no
// more rounds: a communicator without rank 0 makes no calls, and what has not been released stays until the end.
//
// The call that makes new memory waits for the same call of all other ranks, in the program's thread. Ranks whose calls on two
// communicators have different orders would wait for each other there. So ranks meet before: each says that it has come, and
// rank 0 says that all have, or, after a while, that this call has to do without.
package lend

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Link carries messages between the ranks of a communicator, beside its calls.
type Link interface {
	Rank() int
	Size() int
	SendAside(ctx context.Context, to int, data []byte) error
	RecvAside(ctx context.Context, from int) ([]byte, error)
	Done() <-chan struct{}
	Err() error
}

// Owner has the memory.
type Owner interface {
	// Idle reports whether nothing that was enqueued uses the memory. It is asked between calls.
	Idle() bool
	// Unmap takes the memory of the peers away, so that the next call makes new memory.
	Unmap() error
	// Free frees the rank's own, which no peer has mapped any more.
	Free() error
}

const (
	idlePatience  = 300 * time.Millisecond // for what was enqueued to end
	replyPatience = 5 * time.Second        // of rank 0
	enterPatience = 2 * replyPatience      // of a call
	askPatience   = 2 * time.Second        // of a communicator that needs memory
	meetPatience  = time.Second            // of rank 0, for ranks that have always met; each time that they miss each other halves it
	leastMeeting  = time.Millisecond
	lookEvery     = 100 * time.Microsecond
	sendPatience  = time.Second
)

// Communicators that take turns with large calls would each make memory anew for every call. So one that has given it up often keeps
// it, unless it has not been used for a while.
const (
	mostTurns = 4
	unused    = 2 * time.Second
)

// kind is the kind of a message.
type kind byte

const (
	prepare kind = iota + 1 // of rank 0
	commit
	cancel
	release
	request // of the others
	come
	yes
	no
	done
	met // of rank 0
	missed
	gone // of all: there are no more rounds
)

// Lender is a rank of a communicator with such memory. The zero value lends nothing.
type Lender struct {
	link  Link
	owner Owner
	id    uint64
	stop  context.CancelFunc
	group sync.WaitGroup
	asks  chan struct{} // of this process, for rank 0
	comes chan uint64   // that this rank has come, for rank 0

	mu      sync.Mutex
	changed chan struct{}   // closed when rank 0 has said something; nil: there is no waiter
	over    bool            // there are no more
	inside  bool            // a call is being made
	frozen  bool            // a round is about the memory: no call begins
	rounds  int             // that have ended
	offered bool            // there is memory, and no graph uses it
	used    time.Time       // when the last call was made
	turns   int             // how often the memory was given up soon after a call
	meeting uint64          // the number of the last one
	agreed  map[uint64]bool // by the number of a meeting that is over: whether all have come
}

// Start begins to lend. All ranks come here with their first memory, which gives the rounds a number: the same on all ranks,
// and another one than those before on the same link.
func (l *Lender) Start(link Link, owner Owner, d framework.Device, id uint64) {
	if l.stop != nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	l.link, l.owner, l.id, l.stop = link, owner, id, stop
	l.asks, l.comes, l.agreed = make(chan struct{}, 1), make(chan uint64, 1), map[uint64]bool{}
	lenders.add(d, l)
	if link.Rank() == 0 {
		l.group.Go(func() { l.lead(ctx) })
		return
	}
	l.group.Go(func() { l.follow(ctx) })
}

// Stop ends that. The memory is the owner's again.
func (l *Lender) Stop() {
	if l.stop == nil {
		return
	}
	lenders.remove(l)
	_ = l.send(context.Background(), gone, 0) // one that is gone itself needs nothing
	l.stop()
	l.group.Wait()
	l.end()
}

// Enter begins a call that uses the memory, or makes it: it is not given up until Leave. A call that finds a round in progress
// waits for its end.
func (l *Lender) Enter() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.frozen {
		if err := l.thawed(); err != nil {
			return err
		}
	}
	l.inside = true
	return nil
}

// thawed waits until no round is about the memory. The lock is held.
func (l *Lender) thawed() error {
	ctx, stop := context.WithTimeout(context.Background(), enterPatience)
	defer stop()
	for l.frozen {
		if err := l.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// wait waits for rank 0 to say something. The lock is held.
func (l *Lender) wait(ctx context.Context) error {
	changed := l.change()
	l.mu.Unlock()
	defer l.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-l.link.Done():
		return l.link.Err()
	case <-ctx.Done():
		return &framework.Error{Op: "copy scratch", Peer: 0, Err: fmt.Errorf("%w: expected its decision on memory: %w", framework.ErrPeer, ctx.Err())}
	}
}

// Leave ends a call.
func (l *Lender) Leave() {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inside, l.used = false, now
}

// Lends reports whether there was memory already.
func (l *Lender) Lends() bool { return l.stop != nil }

// Offer says whether there is memory that can be given up. A call says so, between Enter and Leave.
func (l *Lender) Offer(is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.offered = is
}

// change is closed when rank 0 has said something next. The lock is held.
func (l *Lender) change() <-chan struct{} {
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.changed
}

// finish ends a round.
func (l *Lender) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.thaw()
}

// end is behind the last round.
func (l *Lender) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	l.thaw()
}

func (l *Lender) thaw() {
	l.frozen = false
	l.rounds++
	l.wake()
}

func (l *Lender) wake() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// freeze reports whether the memory can be given up now, and has calls wait then.
func (l *Lender) freeze(ctx context.Context) bool {
	late := time.Now().Add(idlePatience)
	for {
		frozen, ever := l.tryFreeze()
		if frozen || !ever || time.Now().After(late) {
			return frozen
		}
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return false
		}
	}
}

// tryFreeze does not wait. ever says that it may succeed within a moment.
func (l *Lender) tryFreeze() (frozen, ever bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.willing() {
		return false, false
	}
	l.frozen = !l.inside && l.owner.Idle()
	return l.frozen, true
}

func (l *Lender) willing() bool {
	return l.offered && !l.over && (l.turns < mostTurns || time.Since(l.used) > unused)
}

// unmap has calls that begin from here on make new memory.
func (l *Lender) unmap() error {
	l.mu.Lock()
	l.offered = false
	if l.turns++; time.Since(l.used) > unused {
		l.turns = 0
	}
	l.mu.Unlock()
	return l.owner.Unmap()
}

// Meet waits for all ranks to come here, before a call makes memory. It reports whether they have: the same on all ranks.
func (l *Lender) Meet(ctx context.Context) (all bool, err error) {
	l.mu.Lock()
	l.meeting++
	n, over := l.meeting, l.over
	l.mu.Unlock()
	if over {
		return true, nil // a rank is gone: the call finds out
	}
	if l.link.Rank() == 0 {
		l.comes <- n
	} else if err := l.send(ctx, come, n); err != nil {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		all, known := l.agreed[n]
		if known || l.over {
			delete(l.agreed, n)
			return all || !known, nil
		}
		if err := l.wait(ctx); err != nil {
			return false, err
		}
	}
}

// agree ends a meeting.
func (l *Lender) agree(n uint64, all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.agreed[n] = all
	l.wake()
}

// send sends a message: rank 0 to all others, these to rank 0.
func (l *Lender) send(ctx context.Context, k kind, number uint64) error {
	ctx, stop := context.WithTimeout(ctx, sendPatience)
	defer stop()
	message := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64([]byte{byte(k)}, l.id), number)
	if l.link.Rank() != 0 {
		return l.link.SendAside(ctx, 0, message)
	}
	var all []error
	for r := 1; r < l.link.Size(); r++ {
		all = append(all, l.link.SendAside(ctx, r, message))
	}
	return errors.Join(all...)
}

// hear waits for a message. A rank that cannot be heard is gone.
func (l *Lender) hear(ctx context.Context, from int) (k kind, number uint64) {
	for {
		b, err := l.link.RecvAside(ctx, from)
		if err != nil || len(b) != 17 {
			return gone, 0
		}
		if binary.LittleEndian.Uint64(b[1:]) == l.id { // else it was for rounds that are over
			return kind(b[0]), binary.LittleEndian.Uint64(b[9:])
		}
	}
}
