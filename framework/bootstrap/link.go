package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/failure"
)

// queueLimit is how much may wait to be written to one peer before Send waits.
const queueLimit = 64 << 20

// link is a connection to one peer. Frames are queued, and written by a goroutine
// that lives while there is something to write: so a context can end a Send
// without cutting a frame in two, and an idle link costs one goroutine.
type link struct {
	peer int
	conn *net.TCPConn

	mu      sync.Mutex
	queue   [][]byte
	queued  int
	writing bool
	err     error         // the link is broken or closed
	changed chan struct{} // closed when the queue shrinks or the link breaks
	ended   chan struct{} // closed when the reader has ended
}

func newLink(peer int, conn *net.TCPConn) *link {
	return &link{peer: peer, conn: conn, changed: make(chan struct{}), ended: make(chan struct{})}
}

var errFull = errors.New("queue is full")

// push queues a frame. Control frames always fit: they are few and must pass.
func (l *link) push(b []byte, control bool, spawn func(func())) (wait <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	if !control && l.queued > 0 && l.queued+len(b) > queueLimit {
		return l.changed, errFull
	}
	l.queue = append(l.queue, b)
	l.queued += len(b)
	if !l.writing {
		l.writing = true
		spawn(l.write)
	}
	return nil, nil
}

// send queues a frame, waiting for room until ctx or the end of the job.
func (l *link) send(ctx context.Context, b []byte, job *failure.State, spawn func(func())) error {
	for {
		wait, err := l.push(b, false, spawn)
		if !errors.Is(err, errFull) {
			return err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return fmt.Errorf("the peer does not read: %w", context.Cause(ctx))
		case <-job.Done():
			return job.Cause()
		}
	}
}

// write empties the queue.
func (l *link) write() {
	for {
		l.mu.Lock()
		if len(l.queue) == 0 || l.err != nil {
			l.writing = false
			l.signal()
			l.mu.Unlock()
			return
		}
		b := l.queue[0]
		l.queue[0] = nil
		l.queue = l.queue[1:]
		l.mu.Unlock()
		_, err := l.conn.Write(b)
		l.mu.Lock()
		l.queued -= len(b)
		if err != nil && l.err == nil {
			// The reader notices as well, and decides what it means.
			l.err = fmt.Errorf("%w: %w", framework.ErrPeer, err)
		}
		l.signal()
		l.mu.Unlock()
	}
}

func (l *link) signal() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// flush waits until everything queued is with the kernel.
func (l *link) flush(ctx context.Context) {
	for {
		l.mu.Lock()
		idle, wait := !l.writing || l.err != nil, l.changed
		l.mu.Unlock()
		if idle {
			return
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return
		}
	}
}

// fail breaks the link on this side.
func (l *link) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
		l.queue = nil
		l.signal()
	}
}

// close ends the link in order: what is queued goes out, then both sides see the
// end. Closing at once would make the kernel answer data still under way with a
// reset, which can destroy what the peer has not read yet.
func (l *link) close(ctx context.Context) {
	if d, ok := ctx.Deadline(); ok {
		_ = l.conn.SetWriteDeadline(d)
	} else {
		_ = l.conn.SetWriteDeadline(time.Now())
	}
	l.flush(ctx)
	_ = l.conn.CloseWrite()
	select {
	case <-l.ended:
	case <-ctx.Done():
	}
	l.fail(failure.ErrClosed)
	_ = l.conn.Close()
}
