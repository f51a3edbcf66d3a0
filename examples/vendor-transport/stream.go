package loopnet

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
)

// stream is a proxy's connection to one peer. The drain loop writes; a reader of
// its own takes the answers to flushes.
type stream struct {
	peer int
	conn net.Conn
	out  *bufio.Writer
	head []byte        // reused for every frame
	over chan struct{} // closed when no answer is taken any more

	mu      sync.Mutex
	pending []flush // asked for and not answered, in order
	asked   uint64
	idle    sync.Cond // pending has become empty, or the stream is dead
	dead    error
}

// flush is one that a kernel waits for.
type flush struct {
	number uint64
	done   func() // nil for the proxy's own
}

func newStream(peer int, conn net.Conn, buffer int, died func(error)) *stream {
	s := &stream{peer: peer, conn: conn, out: bufio.NewWriterSize(conn, buffer), head: make([]byte, 0, frameBytes), over: make(chan struct{})}
	s.idle.L = &s.mu
	go func() {
		defer close(s.over)
		err := s.answers()
		s.mu.Lock()
		s.dead = fmt.Errorf("stream to rank %d ended: %v: %w", peer, err, framework.ErrPeer)
		err = s.dead
		s.idle.Broadcast()
		s.mu.Unlock()
		died(err)
	}()
	return s
}

// answers completes flushes in the order of their frames, until the stream ends.
func (s *stream) answers() error {
	var number [8]byte
	for {
		if _, err := io.ReadFull(s.conn, number[:]); err != nil {
			return err
		}
		s.mu.Lock()
		if len(s.pending) == 0 || s.pending[0].number != order.Uint64(number[:]) {
			s.mu.Unlock()
			return fmt.Errorf("answer %d to no question", order.Uint64(number[:]))
		}
		done := s.pending[0].done
		if s.pending = s.pending[1:]; len(s.pending) == 0 {
			s.idle.Broadcast()
		}
		s.mu.Unlock()
		if done != nil {
			done()
		}
	}
}

// send queues a frame and its data; push sends what is queued.
func (s *stream) send(f frame, data []byte) error {
	s.head = f.append(s.head[:0])
	_, err := s.out.Write(s.head)
	if err == nil {
		_, err = s.out.Write(data)
	}
	return s.blame(err)
}

func (s *stream) push() error { return s.blame(s.out.Flush()) }

// ask sends a flush; done is called when the peer has seen all that was sent.
func (s *stream) ask(done func()) error {
	s.mu.Lock()
	s.asked++
	f := frame{Kind: frameFlush, Offset: s.asked}
	s.pending = append(s.pending, flush{s.asked, done})
	s.mu.Unlock()
	if err := s.send(f, nil); err != nil {
		return err
	}
	return s.push()
}

// settle waits until everything that was sent is there.
func (s *stream) settle() error {
	if err := s.ask(nil); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.pending) > 0 && s.dead == nil {
		s.idle.Wait()
	}
	if len(s.pending) == 0 {
		return nil
	}
	return s.dead
}

func (s *stream) blame(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("stream to rank %d: %v: %w", s.peer, err, framework.ErrPeer)
}
