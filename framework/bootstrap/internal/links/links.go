// Package links has the connections between ranks.
package links

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/failure"
	"github.com/mscclpp-go/mscclpp/internal/lastwords"
)

// queueLimit is how much may wait to be written to one peer before Send waits.
const queueLimit = 64 << 20

// Link is a connection to one peer. Frames are queued, and written by a goroutine
// that lives while there is something to write: so a context can end a Send
// without cutting a frame in two, and an idle link costs one goroutine.
type Link struct {
	Peer int
	Conn *net.TCPConn
	last *lastwords.Slot // the goodbye of a process that exits

	mu      sync.Mutex
	queue   [][]byte
	queued  int
	writing bool
	err     error         // the link is broken or closed
	changed chan struct{} // closed when the queue shrinks or the link breaks
	Ended   chan struct{} // closed when the reader has ended
}

// New returns a link over a connection.
func New(peer int, conn *net.TCPConn) *Link {
	return &Link{Peer: peer, Conn: conn, changed: make(chan struct{}), Ended: make(chan struct{})}
}

// Ready has a goodbye lie ready for the case that the process exits without another one.
func (l *Link) Ready(message []byte) {
	if raw, err := l.Conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { l.last = lastwords.Register(fd, message) })
	}
}

// Count changes how many parcels that goodbye names.
func (l *Link) Count(sent uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last.Count(sent)
}

// Shut closes the connection.
func (l *Link) Shut() {
	l.mu.Lock()
	l.last.Release()
	l.last = nil // it may be another link's from now on
	l.mu.Unlock()
	_ = l.Conn.Close()
}

var errFull = errors.New("queue is full")

// Push queues a frame. Control frames always fit: they are few and must pass.
func (l *Link) Push(b []byte, control bool, spawn func(func())) (wait <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	if !control && l.queued > 0 && l.queued+len(b) > queueLimit {
		return l.changed, errFull
	}
	if !l.writing && !l.last.Begin() {
		return nil, failure.ErrClosed // the process exits
	}
	l.queue = append(l.queue, b)
	l.queued += len(b)
	if !l.writing {
		l.writing = true
		spawn(l.write)
	}
	return nil, nil
}

// Send queues a frame, waiting for room until ctx or the end of the job.
func (l *Link) Send(ctx context.Context, b []byte, job *failure.State, spawn func(func())) error {
	for {
		wait, err := l.Push(b, false, spawn)
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
func (l *Link) write() {
	for {
		l.mu.Lock()
		if len(l.queue) == 0 || l.err != nil {
			l.writing = false
			l.last.End()
			l.signal()
			l.mu.Unlock()
			return
		}
		b := l.queue[0]
		l.queue[0] = nil
		l.queue = l.queue[1:]
		l.mu.Unlock()
		_, err := l.Conn.Write(b)
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

func (l *Link) signal() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Flush waits until everything queued is with the kernel.
func (l *Link) Flush(ctx context.Context) {
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

// Fail breaks the link on this side.
func (l *Link) Fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
		l.queue = nil
		l.signal()
	}
}

// Close ends the link in order: what is queued goes out, then both sides see the
// end. Closing at once would make the kernel answer data still under way with a
// reset, which can destroy what the peer has not read yet.
func (l *Link) Close(ctx context.Context) {
	if d, ok := ctx.Deadline(); ok {
		_ = l.Conn.SetWriteDeadline(d)
	} else {
		_ = l.Conn.SetWriteDeadline(time.Now())
	}
	l.Flush(ctx)
	_ = l.Conn.CloseWrite()
	select {
	case <-l.Ended:
	case <-ctx.Done():
	}
	l.Fail(failure.ErrClosed)
	l.Shut()
}
