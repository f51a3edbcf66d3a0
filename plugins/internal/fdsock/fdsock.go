// Package fdsock carries file descriptors between a rank process and a plugin.
//
// gRPC cannot carry descriptors, so they travel beside it, over a socket pair that
// the plugin inherits. The sender numbers each descriptor; a gRPC message cites
// the number; the receiver waits, within a bound, until the descriptor with that
// number has arrived. The two sockets are not ordered against each other, which is
// why numbers are needed.
//
// Every descriptor is sent on behalf of a call. Descriptors that are left of a call when it has
// ended are closed, on both sides, so that a failed call leaks nothing:
//
//   - the host knows which of its calls are open, and closes what arrives for any
//     other;
//   - the plugin holds descriptors until the request that cites them is handled;
//     if that will never happen, the host says so with an end message.
//
// The end of the socket is the death of the other side: no timer, no heartbeat.
package fdsock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
)

// claimBound is how long Claim waits for a descriptor that was cited: it was sent
// before the message that cites it, so only a stopped process takes long.
const claimBound = 10 * time.Second

// sendBound limits a send by a caller without a deadline; the kernel buffers
// dozens of messages, so only a stopped receiver makes a sender wait.
const sendBound = 10 * time.Second

// Side says which end of the pair a Conn is; see the package comment.
type Side bool

// The two sides.
const (
	Host   Side = true
	Plugin Side = false
)

// Conn is one end of the socket pair.
type Conn struct {
	side Side
	sock *net.UnixConn
	uid  uint32

	sending sync.Mutex // orders deadlines and messages
	last    atomic.Uint64

	mu    sync.Mutex
	calls map[uint64]*call
	err   error         // why the socket ended
	done  chan struct{} // closed with it
}

// call is what has arrived for one call.
type call struct {
	open    bool // Begin was called, End was not
	files   map[uint64]*os.File
	refused error         // descriptors were lost on the way
	arrived chan struct{} // closed and replaced at each arrival
}

// Pair returns a connected pair: the host's end, and a file for the plugin to
// inherit.
func Pair() (host *os.File, plugin *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, noSocket(framework.ErrUnavailable, err)
	}
	return os.NewFile(uintptr(fds[0]), "control-host"), os.NewFile(uintptr(fds[1]), "control-plugin"), nil
}

// New takes over one end of a pair and starts to receive. The file is closed.
func New(end *os.File, side Side) (*Conn, error) {
	defer end.Close() // FileConn duplicates it
	any, err := net.FileConn(end)
	if err != nil {
		return nil, noSocket(framework.ErrInvalid, err)
	}
	sock, ok := any.(*net.UnixConn)
	if !ok || sock.LocalAddr().Network() != "unixpacket" {
		any.Close()
		return nil, fmt.Errorf("%w: descriptor socket: expected a sequenced-packet Unix socket", framework.ErrInvalid)
	}
	if err := passCredentials(sock); err != nil {
		sock.Close()
		return nil, fmt.Errorf("%w: descriptor socket: %w", framework.ErrUnavailable, err)
	}
	c := &Conn{
		side: side, sock: sock, uid: uint32(os.Getuid()),
		calls: map[uint64]*call{}, done: make(chan struct{}),
	}
	go c.receive()
	return c, nil
}

// noSocket is an error of class, unless all that is missing is a free descriptor.
func noSocket(class, err error) error {
	if errors.Is(err, unix.EMFILE) {
		return fmt.Errorf("%w: descriptor socket: %w: raise the limit of open files (ulimit -n)", framework.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: descriptor socket: %w", class, err)
}

// passCredentials makes the kernel add the sender's identity to each message.
func passCredentials(sock *net.UnixConn) error {
	raw, err := sock.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	if err := raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	}); err != nil {
		return err
	}
	return set
}

// Done is closed when the socket has ended: the other side died or closed it, or
// broke the protocol, or Close was called.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err says why, after Done: io.EOF when the other side is gone.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the socket and closes every descriptor that was not claimed. It
// returns when the receiver has ended.
func (c *Conn) Close() error {
	err := c.sock.Close()
	<-c.done
	return err
}

// Begin opens a call of the host: descriptors that arrive for it are kept.
func (c *Conn) Begin(number uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at(number).open = true
}

// End closes what is left of a call.
func (c *Conn) End(number uint64) {
	c.mu.Lock()
	left := c.calls[number]
	delete(c.calls, number)
	c.mu.Unlock()
	left.close()
}

// Abandon ends a call that failed on its way, on both sides.
func (c *Conn) Abandon(number uint64) {
	c.End(number)
	// The socket is gone when this fails, and with it everything it held.
	_ = c.write(context.Background(), message{kind: kindEnd, call: number}, nil)
}

// Claim takes the descriptor with a number, waiting until it arrives. The caller
// owns it.
func (c *Conn) Claim(ctx context.Context, callNumber, number uint64) (*os.File, error) {
	bound := time.NewTimer(claimBound)
	defer bound.Stop()
	for {
		file, arrived, err := c.take(callNumber, number)
		if file != nil || err != nil {
			return file, err
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return nil, fmt.Errorf("descriptor %d of call %d has not arrived: %w", number, callNumber, ctx.Err())
		case <-bound.C:
			return nil, fmt.Errorf("%w: descriptor %d of call %d has not arrived within %v", framework.ErrInvalid, number, callNumber, claimBound)
		case <-c.done:
			return nil, fmt.Errorf("%w: descriptor %d of call %d: the descriptor socket has ended: %w", framework.ErrPlugin, number, callNumber, c.Err())
		}
	}
}

func (c *Conn) take(callNumber, number uint64) (*os.File, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.at(callNumber)
	if file, ok := k.files[number]; ok {
		delete(k.files, number)
		return file, nil, nil
	}
	if k.refused != nil {
		return nil, nil, k.refused
	}
	return nil, k.arrived, nil
}

// at returns the record of a call; c.mu is held.
func (c *Conn) at(number uint64) *call {
	k := c.calls[number]
	if k == nil {
		k = &call{files: map[uint64]*os.File{}, arrived: make(chan struct{})}
		c.calls[number] = k
	}
	return k
}

func (k *call) close() {
	if k == nil {
		return
	}
	for _, f := range k.files {
		f.Close()
	}
}

// receive runs until the socket ends.
func (c *Conn) receive() {
	err := c.receiveAll()
	if errors.Is(err, net.ErrClosed) {
		err = framework.ErrClosed
	}
	c.sock.Close()
	c.mu.Lock()
	c.err = err
	calls := c.calls
	c.calls = map[uint64]*call{}
	c.mu.Unlock()
	for _, k := range calls {
		k.close()
	}
	close(c.done) // last: Close promises that nothing is left open
}

func (c *Conn) receiveAll() error {
	data := make([]byte, maxMessage+1)
	control := make([]byte, unix.CmsgSpace(4*maxDescriptors)+unix.CmsgSpace(unix.SizeofUcred))
	for {
		n, oobn, flags, _, err := c.sock.ReadMsgUnix(data, control)
		if err != nil {
			return err
		}
		if n == 0 {
			return io.EOF
		}
		files, uid, err := parseControl(control[:oobn])
		if err == nil && uid != c.uid {
			err = fmt.Errorf("%w: descriptor message from user %d, expected %d", framework.ErrInvalid, uid, c.uid)
		}
		var m message
		if err == nil {
			m, err = parse(data[:n])
		}
		if err != nil {
			closeAll(files)
			return err
		}
		c.deliver(m, files, flags&unix.MSG_CTRUNC != 0)
	}
}

// deliver files descriptors under their call, or closes them.
func (c *Conn) deliver(m message, files []*os.File, truncated bool) {
	if m.kind == kindEnd {
		c.End(m.call)
		closeAll(files)
		return
	}
	c.mu.Lock()
	k := c.calls[m.call]
	if c.side == Host && (k == nil || !k.open) {
		c.mu.Unlock()
		closeAll(files)
		return
	}
	k = c.at(m.call)
	if truncated || len(files) != len(m.numbers) {
		// The kernel drops what does not fit into the process's table.
		k.refused = fmt.Errorf("%w: %d of %d descriptors arrived: raise the limit of open files (ulimit -n)",
			framework.ErrUnavailable, len(files), len(m.numbers))
	} else {
		for i, f := range files {
			if old := k.files[m.numbers[i]]; old != nil {
				old.Close()
			}
			k.files[m.numbers[i]] = f
		}
		files = nil
	}
	close(k.arrived)
	k.arrived = make(chan struct{})
	c.mu.Unlock()
	closeAll(files)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
