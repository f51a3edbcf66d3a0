package port

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/harness"
)

// The rules for a transport that hands its sockets to ranks; see framework.RoleStream.
var streamTests = []harness.Test{
	{
		Name: "streams/hand-over", Rule: "Streams are handed over in the same order at both ends, without a byte on them.",
		When: streamsClaimed, Body: testHandOver,
	},
	{
		Name: "streams/hang-up", Rule: "The end of a link ends its streams.",
		When: streamsClaimed, Body: testHangUp,
	},
	{
		Name: "streams/again", Rule: "Streams are handed over once: to ask again is an error, and the first ones live on.",
		When: streamsClaimed, Body: testHandOverAgain,
	},
	{
		Name: "streams/one-side", Rule: "Attach for streams is bounded if the peer does not come.",
		When: streamsClaimed, Body: testOneSideOfStreams,
	},
}

func streamsClaimed(c harness.Claims) bool { return c.Streams && harness.PortClaimed(c) }

// handOver attaches both ends of a link at once, as ranks do, and returns their sockets.
func handOver(l *harness.Link) (recipes [2]framework.Attachment, ends [2][]*os.File) {
	t := l.T
	t.All(2, func(i int) {
		r := l.Ranks[i]
		a, err := r.Attach(t.Context(), l.Conn[i], 0, nil)
		if err != nil {
			t.Fatalf("rank %d: attach without keys: %v: want the streams", r.N, err)
		}
		t.Cleanup(func() { _ = a.Close() })
		if len(a.Mappings) != 1 || a.Mappings[0].Role != framework.RoleStream || a.Mappings[0].Peer != l.Ranks[1-i].N || len(a.Steps) > 0 || len(a.Mappings[0].Shares) == 0 {
			t.Fatalf("rank %d: the answer is %+v: want one mapping of role stream for rank %d, with shares, and no steps", r.N, a, l.Ranks[1-i].N)
		}
		for n, s := range a.Mappings[0].Shares {
			if s.Kind != framework.ShareSocket || s.FD == nil {
				t.Fatalf("rank %d: stream %d is %+v: want a share of kind %s", r.N, n, s, framework.ShareSocket)
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
func testHandOver(t *harness.T) {
	_, ends := handOver(t.Link(framework.KindPort, t.Rank(0), t.Rank(1)))
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
			if got, err := receive(t, ends[1-from][n], len(want)); err != nil || got != want {
				t.Errorf("rank %d: stream %d begins with %q (%v): want %q", 1-from, n, got, err, want)
			}
		}
	}
}

// receive reads n bytes of a socket, or what there is in front of its end.
func receive(t *harness.T, f *os.File, n int) (string, error) {
	b := make([]byte, n)
	got := 0
	for deadline := time.Now().Add(t.Options.CallLimit); got < n; {
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
func testHangUp(t *harness.T) {
	l := t.Link(framework.KindPort, t.Rank(0), t.Rank(1))
	recipes, ends := handOver(l)
	if err := recipes[0].Close(); err != nil {
		t.Errorf("close the recipe: %v", err)
	}
	if id := recipes[0].ID; id != 0 {
		l.Ranks[0].Release(id)
	}
	for n, f := range ends[1] {
		if got, err := receive(t, f, 1); got != "" || errors.Is(err, unix.EAGAIN) {
			t.Errorf("stream %d, whose other end is closed: %q, %v: want its end", n, got, err)
		}
	}
}

// testHandOverAgain asks for streams of a connection that were handed over, and of what is
// none: an error within the bound, and the first ones live on.
func testHandOverAgain(t *harness.T) {
	l := t.Link(framework.KindPort, t.Rank(0), t.Rank(1))
	_, ends := handOver(l)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	for i, r := range l.Ranks {
		if a, err := r.Attach(ctx, l.Conn[i], 0, nil); err == nil {
			_ = a.Close()
			t.Errorf("rank %d: the streams of one connection were handed over twice", i)
		}
		if a, err := r.Attach(t.Context(), harness.Unknown, 0, nil); err == nil {
			_ = a.Close()
			t.Errorf("rank %d: streams of a connection that does not exist", i)
		}
	}
	if _, err := unix.Write(int(ends[0][0].Fd()), []byte("still")); err != nil {
		t.Errorf("write to the first stream: %v", err)
	}
	if got, err := receive(t, ends[1][0], 5); got != "still" {
		t.Errorf("%q, %v: the first streams were disturbed", got, err)
	}
}

// testOneSideOfStreams has one rank ask whose peer never does. It may get streams, since
// the peer's transport can accept them for it; it must not wait for ever.
func testOneSideOfStreams(t *harness.T) {
	for i := range 2 {
		l := t.Link(framework.KindPort, t.Rank(0), t.Rank(1))
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		a, err := l.Ranks[i].Attach(ctx, l.Conn[i], 0, nil)
		cancel()
		if err == nil {
			_ = a.Close()
		}
	}
}
