package loopnet

import (
	"bufio"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
)

// region is registered memory, mapped. It is unmapped when it was closed and no
// stream reads into it or sends from it any more.
type region struct {
	mem   *memfd.Memory
	mu    sync.Mutex
	users int // 1 for the registration itself
}

func (r *region) retain() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users == 0 {
		return false
	}
	r.users++
	return true
}

func (r *region) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users--; r.users == 0 {
		r.mem.Close()
	}
}

// slice is a range of the region, or an error if there is no such range.
func (r *region) slice(offset, bytes uint64) ([]byte, error) {
	if size := r.mem.Len(); offset > size || bytes > size-offset {
		return nil, fmt.Errorf("%d bytes at %d of memory of %d: %w", bytes, offset, size, framework.ErrInvalid)
	}
	return r.mem.Bytes()[offset : offset+bytes], nil
}

// receive starts to listen, once, and says where.
func (t *Transport) receive() (netip.AddrPort, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.listener == nil {
		l, err := net.Listen("tcp", net.JoinHostPort(t.config.Listen, "0"))
		if err != nil {
			return netip.AddrPort{}, failure("listen", framework.NoPeer, framework.ErrUnavailable, "%v", err)
		}
		t.listener = l
		go t.accept(l)
	}
	return netip.ParseAddrPort(t.listener.Addr().String())
}

func (t *Transport) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors: they come back
			continue
		}
		go func() {
			defer c.Close()
			_ = t.serve(c) // the sender learns from the end of the stream
		}()
	}
}

// helloWithin is how long a stranger may keep a connection.
const helloWithin = 5 * time.Second

// serve performs the frames of one stream until it ends. A frame that cannot be
// performed ends it too: its sender made a mistake, or its target was closed.
func (t *Transport) serve(c net.Conn) error {
	if err := c.SetReadDeadline(time.Now().Add(helloWithin)); err != nil {
		return err
	}
	in := bufio.NewReaderSize(c, t.config.Buffer)
	var start [helloBytes]byte
	if _, err := io.ReadFull(in, start[:]); err != nil {
		return err
	}
	if want := hello(t.secret); subtle.ConstantTimeCompare(start[:], want) != 1 {
		return fmt.Errorf("stream of a stranger: %w", framework.ErrPeer)
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	var head [frameBytes]byte
	for {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return err
		}
		f := decodeFrame(head[:])
		var err error
		switch f.Kind {
		case framePut:
			err = t.put(f, in)
		case frameSignal:
			err = t.raise(f)
		case frameFlush:
			_, err = c.Write(order.AppendUint64(head[:0], f.Offset))
		default:
			err = fmt.Errorf("frame of kind %d: %w", f.Kind, framework.ErrPeer)
		}
		if err != nil {
			return err
		}
	}
}

// put reads data straight into memory.
func (t *Transport) put(f frame, in io.Reader) error {
	r, err := t.region(f.Region)
	if err != nil {
		return err
	}
	defer r.release()
	to, err := r.slice(f.Offset, f.Bytes)
	if err != nil {
		return err
	}
	_, err = io.ReadFull(in, to)
	return err
}

// raise adds one to a counter. The addition is a full barrier: a reader that sees it
// sees the data that was read before.
func (t *Transport) raise(f frame) error {
	r, err := t.region(f.Region)
	if err != nil {
		return err
	}
	defer r.release()
	word, err := r.slice(f.Offset, 8)
	if err != nil {
		return err
	}
	p := unsafe.Pointer(&word[0])
	if uintptr(p)%8 != 0 {
		return fmt.Errorf("semaphore at %d is not aligned: %w", f.Offset, framework.ErrInvalid)
	}
	atomic.AddUint64((*uint64)(p), 1)
	return nil
}

// region returns a registration in use; the caller releases it.
func (t *Transport) region(id uint64) (*region, error) {
	r, err := find[*region](t, "receive", framework.ID(id))
	if err != nil {
		return nil, err
	}
	if !r.retain() {
		return nil, fmt.Errorf("registration %d: %w", id, framework.ErrClosed)
	}
	return r, nil
}

// dial opens a stream to where a connection leads.
func (c *connection) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	s, err := d.DialContext(ctx, "tcp", c.address.Host.String())
	if err != nil {
		return nil, fmt.Errorf("%v: %w", err, framework.ErrPeer)
	}
	if _, err := s.Write(hello(c.address.Owner)); err != nil {
		s.Close()
		return nil, fmt.Errorf("%v: %w", err, framework.ErrPeer)
	}
	return s, nil
}
