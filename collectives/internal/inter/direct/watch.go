package direct

import (
	"sync/atomic"
	"time"
)

// tickOfWatch is how often the watch looks.
const tickOfWatch = 250 * time.Millisecond

// watch tells of what kernels have left in the note, of waits that they have left, here or
// inside the host, and of counterparts that have left the job while kernels wait for them.
// It makes no calls of the driver, so that it does not disturb a capture.
func (d *Engine) watch() {
	defer close(d.ended)
	tick := time.NewTicker(tickOfWatch)
	defer tick.Stop()
	world := d.queue.World
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
			err = d.sendrecv.trouble()
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
func (d *Engine) overdue() {
	_ = d.queue.World.Overdue()
	if g := d.queue.Inside.Group(); g != nil {
		_ = g.Overdue()
	}
}

// contradiction is what a kernel has found in a slot: the head of another call.
func (d *Engine) contradiction() error {
	if atomic.LoadUint32(&d.note.Found) != 1 {
		return nil
	}
	h := d.queue
	return d.queue.Session.Disagreement(h.Hosts[d.note.Host][h.Index], d.note.Theirs, d.note.Ours)
}

// deserted says that a counterpart has left the job in good order, for which a kernel
// has waited in an exchange for some time.
func (d *Engine) deserted(exchange uint64, since time.Time) error {
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
