package tcp

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
)

// A host that loses its power or its cable closes no connection. The kernels
// exchange signs of life (TCP keep-alive), and a watcher looks when the last one
// came: TCP itself goes on to send again for a quarter of an hour. The kernel
// answers for a process that is merely stopped, so a stopped job is not a dead one.
// TCP_USER_TIMEOUT would end it, since it counts time with a closed window too.

// watch ends the group when the host of the peer is silent for too long.
func (g *outbound) watch() {
	bound := g.p.t.config.PeerTimeout
	tick := time.NewTicker(bound / 10)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-g.over:
			return
		}
		for n, s := range g.streams {
			if q := silence(s.wire); q.dead(bound) {
				g.fail(fmt.Errorf("%w: its host has been silent for %v on stream %d: expected a sign of life within %v (option peer_timeout)",
					framework.ErrPeer, q.since.Round(time.Millisecond), n, bound))
				return
			}
		}
	}
}

// silent is how long the other kernel has said nothing, and what it was asked.
type silent struct {
	since  time.Duration
	closed bool          // the peer's process does not read: its window is 0
	probe  time.Duration // until the kernel asks for the window again
}

// dead judges a silence. With a closed window the kernel sends no signs of life and
// asks ever less often; then the silence between two such questions means nothing.
func (q silent) dead(bound time.Duration) bool {
	if q.closed {
		bound = max(bound, 3*q.probe)
	}
	return q.since > bound
}

func silence(w *wire) (q silent) {
	_ = w.use(func(fd int) { // if it is closed, its reader knows
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return
		}
		q.since = time.Duration(info.Last_ack_recv) * time.Millisecond
		if q.closed = info.Snd_wnd == 0; q.closed {
			q.probe = min(time.Duration(info.Rto)*time.Microsecond<<min(info.Backoff, 20), 2*time.Minute)
		}
	})
	return q
}
