package protocoltest_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// held is what has arrived for calls that have not ended.
type held struct {
	flaw    string
	mu      sync.Mutex
	changed chan struct{}
	fds     map[uint64]map[uint64]int // call, number
	lost    map[uint64]bool           // calls whose descriptors were dropped
	claims  int
}

func newHeld(flaw string) *held {
	return &held{flaw: flaw, changed: make(chan struct{}), fds: map[uint64]map[uint64]int{}, lost: map[uint64]bool{}}
}

func (h *held) waiting() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.claims > 0
}

func (h *held) add(call uint64, numbers []uint64, fds []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer func() { close(h.changed); h.changed = make(chan struct{}) }()
	if len(fds) < len(numbers) && h.flaw != "lossless" {
		closeFDs(fds)
		h.lost[call] = true
		return
	}
	if h.fds[call] == nil {
		h.fds[call] = map[uint64]int{}
	} else if h.flaw == "one-packet" {
		closeFDs(fds)
		return
	}
	for i, fd := range fds {
		h.fds[call][numbers[min(i, len(numbers)-1)]] = fd
	}
}

func (h *held) claim(ctx context.Context, call, number uint64) (int, error) {
	bound := time.NewTimer(arrivalBound)
	defer bound.Stop()
	h.mu.Lock()
	h.claims++
	defer func() { h.claims--; h.mu.Unlock() }()
	for {
		if fd, ok := h.fds[call][number]; ok {
			delete(h.fds[call], number)
			return fd, nil
		}
		if h.lost[call] || h.flaw == "impatient" {
			return 0, fmt.Errorf("descriptor %d was lost", number)
		}
		changed := h.changed
		h.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-ctx.Done():
			err = ctx.Err()
		case <-bound.C:
			err = errors.New("no descriptor")
		}
		h.mu.Lock()
		if err != nil {
			return 0, err
		}
	}
}

func (h *held) end(call uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, fd := range h.fds[call] {
		unix.Close(fd)
	}
	delete(h.fds, call)
	delete(h.lost, call)
}

func head(kind byte, n uint16, call uint64, numbers ...uint64) []byte {
	b := append([]byte("MSFD"), 1, kind)
	b = binary.LittleEndian.AppendUint16(b, n)
	b = binary.LittleEndian.AppendUint64(b, call)
	for _, x := range numbers {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return b
}

// receive runs until the control socket ends, or brings what is no packet.
func (m *mini) receive() {
	data, control := make([]byte, 1024), make([]byte, 1024)
	for {
		n, oobn, _, _, err := unix.Recvmsg(3, data, control, unix.MSG_CMSG_CLOEXEC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return
		}
		var fds []int
		uid := uint32(1<<32 - 1)
		messages, _ := unix.ParseSocketControlMessage(control[:oobn])
		for i := range messages {
			if list, err := unix.ParseUnixRights(&messages[i]); err == nil {
				fds = append(fds, list...)
			}
			if cred, err := unix.ParseUnixCredentials(&messages[i]); err == nil {
				uid = cred.Uid
			}
		}
		if uid != uint32(os.Getuid()) && m.flaw != "trusts-strangers" {
			return
		}
		numbers, err := packetIn(data[:n], m.flaw)
		switch {
		case err != nil && m.flaw == "trusts-packets":
			closeFDs(fds)
		case err != nil:
			return
		case data[5] == 1:
			m.calls.add(binary.LittleEndian.Uint64(data[8:]), numbers, fds)
		case m.flaw != "no-ends":
			m.calls.end(binary.LittleEndian.Uint64(data[8:]))
		}
	}
}

var errPacket = errors.New("malformed")

func packetIn(b []byte, flaw string) (numbers []uint64, err error) {
	if len(b) < 16 || string(b[:4]) != "MSFD" || b[4] != 1 || b[5] < 1 || b[5] > 2 {
		return nil, errPacket
	}
	n := int(binary.LittleEndian.Uint16(b[6:]))
	if len(b) != 16+8*n || n > 64 || (b[5] == 1) != (n > 0) {
		return nil, errPacket
	}
	seen := map[uint64]bool{0: true}
	for i := range n {
		x := binary.LittleEndian.Uint64(b[16+8*i:])
		if seen[x] && flaw != "trusts-numbers" {
			return nil, errPacket
		}
		seen[x] = true
		numbers = append(numbers, x)
	}
	return numbers, nil
}
