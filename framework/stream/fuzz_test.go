package stream

import (
	"bytes"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// A script for the fuzz test: its first byte says how many sockets there
// are, and then each step begins with a byte that says what is done over which of them.
const (
	stepFrame = iota // 8 bytes: kind, others, handle, 2 of offset, 2 of size, number
	stepBytes        // a byte with their number, and as many bytes
	stepData         // a byte: so many times 512 bytes of data
	stepDrive        // the receiver gets a turn
	stepHuge         // a frame whose numbers are those of stepFrame, from the top down
	steps
)

// Around what a peer may write lies what it may not: this is in each byte of it.
const canary = 0xa5

// arena is memory of which the peer may write the middle of the first half.
type arena struct{ b []byte }

const (
	arenaBytes = 1 << 16
	openFrom   = 4096 + 64
	openTo     = arenaBytes/2 - 4096 - 24
)

func (a arena) intact(t *testing.T) {
	t.Helper()
	for _, part := range [][2]int{{0, openFrom}, {openTo, arenaBytes}} {
		b := a.b[part[0]:part[1]]
		if n := len(b) - len(bytes.TrimLeft(b, string([]byte{canary}))); n < len(b) {
			t.Fatalf("byte %d is %#x: a peer wrote outside of %d to %d", part[0]+n, b[n], openFrom, openTo)
		}
	}
}

// perform plays a script, and returns what it has sent.
func perform(script []byte, ends []*os.File, drive func()) {
	take := func(n int) []byte {
		got := make([]byte, n)
		script = script[copy(got, script):]
		return got
	}
	for len(script) > 0 {
		what := take(1)[0]
		var b []byte
		switch what % steps {
		case stepFrame, stepHuge:
			f := take(8)
			offset, size := uint64(f[3])|uint64(f[4])<<8, uint64(f[5])|uint64(f[6])<<8
			if what%steps == stepHuge {
				offset, size = ^offset, ^size
			}
			b = frameOf(f[0], f[1], uint32(f[2]), offset, size, uint64(f[7]))
		case stepBytes:
			b = take(int(take(1)[0]))
		case stepData:
			b = bytes.Repeat([]byte{what}, 512*int(take(1)[0]))
		case stepDrive:
			drive()
		}
		// A refused end reads no more: bytes that do not fit, or that no end reads, are lost.
		_ = unix.Sendto(int(ends[int(what/steps)%len(ends)].Fd()), b, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
	}
}

// FuzzWire plays the peer. For anything that it sends, nothing is written but where it was allowed
// to, the receiver goes on or ends with an error, and the end of the sockets ends it.
func FuzzWire(f *testing.F) {
	frame := func(socket byte, b ...byte) []byte { return append([]byte{socket*steps + stepFrame}, b...) }
	join := func(streams byte, all ...[]byte) []byte { return append([]byte{streams}, bytes.Join(all, nil)...) }
	data := func(socket, n byte) []byte { return []byte{socket*steps + stepData, n} }
	drive := []byte{stepDrive}
	f.Add(join(0, frame(0, 2, 0, 1, 16, 0, 0, 2, 0), data(0, 1), drive, frame(0, 4, 0, 1, 8, 0, 0, 0, 0), frame(0, 5, 0, 0, 0, 0, 0, 0, 1)))
	f.Add(join(1, frame(0, 3, 1, 1, 0, 0, 0, 2, 1), data(0, 1), drive, frame(1, 3, 0, 1, 0, 2, 0, 2, 1), data(1, 1), drive, frame(0, 7, 0, 1, 0, 0, 0, 0, 0)))
	f.Add(join(2, frame(2, 3, 0, 1, 0, 2, 0, 2, 1), data(2, 1), frame(1, 3, 0, 1, 0, 2, 0, 2, 1), data(1, 1), drive, frame(0, 3, 2, 1, 0, 0, 0, 2, 1), data(0, 1), drive))
	f.Add(join(1, frame(1, 3, 0, 1, 0, 0, 0, 1, 1), frame(0, 3, 1, 1, 0, 0, 0, 1, 1), data(0, 1), data(1, 1), frame(1, 3, 0, 1, 0, 0, 0, 1, 1), drive)) // a part too many
	f.Add(join(0, frame(0, 2, 0, 0, 0, 0, 0, 4, 0), data(0, 2), drive, frame(0, 5, 0, 0, 0, 0, 0, 0, 1)))                                               // memory that is open no more
	f.Add(join(0, frame(0, 2, 0, 1, 1, 0x50, 0xff, 0xff, 0), data(0, 200)))
	f.Add(join(0, []byte{stepHuge, 2, 0, 1, 0, 0, 7, 0, 0}, data(0, 3)))
	f.Add(join(0, []byte{stepHuge, 4, 0, 1, 7, 0, 0, 0, 0}))
	f.Add(join(0, frame(0, 4, 0, 1, 0x88, 0x6f, 0, 0, 0)))
	f.Add(join(0, frame(0, 6, 0, 0, 0, 0, 0, 0, 200), frame(0, 6, 0, 0, 0, 0, 0, 0, 1)))
	f.Add(join(0, []byte{stepBytes, 31}, bytes.Repeat([]byte{2}, 31), drive, []byte{stepBytes, 1, 0}))
	f.Add(join(2, frame(0, 3, 2, 1, 0, 0, 0, 1, 1), data(0, 1), frame(0, 2, 0, 1, 0, 0, 0, 1, 0), data(0, 1), drive))
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) == 0 || len(script) > 4096 {
			return
		}
		ends := pairs(t, int(script[0])%3+1)
		s := alone(t, ends[0], arenaBytes, 0) // handle 0 is all of its memory, but that is taken back
		s.link.Withdraw(s.open)
		mem := arena{s.mem.Bytes()}
		for i := range mem.b {
			mem.b[i] = canary
		}
		open, err := s.link.Expose(uintptr(s.mem.Addr())+openFrom, openTo-openFrom)
		s.check(err)
		if open != 1 {
			t.Fatalf("handle %d: the scripts expect 1", open)
		}
		s.cite(open, openTo-openFrom)
		never := (*uint64)(s.mem.Addr()) // it stays what the canary is
		drive := func() {
			s.queue.Await(s.link, never, ^uint64(0), 0, 20*time.Microsecond, Waits{Spin: time.Second})
		}
		perform(script[1:], ends[1], drive)
		if _, ok, err := s.ring.Offer(trigger(kernel.TriggerFlush, 0, 0, 0)); !ok && err == nil {
			t.Fatal("no room in an empty ring")
		}
		drive()
		for _, e := range ends[1] {
			s.check(unix.Shutdown(int(e.Fd()), unix.SHUT_WR))
		}
		for deadline := time.Now().Add(bound); !hungUp(ends[1][0]); drive() {
			if time.Now().After(deadline) {
				t.Fatal("the link goes on without its peer")
			}
		}
		mem.intact(t)
	})
}

// pairs makes connected pairs within this machine, of which a fuzz test can make many.
func pairs(t *testing.T, n int) (all [2][]*os.File) {
	t.Helper()
	for range n {
		p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, fd := range p {
			f := os.NewFile(uintptr(fd), "pair")
			t.Cleanup(func() { f.Close() })
			all[i] = append(all[i], f)
		}
	}
	return all
}

// hungUp reports whether the other end is closed; what it has sent before is dropped.
func hungUp(f *os.File) bool {
	for b := make([]byte, 4096); ; {
		n, _, err := unix.Recvfrom(int(f.Fd()), b, unix.MSG_DONTWAIT)
		if n <= 0 {
			return err != unix.EAGAIN && err != unix.EINTR
		}
	}
}
