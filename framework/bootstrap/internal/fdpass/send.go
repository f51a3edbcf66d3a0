package fdpass

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/failure"
	"github.com/mscclpp-go/mscclpp/internal/filelimit"
)

// Send sends the descriptors among shares, in pages, and returns the number of
// the first: 0 if there are none.
func (d *Socket) Send(ctx, life context.Context, to [16]byte, rank int, shares []framework.Share) (uint64, error) {
	var files []*os.File
	for _, s := range shares {
		if s.FD != nil {
			files = append(files, s.FD)
		}
	}
	if len(files) == 0 {
		return 0, nil
	}
	d.mu.Lock()
	first := d.next
	d.next += uint64(len(files))
	d.mu.Unlock()
	for at := 0; at < len(files); at += PerMessage {
		page := files[at:min(at+PerMessage, len(files))]
		m := datagram{kind: datagramFDs, count: len(page), from: uint32(d.rank), to: uint32(rank), first: first + uint64(at)}
		if err := d.post(ctx, life, to, m, page); err != nil {
			return 0, err
		}
	}
	return first, nil
}

// post sends one datagram. A full queue at the receiver is waited for: datagram
// sockets do not tell when there is room again, so this asks, ever less often.
func (d *Socket) post(ctx, life context.Context, to [16]byte, m datagram, files []*os.File) error {
	b := m.encode(d.key)
	raw, err := d.conn.SyscallConn()
	if err != nil {
		return failure.ErrClosed
	}
	pause := 100 * time.Microsecond
	for {
		serr, err := withNumbers(files, func(numbers []int) error {
			var serr error
			err := raw.Control(func(fd uintptr) {
				serr = unix.Sendmsg(int(fd), b, unix.UnixRights(numbers...), &unix.SockaddrUnix{Name: Address(to).Name}, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
			})
			if err != nil {
				return failure.ErrClosed
			}
			return serr
		})
		switch {
		case err != nil:
			return err
		case serr == nil:
			return nil
		case errors.Is(serr, unix.EAGAIN), errors.Is(serr, unix.ENOBUFS), errors.Is(serr, unix.ETOOMANYREFS), errors.Is(serr, unix.EINTR):
		case errors.Is(serr, failure.ErrClosed):
			return serr
		case errors.Is(serr, unix.ECONNREFUSED), errors.Is(serr, unix.ENOENT):
			return fmt.Errorf("%w: its socket for descriptors is gone: %w", framework.ErrPeer, serr)
		default:
			return fmt.Errorf("%w: cannot send descriptors: %w", framework.ErrUnavailable, serr)
		}
		timer := time.NewTimer(pause)
		pause = min(2*pause, 10*time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("the peer does not take descriptors (%w): %w", serr, context.Cause(ctx))
		case <-life.Done():
			timer.Stop()
			return failure.ErrClosed
		}
	}
}

// withNumbers runs f while none of the files can be closed: a number that was
// closed may be given to something else at any moment.
func withNumbers(files []*os.File, f func(numbers []int) error) (result, err error) {
	numbers := make([]int, 0, len(files))
	var enter func(i int)
	enter = func(i int) {
		if i == len(files) {
			result = f(numbers)
			return
		}
		raw, e := files[i].SyscallConn()
		if e == nil {
			e = raw.Control(func(fd uintptr) {
				numbers = append(numbers, int(fd))
				enter(i + 1)
			})
		}
		if e != nil && err == nil {
			err = fmt.Errorf("%w: descriptor %d of a parcel: %w", framework.ErrInvalid, i, e)
		}
	}
	enter(0)
	runtime.KeepAlive(files)
	return result, err
}

// memory makes a descriptor whose content is text.
func memory(text [32]byte) (*os.File, error) {
	if err := filelimit.Check(uint64(len(text))); err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("mscclpp-probe", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "probe")
	if _, err := f.WriteAt(text[:], 0); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// holds reports whether a descriptor leads to text.
func holds(files []*os.File, text [32]byte) bool {
	var got [32]byte
	if len(files) != 1 {
		return false
	}
	n, err := files[0].ReadAt(got[:], 0)
	return n == len(got) && err == nil && got == text
}
