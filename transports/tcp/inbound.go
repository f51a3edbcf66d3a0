package tcp

import (
	"crypto/subtle"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
)

// inbound is the receiving side of one proxy's streams. Each has a reader. That of
// the first one performs everything in order; for a put with stripes it lets the
// others perform theirs, and performs nothing more before they have.
type inbound struct {
	from *endpoint
	id   [16]byte

	mu      sync.Mutex
	turn    sync.Cond // the fields below have changed
	streams []*wire
	done    []uint64 // by stream: the last put of which it has performed a stripe
	round   uint64   // the put whose stripes may be performed
	pending int      // parts that are not performed yet
	ended   bool

	table [handles]*region // written by the first stream's reader
	out   sync.Mutex       // answers
	reply []byte
}

func newInbound(e *endpoint, h hello) *inbound {
	g := &inbound{from: e, id: h.group, streams: make([]*wire, h.streams), done: make([]uint64, h.streams)}
	g.turn.L = &g.mu
	return g
}

// join adds a stream. It reports whether there is a place for it.
func (g *inbound) join(n, of int, w *wire) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended || of != len(g.streams) || g.streams[n] != nil {
		return false
	}
	g.streams[n] = w
	return true
}

// unjoin takes a stream out whose handshake failed in the end. Without its first one a
// group is none.
func (g *inbound) unjoin(n int) {
	if n == 0 {
		g.end()
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.streams[n].close()
	g.streams[n] = nil
}

// end closes all streams of the group.
func (g *inbound) end() {
	g.mu.Lock()
	g.ended = true
	for _, w := range g.streams {
		if w != nil {
			w.close()
		}
	}
	g.turn.Broadcast()
	g.mu.Unlock()
	g.from.part(g)
}

// leave tells the sender that the endpoint is closed.
func (g *inbound) leave() {
	_ = g.answer(answer{verdict: answerLeft})
	g.end()
}

// answer writes to the first stream. It does not wait: a peer that leaves a whole buffer of answers
// unread waits for none of them.
func (g *inbound) answer(a answer) (err error) {
	g.mu.Lock()
	first := g.streams[0]
	g.mu.Unlock()
	g.out.Lock()
	defer g.out.Unlock()
	g.reply = a.append(g.reply[:0])
	gone := first.use(func(fd int) {
		err = unix.Sendto(fd, g.reply, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
	})
	if gone != nil {
		return gone
	}
	return os.NewSyscallError("sendto", err)
}

// serve performs what comes over one stream until it ends. A frame that cannot be
// performed ends the group: its sender made a mistake, or its target was closed.
func (g *inbound) serve(n int) {
	defer g.end()
	in, err := newReader(g.streams[n])
	if err != nil {
		return
	}
	defer in.free()
	next, perform := in.next, g.perform
	if n > 0 {
		next = func(head []byte) (bool, error) { return false, in.full(head) }
		perform = func(f frame, in *reader) error { return g.performStripe(n, f, in) }
	}
	head := make([]byte, frameBytes)
	for {
		last, err := next(head)
		if err != nil {
			return
		}
		f, err := decodeFrame(head)
		if last {
			_ = g.table[f.handle].mem.Close()
			continue
		}
		if err == nil {
			err = perform(f, in)
		}
		if err != nil {
			if framework.Class(err) != nil { // else the stream has ended
				_ = g.answer(answer{verdict: answerRefused, text: err.Error()})
			}
			return
		}
	}
}

// perform does what a frame of the first stream asks for, if the loop in C did not.
func (g *inbound) perform(f frame, in *reader) error {
	switch f.kind {
	case frameOpen:
		return g.open(f, in)
	case frameStripe:
		if err := g.begin(f); err != nil {
			return err
		}
		if err := g.put(f, in); err != nil {
			return err
		}
		return g.settled() // nothing is performed before all of it is there
	case framePut:
		return g.put(f, in)
	case frameSignal:
		r, err := g.region(f.handle)
		if err != nil {
			return err
		}
		defer r.release()
		return r.raise(f.offset)
	case frameFlush:
		return g.answer(answer{verdict: answerDone, number: f.number})
	}
	return nil
}

// open lets a handle stand for memory whose key the sender has.
func (g *inbound) open(f frame, in *reader) error {
	var body [openBytes]byte
	if err := in.full(body[:]); err != nil {
		return err
	}
	if g.table[f.handle] != nil {
		return fmt.Errorf("%w: handle %d is in use", framework.ErrPeer, f.handle)
	}
	// One answer for memory that is not there and for a wrong token: a guesser learns nothing.
	r, err := find[*region](g.transport(), framework.ID(order.Uint64(body[:])), "registration")
	if err != nil || subtle.ConstantTimeCompare(body[8:], r.token[:]) != 1 {
		return fmt.Errorf("%w: memory that was closed, or not meant for this peer", framework.ErrPeer)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.table[f.handle] = r
	in.know(f.handle, r.span)
	return nil
}

func (g *inbound) transport() *Transport { return g.from.owner }

// region returns the memory of a handle, in use; the caller releases it.
func (g *inbound) region(handle uint32) (*region, error) {
	r := g.table[handle]
	if r == nil {
		return nil, fmt.Errorf("%w: handle %d stands for nothing", framework.ErrPeer, handle)
	}
	if !r.retain() {
		return nil, fmt.Errorf("%w: the memory was closed", framework.ErrPeer)
	}
	return r, nil
}

// put reads data straight into memory.
func (g *inbound) put(f frame, in *reader) error {
	r, err := g.region(f.handle)
	if err != nil {
		return err
	}
	defer r.release()
	to, err := r.slice(f.offset, f.bytes)
	if err != nil {
		return err
	}
	return in.full(to)
}

// settled waits until the other streams have performed their stripes.
func (g *inbound) settled() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.pending != 0 && !g.ended {
		g.turn.Wait()
	}
	if g.ended {
		return net.ErrClosed
	}
	return nil
}

// begin lets the other streams perform their stripes of a put.
func (g *inbound) begin(f frame) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f.number != g.round+1 || int(f.others) >= len(g.streams) {
		return fmt.Errorf("%w: put %d over %d more streams: expected put %d, and %d streams at most", framework.ErrPeer, f.number, f.others, g.round+1, len(g.streams)-1)
	}
	g.round = f.number
	g.pending = int(f.others)
	g.turn.Broadcast()
	return nil
}

// performStripe does what a frame of another stream asks for.
func (g *inbound) performStripe(n int, f frame, in *reader) error {
	if f.kind != frameStripe || f.others != 0 {
		return fmt.Errorf("%w: frame of kind %d on a stream for stripes", framework.ErrPeer, f.kind)
	}
	g.mu.Lock()
	for g.round < f.number && !g.ended {
		g.turn.Wait()
	}
	late, ended := g.round != f.number || g.pending == 0 || g.done[n] == f.number, g.ended
	g.mu.Unlock()
	switch {
	case ended:
		return net.ErrClosed
	case late:
		return fmt.Errorf("%w: stripe of put %d, which is over", framework.ErrPeer, f.number)
	}
	if err := g.put(f, in); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.done[n] = f.number
	if g.pending--; g.pending == 0 {
		g.turn.Broadcast()
	}
	return nil
}
