package protocoltest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	pb "github.com/mscclpp-go/mscclpp/plugins/proto"
)

// packet is one message of the control socket, which a test may spoil.
type packet struct {
	magic   string
	version byte
	kind    byte
	count   uint16
	call    uint64
	numbers []uint64
	more    []byte // behind the numbers
	cut     int    // bytes that are left out at the end
}

const (
	kindDescriptors = 1
	kindEnd         = 2
	mostDescriptors = 64
)

func descriptorsPacket(call uint64, numbers ...uint64) packet {
	return packet{magic: "MSFD", version: 1, kind: kindDescriptors, count: uint16(len(numbers)), call: call, numbers: numbers}
}

func endPacket(call uint64) packet {
	return packet{magic: "MSFD", version: 1, kind: kindEnd, call: call}
}

func (p packet) bytes() []byte {
	b := append([]byte(p.magic), p.version, p.kind)
	b = binary.LittleEndian.AppendUint16(b, p.count)
	b = binary.LittleEndian.AppendUint64(b, p.call)
	for _, n := range p.numbers {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	b = append(b, p.more...)
	return b[:len(b)-p.cut]
}

// send sends a packet with descriptors; cred is nil for our own identity.
func (h *host) send(p packet, fds []int, cred *unix.Ucred) error {
	var control []byte
	if len(fds) > 0 {
		control = unix.UnixRights(fds...)
	}
	if cred != nil {
		control = append(control, unix.UnixCredentials(cred)...)
	}
	return unix.Sendmsg(int(h.control.Fd()), p.bytes(), control, nil, unix.MSG_NOSIGNAL)
}

// sends is send that has to succeed.
func (h *host) sends(p packet, fds ...int) {
	if err := h.send(p, fds, nil); err != nil {
		h.t.Fatalf("send a packet to the plugin: %v%s", err, h.said())
	}
}

// next is a number for a call.
func (h *host) next() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.call++
	return h.call
}

// numbers are for descriptors of the host.
func (h *host) numbers(n int) []uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]uint64, n)
	for i := range list {
		h.fd++
		list[i] = h.fd
	}
	return list
}

// register is a request for 4 KiB of host memory behind descriptors.
func (h *host) register(call uint64, fds ...uint64) *pb.RegisterRequest {
	segment := &pb.Segment{Device: &pb.Device{Type: "host"}, Bytes: segmentBytes}
	for _, n := range fds {
		segment.Shares = append(segment.Shares, &pb.Share{Kind: "memfd", Fd: n})
	}
	return &pb.RegisterRequest{Call: call, Segment: segment}
}

const segmentBytes = 4096

// memory is a sealed memfd, open until the end of the test.
func (h *host) memory() int {
	fd, err := unix.MemfdCreate("conformance", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		h.t.Fatalf("make a memfd: %v", err)
	}
	f := os.NewFile(uintptr(fd), "conformance")
	h.t.Cleanup(func() { f.Close() })
	if err := f.Truncate(segmentBytes); err != nil {
		h.t.Fatalf("give a memfd its size: %v", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		h.t.Fatalf("seal a memfd: %v", err)
	}
	return fd
}

// arrived is a packet that the plugin has sent.
type arrived struct {
	data []byte
	fds  []int
}

// receive takes the packets that have come, until there is none for a moment.
func (h *host) receive() []arrived {
	var all []arrived
	fd := int(h.control.Fd())
	for {
		if !awaitInput(fd, settle) {
			return all
		}
		data, control := make([]byte, 4096), make([]byte, 4096)
		n, oobn, _, _, err := unix.Recvmsg(fd, data, control, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
		if err != nil || n == 0 {
			return all
		}
		a := arrived{data: data[:n]}
		messages, err := unix.ParseSocketControlMessage(control[:oobn])
		if err != nil {
			h.t.Errorf("a packet of the plugin: %v", err)
		}
		for i := range messages {
			if fds, err := unix.ParseUnixRights(&messages[i]); err == nil {
				a.fds = append(a.fds, fds...)
			}
		}
		all = append(all, a)
	}
}

// awaitInput waits until there is something to read. Signals, with which Go's own scheduler
// interrupts its threads, do not end the wait.
func awaitInput(fd int, bound time.Duration) bool {
	for end := time.Now().Add(bound); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(max(0, time.Until(end).Milliseconds())))
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n > 0
		}
	}
}

// check reads the head of a packet of the plugin that came for a call, and closes what
// came with it.
func (a arrived) check(call uint64) (numbers []uint64, err error) {
	for _, fd := range a.fds {
		unix.Close(fd)
	}
	if len(a.data) < 16 || string(a.data[:4]) != "MSFD" || a.data[4] != 1 || a.data[5] != kindDescriptors {
		return nil, fmt.Errorf("begins with % x: want the magic MSFD, version 1 and kind 1", a.data[:min(16, len(a.data))])
	}
	n := int(binary.LittleEndian.Uint16(a.data[6:]))
	if n < 1 || n > mostDescriptors || n != len(a.fds) || len(a.data) != 16+8*n {
		return nil, fmt.Errorf("lists %d descriptors, has %d and %d bytes: want 1 to %d of them, 8 bytes each behind the first 16", n, len(a.fds), len(a.data), mostDescriptors)
	}
	if got := binary.LittleEndian.Uint64(a.data[8:]); got != call {
		return nil, fmt.Errorf("is for call %d: want %d, the one of the request", got, call)
	}
	for i := range n {
		numbers = append(numbers, binary.LittleEndian.Uint64(a.data[16+8*i:]))
	}
	return numbers, nil
}
