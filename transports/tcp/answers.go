package tcp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/observe"
)

// lastWord is how long the end of another stream waits for the first one to tell why.
const lastWord = time.Second

// settle waits until everything that was sent is there.
func (g *outbound) settle() error {
	busy, err := g.askOwn()
	if err != nil || !busy {
		return err
	}
	select {
	case <-g.settled:
		return nil
	case <-g.over:
		if g.shut() || g.parted() {
			return nil
		}
		return g.usable()
	}
}

// askOwn sends a flush of the proxy's own, if there is anything to wait for. A peer
// that has left is owed nothing.
func (g *outbound) askOwn() (busy bool, err error) {
	g.use.Lock()
	defer g.use.Unlock()
	if g.shut() || g.parted() || !g.fresh && !g.owed() {
		return false, nil
	}
	if err := g.usable(); err != nil {
		return false, err
	}
	g.held = g.ask(g.held, pendingFlush{own: true})
	return true, g.writeFirst()
}

func (g *outbound) owed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.pending) > 0
}

func (g *outbound) shut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// listen waits until one of the streams has something to say, and returns which. fds has
// room for the numbers of all, since this is on the path of every flush.
func (g *outbound) listen(fds []int32) (int, error) {
	held := 0
	defer func() {
		for _, s := range g.streams[:held] {
			s.wire.mu.RUnlock()
		}
	}()
	fds = fds[:0]
	for _, s := range g.streams {
		s.wire.mu.RLock()
		held++
		if s.wire.fd < 0 {
			return 0, net.ErrClosed
		}
		fds = append(fds, int32(s.wire.fd))
	}
	return awaitAny(fds), nil
}

// last reads what a stream for stripes says: nothing, but that it has ended.
func (g *outbound) last(n int) (why error) {
	err := g.streams[n].wire.use(func(fd int) {
		var b [1]byte
		got, _, err := unix.Recvfrom(fd, b[:], unix.MSG_DONTWAIT)
		switch {
		case err != nil:
			why = os.NewSyscallError("recvfrom", err)
		case got == 0:
			why = io.EOF
		default:
			why = errors.New("an answer on a stream for stripes")
		}
	})
	return errors.Join(err, why)
}

// ended is called when a stream cannot be read any more.
func (g *outbound) ended(err error) {
	if errors.Is(err, io.EOF) {
		err = errors.New("connection closed by the peer's plugin, which has ended")
	}
	g.fail(fmt.Errorf("%w: %w", framework.ErrPeer, err))
}

// answers completes flushes in order, until a stream ends.
func (g *outbound) answers() {
	head := make([]byte, answerBytes)
	in, err := newReader(g.streams[0].wire)
	if err != nil {
		g.ended(err)
		return
	}
	defer in.free()
	fds := make([]int32, 0, maxStreams)
	for alone := false; ; {
		if !alone && !in.kept() {
			n, err := g.listen(fds)
			if err == nil && n > 0 {
				// The first stream may still have to say why.
				why := g.last(n)
				defer time.AfterFunc(lastWord, func() { g.ended(why) }).Stop()
				alone = true
			}
			if err != nil {
				g.ended(err)
				return
			}
		}
		if err := in.full(head); err != nil {
			g.ended(err)
			return
		}
		a, text, err := decodeAnswer(head)
		if err == nil && text > 0 {
			b := make([]byte, text)
			if err = in.full(b); err == nil {
				a.text = string(b)
			}
		}
		switch {
		case err != nil:
			g.ended(err)
			return
		case a.verdict == answerDone:
			err = g.done(a.number)
		case a.verdict == answerLeft:
			g.mu.Lock()
			g.left = true
			g.mu.Unlock()
			err = fmt.Errorf("%w: it has closed its side of the link", framework.ErrPeer)
		default:
			err = fmt.Errorf("%w: it refused a request: %q", framework.ErrPeer, a.text)
		}
		if err != nil {
			g.fail(err)
			return
		}
	}
}

// done completes the oldest flush.
func (g *outbound) done(number uint64) error {
	g.mu.Lock()
	if len(g.pending) == 0 || g.pending[0].number != number {
		g.mu.Unlock()
		return fmt.Errorf("%w: answer to flush %d, which was not asked for", framework.ErrPeer, number)
	}
	q := g.pending[0]
	copy(g.pending, g.pending[1:])
	g.pending = g.pending[:len(g.pending)-1]
	g.mu.Unlock()
	g.complete(q)
	return nil
}

// complete wakes the waits for a flush.
func (g *outbound) complete(q pendingFlush) {
	if q.own {
		g.settled <- struct{}{}
	} else {
		if g.p.records.Wanted() {
			g.p.records.Write(observe.Completed|observe.Instant, q.position, 0, 0, g.peer)
		}
		g.p.ring.Load().Complete(q.word, q.position)
	}
}

// parted reports whether the peer has left in order.
func (g *outbound) parted() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.left && g.gone != nil
}
