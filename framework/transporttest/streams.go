package transporttest

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
)

// What a transport that hands its sockets to ranks has to keep; see framework.RoleStream.
var streamTests = []test{
	{name: "streams/hand-over", when: streamsClaimed, body: testHandOver},
	{name: "streams/hang-up", when: streamsClaimed, body: testHangUp},
	{name: "streams/again", when: streamsClaimed, body: testHandOverAgain},
	{name: "streams/one-side", when: streamsClaimed, body: testOneSideOfStreams},
}

func streamsClaimed(c claims) bool { return c.Streams && portClaimed(c) }

// handOver attaches both ends of a link at once, as ranks do, and returns their sockets.
func (l *link) handOver() (recipes [2]framework.Attachment, ends [2][]*os.File) {
	t := l.t
	t.all(2, func(i int) {
		r := l.ranks[i]
		a, err := r.Attach(t.ctx, l.conn[i], 0, nil)
		if err != nil {
			t.Fatalf("rank %d: attach without keys: %v: want the streams", r.n, err)
		}
		t.Cleanup(func() { _ = a.Close() })
		if len(a.Mappings) != 1 || a.Mappings[0].Role != framework.RoleStream || a.Mappings[0].Peer != l.ranks[1-i].n || len(a.Steps) > 0 || len(a.Mappings[0].Shares) == 0 {
			t.Fatalf("rank %d: the answer is %+v: want one mapping of role stream for rank %d, with shares, and no steps", r.n, a, l.ranks[1-i].n)
		}
		for n, s := range a.Mappings[0].Shares {
			if s.Kind != framework.ShareSocket || s.FD == nil {
				t.Fatalf("rank %d: stream %d is %+v: want a share of kind %s", r.n, n, s, framework.ShareSocket)
			}
			ends[i] = append(ends[i], s.FD)
		}
		recipes[i] = a
	})
	if len(ends[0]) != len(ends[1]) {
		t.Fatalf("rank 0 has %d streams, and rank 1 has %d", len(ends[0]), len(ends[1]))
	}
	return recipes, ends
}

// testHandOver sends something else over each socket in each direction: it arrives at the
// socket with the same number, and nothing comes before it.
func testHandOver(t *T) {
	_, ends := t.link(framework.KindPort, t.rank(0), t.rank(1)).handOver()
	for n := range ends[0] {
		for from := range 2 {
			text := []byte{'0' + byte(from), byte(n), 'x', 'y', 'z'}
			if _, err := unix.Write(int(ends[from][n].Fd()), text); err != nil {
				t.Fatalf("rank %d: write to stream %d: %v", from, n, err)
			}
		}
	}
	for n := range ends[0] {
		for from := range 2 {
			want := string([]byte{'0' + byte(from), byte(n), 'x', 'y', 'z'})
			if got, err := t.receive(ends[1-from][n], len(want)); err != nil || got != want {
				t.Errorf("rank %d: stream %d begins with %q (%v): want %q", 1-from, n, got, err, want)
			}
		}
	}
}

// receive reads n bytes of a socket, or what there is in front of its end.
func (t *T) receive(f *os.File, n int) (string, error) {
	b := make([]byte, n)
	got := 0
	for deadline := time.Now().Add(t.o.CallLimit); got < n; {
		k, _, err := unix.Recvfrom(int(f.Fd()), b[got:], unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN) && time.Now().Before(deadline):
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}, 50)
		case err != nil && !errors.Is(err, unix.EINTR):
			return string(b[:got]), err
		case k == 0:
			return string(b[:got]), nil
		default:
			got += max(k, 0)
		}
	}
	return string(b[:got]), nil
}

// testHangUp closes one end: the other one sees that at once, whatever the transport has
// kept.
func testHangUp(t *T) {
	l := t.link(framework.KindPort, t.rank(0), t.rank(1))
	recipes, ends := l.handOver()
	if err := recipes[0].Close(); err != nil {
		t.Errorf("close the recipe: %v", err)
	}
	if id := recipes[0].ID; id != 0 {
		l.ranks[0].release(id)
	}
	for n, f := range ends[1] {
		if got, err := t.receive(f, 1); got != "" || errors.Is(err, unix.EAGAIN) {
			t.Errorf("stream %d, whose other end is closed: %q, %v: want its end", n, got, err)
		}
	}
}

// testHandOverAgain asks for streams of a connection that were handed over, and of what is
// none: an error within the bound, and the first ones live on.
func testHandOverAgain(t *T) {
	l := t.link(framework.KindPort, t.rank(0), t.rank(1))
	_, ends := l.handOver()
	ctx, cancel := context.WithTimeout(t.ctx, 300*time.Millisecond)
	defer cancel()
	for i, r := range l.ranks {
		if a, err := r.Attach(ctx, l.conn[i], 0, nil); err == nil {
			_ = a.Close()
			t.Errorf("rank %d: the streams of one connection were handed over twice", i)
		}
		if a, err := r.Attach(t.ctx, unknown, 0, nil); err == nil {
			_ = a.Close()
			t.Errorf("rank %d: streams of a connection that does not exist", i)
		}
	}
	if _, err := unix.Write(int(ends[0][0].Fd()), []byte("still")); err != nil {
		t.Errorf("write to the first stream: %v", err)
	}
	if got, err := t.receive(ends[1][0], 5); got != "still" {
		t.Errorf("%q, %v: the first streams were disturbed", got, err)
	}
}

// testOneSideOfStreams has one rank ask whose peer never does. It may get streams, since
// the peer's transport can accept them for it; it must not wait for ever.
func testOneSideOfStreams(t *T) {
	for i := range 2 {
		l := t.link(framework.KindPort, t.rank(0), t.rank(1))
		ctx, cancel := context.WithTimeout(t.ctx, 300*time.Millisecond)
		a, err := l.ranks[i].Attach(ctx, l.conn[i], 0, nil)
		cancel()
		if err == nil {
			_ = a.Close()
		}
	}
}
