package tcp

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
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
	g.held = g.ask(g.held, question{own: true})
	return true, g.writeFirst(nil, nil)
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

// listen notices the end of a stream on which nothing ever comes back.
func (g *outbound) listen(s *stream) {
	var b [1]byte
	n, err := s.conn.Read(b[:])
	if n > 0 {
		err = errors.New("an answer on a stream for stripes")
	}
	select { // the first stream may still have to say why
	case <-g.over:
	case <-time.After(lastWord):
	}
	g.ended(err)
}

// ended is called when a stream cannot be read any more.
func (g *outbound) ended(err error) {
	if errors.Is(err, io.EOF) {
		err = errors.New("connection closed by the peer's plugin, which has ended")
	}
	g.fail(fmt.Errorf("%w: %w", framework.ErrPeer, err))
}

// answers completes flushes in order, until the first stream ends.
func (g *outbound) answers() {
	var head [answerBytes]byte
	in := g.streams[0].conn
	for {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			g.ended(err)
			return
		}
		a, text, err := decodeAnswer(head[:])
		if err == nil && text > 0 {
			b := make([]byte, text)
			if _, err = io.ReadFull(in, b); err == nil {
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

// complete tells whoever waits for a flush.
func (g *outbound) complete(q question) {
	if q.own {
		g.settled <- struct{}{}
	} else {
		g.p.ring.Load().Complete(q.word, q.position)
	}
}

// parted reports whether the peer has left in order.
func (g *outbound) parted() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.left && g.gone != nil
}
