package fdsock

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/leaktest"
	"github.com/mscclpp-go/mscclpp/internal/promise"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// pair returns both ends, and checks at the end that no descriptor is left.
func pair(t *testing.T) (host, plugin *Conn) {
	t.Helper()
	before := openFDs(t)
	a, b, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	if host, err = New(a, Host); err != nil {
		t.Fatal(err)
	}
	if plugin, err = New(b, Plugin); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		host.Close()
		plugin.Close()
		runtime.GC() // no finalizer may hide a leak: count before it could run
		if after := openFDs(t); after > before {
			t.Errorf("%d descriptors open, expected %d", after, before)
		}
	})
	return host, plugin
}

func openFDs(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// files makes descriptors that can be distinguished by their contents.
func files(t *testing.T, n int) []*os.File {
	t.Helper()
	out := make([]*os.File, n)
	for i := range out {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = os.NewFile(uintptr(fd), "test")
		fmt.Fprintf(out[i], "%d", i)
	}
	return out
}

func contents(t *testing.T, f *os.File) string {
	t.Helper()
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 100))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// arrived waits until a call of c holds n descriptors.
func arrived(t *testing.T, c *Conn, call uint64, n int) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; runtime.Gosched() {
		c.mu.Lock()
		k := c.calls[call]
		have := 0
		if k != nil {
			have = len(k.files)
		}
		c.mu.Unlock()
		if have == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("call %d holds %d descriptors, expected %d", call, have, n)
		}
	}
}

func TestManyDescriptorsInAnyOrder(t *testing.T) {
	host, plugin := pair(t)
	sent := files(t, 3*maxDescriptors+1) // four messages
	defer closeAll(sent)
	numbers, err := host.Send(t.Context(), 7, sent)
	if err != nil {
		t.Fatal(err)
	}
	for i := len(numbers) - 1; i >= 0; i-- {
		f, err := plugin.Claim(t.Context(), 7, numbers[i])
		if err != nil {
			t.Fatal(err)
		}
		if got := contents(t, f); got != fmt.Sprint(i) {
			t.Errorf("descriptor %d: contents %s, expected %d", numbers[i], got, i)
		}
		raw, _ := f.SyscallConn()
		raw.Control(func(fd uintptr) {
			if flags, err := unix.FcntlInt(fd, unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("received descriptor is inherited by children: flags %#x, %v", flags, err)
			}
		})
		f.Close()
	}
	if _, err := sent[0].Stat(); err != nil {
		t.Errorf("the sender lost its descriptor: %v", err)
	}
}

func TestNumbersAreNeverReused(t *testing.T) {
	host, plugin := pair(t)
	seen := map[uint64]bool{0: true}
	for call := range uint64(3) {
		f := files(t, 2)
		numbers, err := host.Send(t.Context(), call, f)
		closeAll(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range numbers {
			if seen[n] {
				t.Errorf("number %d was used before", n)
			}
			seen[n] = true
		}
		arrived(t, plugin, call, 2)
	}
}

func TestClaimWaits(t *testing.T) {
	host, plugin := pair(t)
	got := make(chan error, 1)
	go func() {
		f, err := plugin.Claim(context.Background(), 1, 1)
		if err == nil {
			f.Close()
		}
		got <- err
	}()
	f := files(t, 1)
	defer closeAll(f)
	if _, err := host.Send(t.Context(), 1, f); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}

func TestClaimIsBounded(t *testing.T) {
	_, plugin := pair(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := plugin.Claim(ctx, 9, 4)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "descriptor 4 of call 9") {
		t.Errorf("got %v, expected a deadline that names descriptor and call", err)
	}
	plugin.End(9)
}

func TestHostClosesWhatNoCallWaitsFor(t *testing.T) {
	host, plugin := pair(t)
	f := files(t, 1)
	defer closeAll(f)
	if _, err := plugin.Send(t.Context(), 1, f); err != nil {
		t.Fatal(err)
	}
	host.Begin(2)
	numbers, err := plugin.Send(t.Context(), 2, f)
	if err != nil {
		t.Fatal(err)
	}
	got, err := host.Claim(t.Context(), 2, numbers[0]) // after the first message
	if err != nil {
		t.Fatal(err)
	}
	got.Close()
	host.mu.Lock()
	defer host.mu.Unlock()
	if host.calls[1] != nil {
		t.Error("descriptors of an unknown call were kept")
	}
}

func TestAbandonClosesOnBothSides(t *testing.T) {
	host, plugin := pair(t)
	f := files(t, 5)
	defer closeAll(f)
	if _, err := host.Send(t.Context(), 3, f); err != nil {
		t.Fatal(err)
	}
	arrived(t, plugin, 3, 5)
	before := openFDs(t)
	host.Abandon(3)
	arrived(t, plugin, 3, 0)
	// The record goes first, its descriptors right after.
	for deadline := time.Now().Add(3 * time.Minute); openFDs(t) != before-5; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d descriptors open, expected %d", openFDs(t), before-5)
		}
	}
}

func TestEndOfTheOtherSide(t *testing.T) {
	host, plugin := pair(t)
	waiting := make(chan error, 1)
	go func() {
		_, err := host.Claim(context.Background(), 1, 1)
		waiting <- err
	}()
	watch := promise.Begin()
	plugin.Close()
	<-host.Done()
	if err := watch.Kept(2 * time.Second); err != nil {
		t.Errorf("noticed %v", err)
	}
	if err := host.Err(); !errors.Is(err, io.EOF) {
		t.Errorf("host ended with %v, expected EOF", err)
	}
	if err := plugin.Err(); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("plugin ended with %v, expected ErrClosed", err)
	}
	if err := <-waiting; !errors.Is(err, framework.ErrPlugin) {
		t.Errorf("claim ended with %v, expected ErrPlugin", err)
	}
	f := files(t, 1)
	defer closeAll(f)
	if _, err := host.Send(t.Context(), 1, f); !errors.Is(err, framework.ErrPlugin) {
		t.Errorf("send ended with %v, expected ErrPlugin", err)
	}
}

func TestFullTableIsAnError(t *testing.T) {
	host, plugin := pair(t)
	f := files(t, 20)
	defer closeAll(f)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	small := old
	small.Cur = uint64(openFDs(t) + 8)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &small); err != nil {
		t.Fatal(err)
	}
	_, err := host.Send(t.Context(), 1, f)
	if err == nil {
		_, err = plugin.Claim(t.Context(), 1, 1)
	}
	if rerr := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); rerr != nil {
		t.Fatal(rerr)
	}
	if !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "ulimit -n") {
		t.Errorf("got %v, expected ErrUnavailable and what to raise", err)
	}
	plugin.End(1)
	one := f[:1]
	numbers, err := host.Send(t.Context(), 2, one)
	if err != nil {
		t.Fatal(err)
	}
	got, err := plugin.Claim(t.Context(), 2, numbers[0])
	if err != nil {
		t.Fatalf("the socket is of no use after one refusal: %v", err)
	}
	got.Close()
	plugin.End(2)
}

func TestFullTableAtTheStart(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	end, other, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	full := old
	full.Cur = 3
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &full); err != nil {
		t.Fatal(err)
	}
	_, newErr := New(end, Host)
	_, _, pairErr := Pair()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{newErr, pairErr} {
		if framework.Class(err) != framework.ErrUnavailable || !strings.Contains(err.Error(), "ulimit -n") {
			t.Errorf("got %v, expected ErrUnavailable and what to raise", err)
		}
	}
}

func TestForeignUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may claim to be another user")
	}
	a, b, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	plugin, err := New(b, Plugin)
	if err != nil {
		t.Fatal(err)
	}
	defer plugin.Close()
	defer a.Close()
	raw, err := net.FileConn(a)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	cred := unix.UnixCredentials(&unix.Ucred{Pid: int32(os.Getpid()), Uid: 12345, Gid: 0})
	m := message{kind: kindEnd, call: 1}
	if _, _, err := raw.(*net.UnixConn).WriteMsgUnix(m.append(nil), cred, nil); err != nil {
		t.Fatal(err)
	}
	<-plugin.Done()
	if err := plugin.Err(); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "12345") {
		t.Errorf("got %v, expected ErrInvalid that names the user", err)
	}
}

func TestMalformedMessageEndsTheSocket(t *testing.T) {
	good := message{kind: kindDescriptors, call: 1, numbers: []uint64{1, 2}}.append(nil)
	change := func(at int, value byte) []byte {
		b := append([]byte(nil), good...)
		b[at] = value
		return b
	}
	cases := map[string][]byte{
		"short":          good[:15],
		"truncated":      good[:len(good)-1],
		"too long":       append(append([]byte(nil), good...), 0),
		"magic":          change(0, 'X'),
		"version":        change(4, 2),
		"kind":           change(5, 9),
		"no descriptors": message{kind: kindDescriptors}.append(nil),
		"end with list":  change(5, kindEnd),
		"number 0":       change(16, 0),
		"number twice":   change(16, 2),
		"oversized":      make([]byte, 4096),
		"too many":       binary.LittleEndian.AppendUint16([]byte("MSFD\x01\x01"), 65),
	}
	for name, data := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := parse(data); !errors.Is(err, framework.ErrInvalid) {
				t.Fatalf("parse: got %v, expected ErrInvalid", err)
			}
			host, plugin := pair(t)
			if _, err := host.sock.Write(data); err != nil {
				t.Fatal(err)
			}
			<-plugin.Done()
			if err := plugin.Err(); !errors.Is(err, framework.ErrInvalid) {
				t.Errorf("got %v, expected ErrInvalid", err)
			}
			<-host.Done() // the other side learns of it
		})
	}
}

func TestNewRefusesOtherSockets(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fds[1])
	if _, err := New(os.NewFile(uintptr(fds[0]), "stream"), Host); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("stream socket: got %v, expected ErrInvalid", err)
	}
	if _, err := New(files(t, 1)[0], Host); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("file: got %v, expected ErrInvalid", err)
	}
}

func TestSendOfClosedFile(t *testing.T) {
	host, _ := pair(t)
	f := files(t, 2)
	f[1].Close()
	defer f[0].Close()
	if _, err := host.Send(t.Context(), 1, f); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("got %v, expected ErrInvalid", err)
	}
	if _, err := host.Send(t.Context(), 1, []*os.File{nil}); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("nil: got %v, expected ErrInvalid", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(message{kind: kindDescriptors, call: 1, numbers: []uint64{1, 2, 3}}.append(nil))
	f.Add(message{kind: kindEnd, call: 1 << 63}.append(nil))
	f.Add([]byte("MSFD"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parse(data)
		if err != nil {
			if !errors.Is(err, framework.ErrInvalid) {
				t.Errorf("got %v, expected ErrInvalid", err)
			}
			return
		}
		if back := m.append(nil); string(back) != string(data) {
			t.Errorf("%x was read as %x", data, back)
		}
	})
}
