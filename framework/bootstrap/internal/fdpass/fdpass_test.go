package fdpass

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/failure"
	"github.com/mscclpp-go/mscclpp/internal/lograte"
)

func newPair(t *testing.T, keyA, keyB string) (a, b *Socket) {
	t.Helper()
	quietly := slog.New(slog.DiscardHandler)
	a, err := Open([]byte(keyA), 0, quietly)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	if b, err = Open([]byte(keyB), 1, quietly); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return a, b
}

func TestDatagramOfAStranger(t *testing.T) {
	a, b := newPair(t, "one key", "another key")
	before := openFDs(t)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := a.Probe(ctx, ctx, failure.New(), b.Name, 1); !errors.Is(err, framework.ErrUnavailable) {
		t.Errorf("probe with a wrong key: %v", err)
	}
	closedAgain(t, before)
}

// An unanswered probe ends when the job fails, and its error is the cause of that failure.
func TestProbeInAJobThatFails(t *testing.T) {
	a, b := newPair(t, "one key", "another key")
	job, dead := failure.New(), fmt.Errorf("%w: rank 1 is dead", framework.ErrPeer)
	job.Fail(dead)
	began := time.Now()
	if err := a.Probe(context.Background(), context.Background(), job, b.Name, 1); !errors.Is(err, dead) {
		t.Errorf("%v after %v: expected the cause of the job's failure", err, time.Since(began))
	}
}

// Every process of the host can send to the socket. None fills the log.
func TestStrangersDoNotFloodTheLog(t *testing.T) {
	var log bytes.Buffer
	d, err := Open([]byte("key"), 0, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	stranger, err := net.DialUnix("unixgram", nil, Address(d.Name))
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	const datagrams = 500 // more than wait in the queue of a socket, so that most are received
	for range datagrams {
		if _, err := stranger.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
	}
	d.Close() // behind it nothing is logged
	most := 2 + int(time.Since(begun)/lograte.Interval)
	if n := strings.Count(log.String(), "\n"); n < 1 || n > most {
		t.Errorf("%d lines about %d datagrams: expected one at least and %d at most", n, datagrams, most)
	}
}

// When a process has too many open files, the kernel drops descriptors silently
// except for a flag. That must be an error that says so, and nothing may leak.
func TestTruncatedDescriptors(t *testing.T) {
	a, b := newPair(t, "key", "key")
	f := tempFile(t, "x")
	defer f.Close()
	ctx := bounded(t, patience)
	// Two are announced, one is sent: as when the second did not fit.
	m := datagram{kind: datagramFDs, count: 2, from: 0, to: 1, first: 1}
	before := openFDs(t)
	if err := a.post(ctx, ctx, b.Name, m, []*os.File{f}); err != nil {
		t.Fatal(err)
	}
	_, err := b.Take(ctx, failure.New(), 0, 1, 2)
	if err := wantError(err, framework.ErrUnavailable, framework.NoPeer, "1 of 2 descriptors", "ulimit -n"); err != nil {
		t.Error(err)
	}
	closedAgain(t, before)
}

// The flag itself, from a kernel that is out of numbers.
func TestOutOfDescriptors(t *testing.T) {
	a, b := newPair(t, "key", "key")
	f := tempFile(t, "x")
	defer f.Close()
	files := make([]*os.File, PerMessage)
	for i := range files {
		files[i] = f
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	// The lowest free number is above what is open; leave room for a few.
	probe, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(probe)
	tight := unix.Rlimit{Cur: uint64(probe + 8), Max: old.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &tight); err != nil {
		t.Fatal(err)
	}
	ctx := bounded(t, patience)
	m := datagram{kind: datagramFDs, count: len(files), from: 0, to: 1, first: 1}
	err = a.post(ctx, ctx, b.Name, m, files)
	var taken error
	if err == nil {
		_, taken = b.Take(ctx, failure.New(), 0, 1, len(files))
	}
	if e := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); e != nil {
		t.Fatal(e)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := wantError(taken, framework.ErrUnavailable, framework.NoPeer, "ulimit -n"); err != nil {
		t.Error(err)
	}
}

func TestTakeGivesUp(t *testing.T) {
	a, b := newPair(t, "key", "key")
	f := tempFile(t, "x")
	defer f.Close()
	before := openFDs(t)
	short, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := b.Take(short, failure.New(), 0, 1, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, expected the deadline", err)
	}
	job := failure.New()
	job.Fail(framework.ErrPeer)
	if _, err := b.Take(context.Background(), job, 0, 2, 1); !errors.Is(err, framework.ErrPeer) {
		t.Errorf("%v, expected the end of the job", err)
	}
	// Messages after it are all closed; a later one shows that it was processed.
	ctx := bounded(t, patience)
	share := framework.Share{Kind: framework.ShareMemFD, FD: f}
	for number := uint64(1); number <= 3; number++ {
		first, err := a.Send(ctx, ctx, b.Name, 1, []framework.Share{share})
		if err != nil || first != number {
			t.Fatalf("number %d, %v", first, err)
		}
	}
	files, err := b.Take(ctx, failure.New(), 0, 3, 1)
	if err != nil {
		t.Fatal(err)
	}
	closeFiles(files)
	closedAgain(t, before)
}

func TestSendOfClosedDescriptor(t *testing.T) {
	a, b := newPair(t, "key", "key")
	f := tempFile(t, "x")
	_ = f.Close()
	ctx := bounded(t, patience)
	_, err := a.Send(ctx, ctx, b.Name, 1, []framework.Share{{Kind: framework.ShareMemFD, FD: f}})
	if !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("a closed descriptor: %v, expected ErrInvalid", err)
	}
	b.Close()
	g := tempFile(t, "x")
	defer g.Close()
	_, err = a.Send(ctx, ctx, b.Name, 1, []framework.Share{{Kind: framework.ShareMemFD, FD: g}})
	if !errors.Is(err, framework.ErrPeer) {
		t.Errorf("a socket that is gone: %v, expected ErrPeer", err)
	}
}

// A receiver that does not read holds the sender back, until its context ends.
func TestFullSocket(t *testing.T) {
	a, _ := newPair(t, "key", "key")
	var name [16]byte
	copy(name[:], "nobody reads    ")
	deaf, err := net.ListenUnixgram("unixgram", Address(name))
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	f := tempFile(t, "x")
	defer f.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	for err == nil {
		_, err = a.Send(ctx, context.Background(), name, 1, []framework.Share{{Kind: framework.ShareMemFD, FD: f}})
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, expected the deadline", err)
	}
}

// patience is longer than anything in a test takes, on a machine that does much else as well.
const patience = 3 * time.Minute

// bounded is a context for one test: longer than anything in it should take.
func bounded(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func tempFile(t testing.TB, text string) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "share")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	return f
}

// openFDs counts the open descriptors of this process.
func openFDs(t testing.TB) int {
	t.Helper()
	// The first socket makes the runtime open descriptors of its own, for good.
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		_ = l.Close()
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// closedAgain waits until no more descriptors are open than before: the goroutine that receives closes what it turns down.
func closedAgain(t testing.TB, before int) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; runtime.Gosched() {
		after := openFDs(t)
		if after <= before {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d descriptors before, %d after", before, after)
		}
	}
}

// wantError checks the class and the culprit of an error, and that its text says
// what it should.
func wantError(err, class error, peer int, words ...string) error {
	switch {
	case err == nil:
		return fmt.Errorf("no error: expected %v", class)
	case !errors.Is(err, class):
		return fmt.Errorf("error %q: expected class %v", err, class)
	case framework.PeerOf(err) != peer:
		return fmt.Errorf("error %q blames rank %d: expected %d", err, framework.PeerOf(err), peer)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			return fmt.Errorf("error %q does not say %q", err, w)
		}
	}
	return nil
}

func FuzzDatagram(f *testing.F) {
	key := []byte("key")
	good := datagram{kind: datagramFDs, count: 3, from: 1, to: 2, first: 9}.encode(key)
	f.Add(good)
	f.Add(good[:40])
	f.Add(datagram{kind: 9, count: 1}.encode(key))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := decodeDatagram(b, key)
		if err != nil {
			classed(t, err)
			return
		}
		if !bytes.Equal(d.encode(key), b) {
			t.Fatalf("%x became %+v", b, d)
		}
	})
}

func classed(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, framework.ErrPeer) && !errors.Is(err, framework.ErrInvalid) {
		t.Fatalf("error without a class: %v", err)
	}
}
