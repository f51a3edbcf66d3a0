package fdsock

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
)

// maxDescriptors is the most that one message carries. The kernel's own limit is
// 253; a small message keeps what is lost with one small.
const maxDescriptors = 64

// A message is one packet, little endian:
//
//	 0  4  magic "MSFD"
//	 4  1  version, 1
//	 5  1  kind: 1 descriptors, 2 end of call
//	 6  2  n: descriptors in this message, 1 to 64; 0 in an end message
//	 8  8  number of the call
//	16  8n numbers of the descriptors, in the order of the control message
const (
	magic          = "MSFD"
	version   byte = 1
	headBytes      = 16

	kindDescriptors byte = 1
	kindEnd         byte = 2

	maxMessage = headBytes + 8*maxDescriptors
)

type message struct {
	kind    byte
	call    uint64
	numbers []uint64
}

func (m message) append(b []byte) []byte {
	b = append(b, magic...)
	b = append(b, version, m.kind)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(m.numbers)))
	b = binary.LittleEndian.AppendUint64(b, m.call)
	for _, n := range m.numbers {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

func parse(b []byte) (message, error) {
	wrong := func(what string, seen any) (message, error) {
		return message{}, fmt.Errorf("%w: descriptor message: %s %v", framework.ErrInvalid, what, seen)
	}
	switch {
	case len(b) < headBytes:
		return wrong("expected at least 16 bytes, got", len(b))
	case string(b[:4]) != magic:
		return wrong("expected magic MSFD, got", fmt.Sprintf("%q", b[:4]))
	case b[4] != version:
		return wrong("expected version 1, got", b[4])
	}
	m := message{kind: b[5], call: binary.LittleEndian.Uint64(b[8:])}
	n := int(binary.LittleEndian.Uint16(b[6:]))
	switch {
	case m.kind == kindDescriptors && (n < 1 || n > maxDescriptors):
		return wrong("expected 1 to 64 descriptors, got", n)
	case m.kind == kindEnd && n != 0:
		return wrong("expected no descriptors in an end message, got", n)
	case m.kind != kindDescriptors && m.kind != kindEnd:
		return wrong("unknown kind", m.kind)
	case len(b) != headBytes+8*n:
		return wrong(fmt.Sprintf("expected %d bytes, got", headBytes+8*n), len(b))
	}
	seen := make(map[uint64]bool, n)
	for i := range n {
		number := binary.LittleEndian.Uint64(b[headBytes+8*i:])
		if number == 0 || seen[number] {
			return wrong("expected distinct numbers other than 0, got", number)
		}
		seen[number] = true
		m.numbers = append(m.numbers, number)
	}
	return m, nil
}

// parseControl takes descriptors and the sender's user out of a control message.
// The descriptors are the caller's even when it returns an error.
func parseControl(b []byte) (files []*os.File, uid uint32, err error) {
	messages, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: control message: %w", framework.ErrInvalid, err)
	}
	known := false
	for i := range messages {
		switch m := &messages[i]; {
		case m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_CREDENTIALS:
			cred, err := unix.ParseUnixCredentials(m)
			if err != nil {
				return files, 0, fmt.Errorf("%w: credentials: %w", framework.ErrInvalid, err)
			}
			uid, known = cred.Uid, true
		case m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_RIGHTS:
			fds, err := unix.ParseUnixRights(m)
			if err != nil {
				return files, 0, fmt.Errorf("%w: descriptors: %w", framework.ErrInvalid, err)
			}
			for _, fd := range fds { // close-on-exec: ReadMsgUnix asks for it
				files = append(files, os.NewFile(uintptr(fd), "received"))
			}
		}
	}
	if !known {
		return files, 0, fmt.Errorf("%w: descriptor message without the sender's identity", framework.ErrInvalid)
	}
	return files, uid, nil
}

// Send sends descriptors on behalf of a call and returns their numbers. The
// caller keeps its descriptors.
func (c *Conn) Send(ctx context.Context, call uint64, files []*os.File) ([]uint64, error) {
	numbers := make([]uint64, len(files))
	for i := range numbers {
		numbers[i] = c.last.Add(1)
	}
	for at := 0; at < len(files); at += maxDescriptors {
		end := min(at+maxDescriptors, len(files))
		m := message{kind: kindDescriptors, call: call, numbers: numbers[at:end]}
		if err := c.write(ctx, m, files[at:end]); err != nil {
			return nil, err
		}
	}
	return numbers, nil
}

func (c *Conn) write(ctx context.Context, m message, files []*os.File) error {
	return withFDs(files, nil, func(fds []int) error {
		var rights []byte
		if len(fds) > 0 {
			rights = unix.UnixRights(fds...)
		}
		deadline := time.Now().Add(sendBound)
		if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
			deadline = d
		}
		c.sending.Lock()
		defer c.sending.Unlock()
		if err := c.sock.SetWriteDeadline(deadline); err != nil {
			return c.sendError(err)
		}
		if _, _, err := c.sock.WriteMsgUnix(m.append(nil), rights, nil); err != nil {
			return c.sendError(err)
		}
		return nil
	})
}

func (c *Conn) sendError(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("send descriptors: the other side does not receive: %w", context.DeadlineExceeded)
	case errors.Is(err, unix.ETOOMANYREFS):
		return fmt.Errorf("%w: send descriptors: too many in flight: raise the limit of open files (ulimit -n): %w", framework.ErrUnavailable, err)
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET), errors.Is(err, net.ErrClosed):
		return fmt.Errorf("%w: send descriptors: the descriptor socket has ended: %w", framework.ErrPlugin, err)
	}
	return fmt.Errorf("%w: send descriptors: %w", framework.ErrInvalid, err)
}

// withFDs calls f with the numbers of open files, which stay open meanwhile. It
// does not use File.Fd, which would make them blocking.
func withFDs(files []*os.File, fds []int, f func([]int) error) error {
	if len(files) == 0 {
		return f(fds)
	}
	raw, err := files[0].SyscallConn()
	if err != nil {
		return fmt.Errorf("%w: descriptor to send: %w", framework.ErrInvalid, err)
	}
	var inner error
	if err := raw.Control(func(fd uintptr) {
		inner = withFDs(files[1:], append(fds, int(fd)), f)
	}); err != nil {
		return fmt.Errorf("%w: descriptor to send: %w", framework.ErrInvalid, err)
	}
	return inner
}
