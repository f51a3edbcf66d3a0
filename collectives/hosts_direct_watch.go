package collectives

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
)

// watch tells of what kernels have left in the note, of waits that they have left, here or
// inside the host, and of counterparts that have left the job while kernels wait for them.
// It makes no calls of the driver, so that it does not disturb a capture.
func (d *direct) watch() {
	defer close(d.ended)
	tick := time.NewTicker(stallTick)
	defer tick.Stop()
	world := d.ports.courier.world
	late, since := uint64(0), time.Now()
	for {
		select {
		case <-d.end:
			return
		case <-world.Done():
			return
		case <-tick.C:
		}
		err := d.contradiction()
		begun := atomic.LoadUint64(&d.note.Begun)
		if begun != late || atomic.LoadUint64(&d.note.Ended) >= begun {
			late, since = begun, time.Now()
		} else if err == nil {
			err = d.deserted(begun, since)
		}
		if err == nil {
			err = d.mail.trouble()
		}
		if err != nil {
			world.Abort(err)
			return
		}
		d.overdue()
	}
}

// overdue ends the communicator with a wait that was left: what kernels behind it have given
// the caller is worth nothing. Without it the next call would tell, if there is one; and of a
// wait inside the host the communicator itself knows nothing.
func (d *direct) overdue() {
	_ = d.ports.courier.world.Overdue()
	if g := d.ports.hierarchy.group; g != nil {
		_ = g.Overdue()
	}
}

// contradiction is what a kernel has found in a slot: the head of another call.
func (d *direct) contradiction() error {
	if atomic.LoadUint32(&d.note.Found) != 1 {
		return nil
	}
	h := d.ports.hierarchy
	return d.ports.disagreement(h.Hosts[d.note.Host][h.Index], d.note.Theirs, d.note.Ours)
}

// deserted says that a counterpart has left the job in good order, for which a kernel
// has waited in an exchange for some time.
func (d *direct) deserted(exchange uint64, since time.Time) error {
	for _, ch := range d.channels {
		if ch == nil {
			continue
		}
		if err := ch.Deserted(since); err != nil && atomic.LoadUint64(&d.note.Ended) < exchange {
			return err
		}
	}
	return nil
}

// signatureOf takes the head of a slot apart.
func signatureOf(words [4]uint64) signature {
	low, high := uint32(words[2]), uint32(words[2]>>32)
	return signature{
		Sequence: words[0], Count: words[1], Type: low & 0xff, Op: low >> 8 & 0xff, Root: low >> 16,
		Collective: high >> 24, Algorithm: high & 0xffffff,
	}
}

// disagreement is the error of heads that differ.
func (p *ports) disagreement(peer int, theirs, ours [4]uint64) error {
	a, b := signatureOf(theirs), signatureOf(ours)
	return &framework.Error{Op: "call " + fmt.Sprint(b.Sequence), Peer: peer, Err: fmt.Errorf(
		"%w: ranks disagree: rank %d: %s (call %d, a piece of %d bytes); rank %d: %s (a piece of %d bytes expected)", framework.ErrInvalid,
		peer, p.describe(&a), a.Sequence, theirs[3], p.comm.Rank(), p.describe(&b), ours[3])}
}
