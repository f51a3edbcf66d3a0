// Package stream lets a rank drive connected sockets itself. A transport makes and authenticates
// them, and hands them over (framework.Description.Streams); from then on no other process is
// between the rank and its peer. Without that a small message wakes four processes on its way, with
// it none: a thread that waits for a signal looks at the socket meanwhile, and a thread that pushes
// a trigger sends what it asks for.
//
// An Engine has the sockets of a communicator, a Link those to one peer, and a Queue
// drains one trigger ring. A thread in one of these calls drives the sockets that it
// waits for. A thread of the engine does it when nobody waits: it sleeps in poll, and
// only looks now and then while others drive, since each packet would wake it. A thread
// of the queue serves kernels, which push triggers and cannot send.
//
// Nothing blocks in a send. Bytes that a socket does not take stay in the ring, or with the link,
// until some thread drives it on; locks are held by sending or receiving threads alone, and never
// while one sleeps.
//
// # The wire
//
// Both ends speak by frames of 32 bytes, little endian:
//
//	u8 kind | u8 others | u16 0 | u32 handle | u64 offset | u64 bytes | u64 number
//
//	2 put     handle, offset, bytes; the data follows
//	3 stripe  the same, for a part of a large put. The first socket names the put by
//	          number (1, 2, …) and says how many others, from the second on, have one
//	          part each; those say the number alone. Nothing behind it is performed
//	          before all parts are there.
//	4 signal  the word at offset of handle is raised by one
//	5 flush   number (1, 2, …); it is answered when all before it is performed
//	6 done    number of the last flush that was performed
//	7 bye     the sender leaves; it is owed nothing, and what is sent to it is dropped
//
// All but stripes travel over the first socket, in both directions. A handle is a number
// that the receiver has sent to the sender through the bootstrap: it stands for memory that
// was opened to this peer over this link, and its bounds are checked. A frame that makes
// no sense ends the link.
package stream

// #cgo CFLAGS: -O2 -std=gnu11 -Wall -Wextra -I${SRCDIR}/../kernel/include
// #cgo noescape mscclpp_stream_await
// #cgo nocallback mscclpp_stream_await
// #cgo nocallback mscclpp_stream_drain
// #cgo nocallback mscclpp_stream_give
// #cgo noescape mscclpp_stream_sent
// #cgo nocallback mscclpp_stream_sent
// #cgo nocallback mscclpp_stream_later
// #include <stdlib.h>
// #include "engine.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
)

// MaxSockets is how many sockets a link may have.
const MaxSockets = C.mscclpp_stream_most

// DefaultStripe is how many bytes of a put are worth a socket of their own, where the
// transport says nothing.
const DefaultStripe = 1 << 20

// Engine drives the sockets of one communicator.
type Engine struct {
	c    *C.mscclpp_stream_engine
	done chan struct{} // its thread has ended

	mu     sync.Mutex
	links  map[*Link]struct{}
	queues map[*Queue]struct{}
	failed error // of a link: no queue goes on after that
	closed bool
}

// NewEngine starts an engine.
func NewEngine() (*Engine, error) {
	c := C.mscclpp_stream_engine_new()
	if c == nil {
		return nil, fmt.Errorf("%w: engine for streams: no memory, or no descriptor is left", framework.ErrUnavailable)
	}
	e := &Engine{c: c, done: make(chan struct{}), links: make(map[*Link]struct{}), queues: make(map[*Queue]struct{})}
	go e.run()
	return e, nil
}

// run is the thread that drives what nobody else does.
func (e *Engine) run() {
	runtime.LockOSThread() // and never unlocked: the thread ends with its changed signal mask
	defer close(e.done)
	for C.mscclpp_stream_run(e.c) != 0 {
		e.mu.Lock()
		for l := range e.links {
			if err := l.state(); err != nil && e.failed == nil {
				e.failed = err
			}
		}
		if e.failed != nil {
			for q := range e.queues {
				q.fail(e.failed)
			}
		}
		e.mu.Unlock()
	}
}

// Close ends the engine. Its links and queues were closed before.
func (e *Engine) Close() error {
	e.mu.Lock()
	left := len(e.links) + len(e.queues)
	first := !e.closed && left == 0
	e.closed = e.closed || left == 0
	e.mu.Unlock()
	if left > 0 {
		return fmt.Errorf("%w: engine for streams: %d links and queues are open", framework.ErrInvalid, left)
	}
	if first {
		C.mscclpp_stream_stop(e.c)
		<-e.done
		C.mscclpp_stream_engine_free(e.c)
	}
	return nil
}

// Link is the sockets to one peer.
type Link struct {
	e    *Engine
	c    *C.mscclpp_stream_link
	peer int
	pins map[uint32]*runtime.Pinner // of what Point was given, by handle; of Engine.mu
}

// Link makes a link to a peer of sockets that both ends have in the same order. It
// duplicates them. A put is cut into parts of at least stripe bytes, one for each
// socket; 0 is DefaultStripe.
func (e *Engine) Link(peer int, sockets []*os.File, stripe uint64) (*Link, error) {
	if len(sockets) < 1 || len(sockets) > MaxSockets {
		return nil, fmt.Errorf("%w: %d streams: expected 1 to %d", framework.ErrInvalid, len(sockets), MaxSockets)
	}
	if stripe == 0 {
		stripe = DefaultStripe
	}
	fds := make([]C.int, 0, len(sockets))
	drop := func() {
		for _, fd := range fds {
			unix.Close(int(fd))
		}
	}
	for i, s := range sockets {
		fd, err := dupSocket(s)
		if err != nil {
			drop()
			return nil, fmt.Errorf("stream %d: %w", i, err)
		}
		fds = append(fds, C.int(fd))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		drop()
		return nil, fmt.Errorf("%w: engine for streams", framework.ErrClosed)
	}
	c := C.mscclpp_stream_link_new(e.c, unsafe.SliceData(fds), C.int(len(fds)), C.uint64_t(max(stripe, 4096)))
	if c == nil {
		drop()
		return nil, fmt.Errorf("%w: stream link: no memory, or more than %d links", framework.ErrUnavailable, C.mscclpp_stream_links)
	}
	l := &Link{e: e, c: c, peer: peer}
	e.links[l] = struct{}{}
	return l, nil
}

// dupSocket refuses what is no connected stream socket.
func dupSocket(f *os.File) (int, error) {
	if f == nil {
		return -1, fmt.Errorf("%w: no descriptor", framework.ErrInvalid)
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	gone := raw.Control(func(from uintptr) {
		var kind int
		kind, err = unix.GetsockoptInt(int(from), unix.SOL_SOCKET, unix.SO_TYPE)
		if err != nil || kind != unix.SOCK_STREAM {
			err = fmt.Errorf("%w: it is no stream socket (%v)", framework.ErrInvalid, err)
			return
		}
		fd, err = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 0)
	})
	return fd, errors.Join(gone, err)
}

// state says why the link has ended, once.
func (l *Link) state() error {
	var code C.int32_t
	var head [C.mscclpp_stream_head]byte
	state := C.mscclpp_stream_link_state(l.c, &code, (*C.char)(unsafe.Pointer(&head)))
	var why error
	switch state {
	case C.mscclpp_stream_alive:
		return nil
	case C.mscclpp_stream_failed:
		why = os.NewSyscallError("recvmsg", syscall.Errno(code))
	case C.mscclpp_stream_nonsense:
		why = fmt.Errorf("a frame that makes no sense: %x", head)
	default:
		why = errors.New("connection closed by the peer, which has ended")
	}
	return &framework.Error{Op: "stream", Peer: l.peer, Err: fmt.Errorf("%w: %w", framework.ErrPeer, why)}
}

// Expose opens memory to the peer, and returns the handle to tell it.
func (l *Link) Expose(addr uintptr, bytes uint64) (handle uint32, err error) {
	h := C.mscclpp_stream_expose(l.c, at(addr), C.uint64_t(bytes))
	if h < 0 {
		return 0, fmt.Errorf("%w: stream link: no memory for one more handle", framework.ErrUnavailable)
	}
	return uint32(h), nil
}

// Point lets a handle stand for other memory, of which the peer writes no more than that:
// what arrives from now on is written there. Nothing of what stood there before is written
// any more.
func (l *Link) Point(handle uint32, b []byte) {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	if l.c == nil { // closed
		return
	}
	pin := l.pins[handle]
	if pin == nil {
		pin = new(runtime.Pinner)
		if l.pins == nil {
			l.pins = map[uint32]*runtime.Pinner{}
		}
		l.pins[handle] = pin
	}
	C.mscclpp_stream_point(l.c, C.uint32_t(handle), nil, 0) // nothing of what stood there is written any more
	pin.Unpin()
	if len(b) > 0 {
		pin.Pin(unsafe.SliceData(b)) // the engine keeps the address
		C.mscclpp_stream_point(l.c, C.uint32_t(handle), unsafe.Pointer(unsafe.SliceData(b)), C.uint64_t(len(b)))
	}
}

// Withdraw closes it again. When it returns nothing is written there any more; what
// still arrives is dropped.
func (l *Link) Withdraw(handle uint32) { C.mscclpp_stream_withdraw(l.c, C.uint32_t(handle)) }

// Forget makes sure that nothing sends from a range any more. An unflushed put
// costs the link.
func (l *Link) Forget(addr uintptr, bytes uint64) error {
	if C.mscclpp_stream_forget(l.c, at(addr), C.uint64_t(bytes)) == 0 {
		return &framework.Error{Op: "stream", Peer: l.peer, Err: fmt.Errorf("%w: memory was freed while it was being sent", framework.ErrClosed)}
	}
	return nil
}

// Close says goodbye, and closes the sockets. No other call with the link may be in
// progress, and no queue may cite it any more.
func (l *Link) Close() error {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	if _, open := l.e.links[l]; open {
		delete(l.e.links, l)
		C.mscclpp_stream_link_free(l.c)
		l.c = nil
		for _, pin := range l.pins {
			pin.Unpin()
		}
	}
	return nil
}

// at turns an address outside of Go's heap into a pointer.
func at(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// Waits say how long a waiter polls at full speed, and how long it yields its core
// after that, before it sleeps until something arrives.
type Waits struct{ Spin, Yield time.Duration }
