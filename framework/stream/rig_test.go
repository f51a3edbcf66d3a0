package stream

import (
	"encoding/binary"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

const bound = 20 * time.Second

// side is one rank: memory whose first word is a semaphore, and a queue whose triggers
// cite it as memory 0, the peer's as memory 1, and the peer's semaphore as number 0.
type side struct {
	t      testing.TB
	engine *Engine
	link   *Link
	mem    *memfd.Memory
	open   uint32
	ring   *ring.Ring
	queue  *Queue
}

// sockets makes connected pairs, of TCP, whose buffers are as small or large as real ones.
func sockets(t testing.TB, n int) (all [2][]*os.File) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range n {
		local, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		remote, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range []net.Conn{local, remote} {
			f, err := c.(*net.TCPConn).File()
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
			all[i] = append(all[i], f)
		}
	}
	t.Cleanup(func() {
		for _, f := range append(all[0], all[1]...) {
			f.Close()
		}
	})
	return all
}

// alone makes a side without a queue; the other end of the sockets is up to the test.
func alone(t testing.TB, own []*os.File, bytes, stripe uint64) *side {
	t.Helper()
	s := &side{t: t}
	var err error
	if s.engine, err = NewEngine(); err != nil {
		t.Fatal(err)
	}
	if s.link, err = s.engine.Link(1, own, stripe); err != nil {
		t.Fatal(err)
	}
	if s.mem, err = memfd.New("stream-test", bytes, memfd.Options{}); err != nil {
		t.Fatal(err)
	}
	if s.open, err = s.link.Expose(uintptr(s.mem.Addr()), bytes); err != nil {
		t.Fatal(err)
	}
	if s.ring, err = ring.New(16); err != nil {
		t.Fatal(err)
	}
	if s.queue, err = s.engine.Queue(s.ring); err != nil {
		t.Fatal(err)
	}
	s.check(s.queue.BindSource(0, uintptr(s.mem.Addr()), bytes))
	t.Cleanup(s.close)
	return s
}

func (s *side) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *side) close() {
	if s.queue == nil {
		return
	}
	ctx, cancel := contextOf(bound)
	defer cancel()
	_ = s.queue.Stop(ctx)
	s.queue = nil
	s.check(s.link.Close())
	s.check(s.engine.Close())
	s.check(s.ring.Close())
	s.check(s.mem.Close())
}

// two makes both sides of a link.
func two(t testing.TB, streams int, bytes, stripe uint64) (a, b *side) {
	t.Helper()
	ends := sockets(t, streams)
	a, b = alone(t, ends[0], bytes, stripe), alone(t, ends[1], bytes, stripe)
	a.cite(b.open, bytes)
	b.cite(a.open, bytes)
	return a, b
}

func (s *side) cite(handle uint32, bytes uint64) {
	s.t.Helper()
	s.check(s.queue.BindTarget(1, s.link, handle, bytes))
	s.check(s.queue.BindSemaphore(0, s.link, handle, 0))
}

func trigger(kind, to, from, bytes uint64) kernel.Trigger {
	return kernel.TriggerFields{Kind: kind, Bytes: bytes, From: from, To: to, Dst: 1}.Pack()
}

// push asks for something, as the host does.
func (s *side) push(kind, to, from, bytes uint64) uint64 {
	s.t.Helper()
	deadline := time.Now().Add(bound)
	for {
		pos, ok, err := s.ring.Offer(trigger(kind, to, from, bytes))
		s.check(err)
		if ok {
			s.queue.Drain()
			return pos
		}
		s.await(s.ring.TakenAt(), s.ring.Tail()+1, deadline)
	}
}

func (s *side) await(word *uint64, wanted uint64, deadline time.Time) {
	s.t.Helper()
	for !s.queue.Await(s.link, word, wanted, 0, time.Millisecond, Waits{Spin: time.Microsecond}) {
		if time.Now().After(deadline) {
			s.t.Fatalf("word is %d: expected %d", atomic.LoadUint64(word), wanted)
		}
		s.check(s.ring.Err())
	}
}

func (s *side) wait(signals uint64) {
	s.t.Helper()
	s.await((*uint64)(s.mem.Addr()), signals, time.Now().Add(bound))
}

func (s *side) flush() {
	s.t.Helper()
	pos := s.push(kernel.TriggerFlush, 0, 0, 0)
	s.await(s.ring.FlushedAt(0), pos+1, time.Now().Add(bound))
}

func (s *side) fill(from, to int, salt byte) {
	b := s.mem.Bytes()[from:to]
	for i := range b {
		b[i] = byte(i*7) + byte(i>>9) + salt
	}
}

func (s *side) expect(from, to int, salt byte) {
	s.t.Helper()
	for i, x := range s.mem.Bytes()[from:to] {
		if want := byte(i*7) + byte(i>>9) + salt; x != want {
			s.t.Fatalf("byte %d is %d: expected %d", from+i, x, want)
		}
	}
}

// raw is the other end, without an engine.
type raw struct {
	t  testing.TB
	fd int
}

func (r raw) write(b []byte) {
	r.t.Helper()
	for len(b) > 0 {
		n, err := unix.Write(r.fd, b)
		if err != nil {
			r.t.Fatal(err)
		}
		b = b[n:]
	}
}

func frameOf(kind, others byte, handle uint32, offset, bytes, number uint64) []byte {
	b := binary.LittleEndian.AppendUint32([]byte{kind, others, 0, 0}, handle)
	for _, x := range []uint64{offset, bytes, number} {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return b
}

// read returns the next n bytes, which have to come within the bound.
func (r raw) read(n int) []byte {
	r.t.Helper()
	b := make([]byte, n)
	for got, deadline := 0, time.Now().Add(bound); got < n; {
		k, err := unix.Read(r.fd, b[got:])
		switch {
		case err == unix.EAGAIN && time.Now().Before(deadline):
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(r.fd), Events: unix.POLLIN}}, 100)
		case err != nil || k == 0:
			r.t.Fatalf("%d of %d bytes: %v", got, n, err)
		default:
			got += k
		}
	}
	return b
}

func rawOf(t testing.TB, f *os.File) raw {
	t.Helper()
	return raw{t, int(f.Fd())}
}
