package verbs

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// Signals without atomics. The sender gives each counter that it signals to an entry of a
// table in the peer's mailbox, written like any other data. A signal is an empty write with
// an immediate: the number of the entry, and the low bits of how many signals the counter
// has had. The peer's plugin takes it from its queue, rebuilds the 64-bit count, and raises
// the counter itself. Data that was put before is in place by then: requests of one pair are
// performed in order, and the completion of an immediate comes behind them.
//
// Each immediate takes up one reception. The peer reports how many it has counted, by a write
// into the sender's mailbox, after it has made room again; a sender with as many under way
// as the peer has room for waits. So the peer is never without room. It reports when it has
// counted a quarter of what there is room for, at once when a flush asks, by a signal to an
// entry that stands for no counter, and before it leaves.

// destinations is the sender's side of the table.
type destinations struct {
	flow  *flow
	limit uint64 // signals that the peer has room for

	mu      sync.Mutex
	numbers map[destination]uint32
	counts  [boxEntries]uint32 // low bits of the signals that each entry has had
	sent    uint64
	asked   uint64 // sent, when the peer was asked
}

type destination struct {
	id     framework.ID // of the memory, at the peer
	offset uint64
}

func newDestinations(f *flow, room uint16) *destinations {
	return &destinations{flow: f, limit: uint64(room), numbers: map[destination]uint32{}}
}

// number gives a counter its entry, and writes it for the peer.
func (d *destinations) number(to destination) (uint32, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n, ok := d.numbers[to]; ok {
		return n, nil
	}
	n := uint32(len(d.numbers))
	if n == askEntry {
		return 0, fmt.Errorf("%w: more than %d semaphores over one connection", framework.ErrUnavailable, askEntry)
	}
	box := d.flow.box
	at := boxOut + uint64(n)*boxEntry
	b := box.memory.Bytes()[at : at+boxEntry]
	binary.LittleEndian.PutUint64(b, uint64(to.id))
	binary.LittleEndian.PutUint64(b[8:], to.offset)
	entry := []request{{
		opcode: opWrite, bytes: boxEntry, local: box.region.addr + at, lkey: box.region.lkey,
		remote: d.flow.theirs.mailbox + boxIn + uint64(n)*boxEntry, rkey: d.flow.theirs.rkey,
	}}
	if _, err := d.flow.post(entry, true, nil); err != nil {
		return 0, err
	}
	d.numbers[to] = n
	return n, nil
}

// inquire makes the peer report its count, and returns the count that it must have.
func (d *destinations) inquire(halt *atomic.Bool) (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.asked == d.sent || d.flow.counted() == d.sent { // a peer that has left has reported unasked
		return d.sent, nil
	}
	immediate, err := d.take(askEntry, halt)
	if err != nil {
		return 0, err
	}
	d.asked = d.sent
	one := [1]request{d.signal(immediate)}
	_, err = d.flow.post(one[:], true, halt)
	return d.sent, err
}

// signal is an empty write with an immediate.
func (d *destinations) signal(immediate uint32) request {
	return request{opcode: opWriteImm, role: vouches, remote: d.flow.theirs.mailbox, rkey: d.flow.theirs.rkey, value: uint64(immediate)}
}

// room reports whether the peer has room for a signal, or says what take does not believe.
func (d *destinations) room() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	counted := d.flow.counted()
	return counted > d.sent || d.sent-counted < d.limit
}

// take waits until the peer has room, and returns the immediate of the next signal to an
// entry. The caller posts it before another caller takes one: put makes sure of it.
func (d *destinations) take(n uint32, halt *atomic.Bool) (uint32, error) {
	var start time.Time
	for tries := 0; ; tries++ {
		counted := d.flow.counted()
		if counted > d.sent {
			return 0, fmt.Errorf("%w: it has counted %d signals: expected at most the %d that were sent", framework.ErrPeer, counted, d.sent)
		}
		if d.sent-counted < d.limit {
			break
		}
		if err := d.flow.problem(); err != nil {
			return 0, err
		}
		if halt.Load() {
			return 0, fmt.Errorf("%w: stopped while the peer had no room for a signal", framework.ErrClosed)
		}
		if tries < 100 {
			continue
		}
		// A peer that is gone answers no write, but then none is under way: ask it.
		if start.IsZero() {
			start = time.Now()
		} else if time.Since(start) > askPeerAfter {
			start = time.Time{}
			if err := d.flow.ask(halt); err != nil {
				return 0, err
			}
		}
		if _, _, err := d.flow.progress(); err != nil {
			return 0, err
		}
		ring.Yield()
	}
	d.sent++
	d.counts[n] = (d.counts[n] + 1) & countMask
	return n<<countBits | d.counts[n], nil
}

const askPeerAfter = 500 * time.Millisecond

// ask posts a request that the peer's adapter has to answer.
func (f *flow) ask(halt *atomic.Bool) error {
	one := [1]request{f.question()}
	_, err := f.post(one[:], true, halt)
	return err
}
