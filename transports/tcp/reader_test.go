package tcp

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"unsafe"
)

// piped is a reader, and the connection of its sender.
func piped(t *testing.T) (*reader, *wire, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	out, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	w, err := newWire(in.(*net.TCPConn))
	if err != nil {
		t.Fatal(err)
	}
	r, err := newReader(w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close(); w.close(); r.free() })
	return r, w, out
}

// known lets handle 7 stand for words of Go memory, which stays where it is.
func known(r *reader, words []uint64) *span {
	s := &span{base: uintptr(unsafe.Pointer(unsafe.SliceData(words))), bytes: uint64(len(words) * 8)}
	s.users.Store(1)
	r.pins.Pin(unsafe.SliceData(words))
	r.know(7, s)
	return s
}

func write(t *testing.T, c net.Conn, b []byte) {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
}

func TestLoopPerformsPutsAndSignals(t *testing.T) {
	r, _, out := piped(t)
	words := make([]uint64, 4096)
	s := known(r, words)
	data := bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7, 8}, 2500) // more than is read ahead beside a large put
	var all []byte
	for n := range 40 { // small and large ones behind each other
		size := []int{8, 20000, 0, 640}[n%4]
		all = append(frame{kind: framePut, handle: 7, offset: 16, bytes: uint64(size)}.append(all), data[:size]...)
		all = frame{kind: frameSignal, handle: 7, offset: 8}.append(all)
	}
	all = frame{kind: frameFlush, number: 1}.append(all)
	go func() { _, _ = out.Write(all) }()
	head := make([]byte, frameBytes)
	if last, err := r.next(head); last || err != nil {
		t.Fatalf("%v, %v", last, err)
	}
	if f, err := decodeFrame(head); err != nil || f.kind != frameFlush {
		t.Errorf("%v, %v: expected the flush, which is not for the loop", f, err)
	}
	if words[1] != 40 || words[0] != 0 || !bytes.Equal(unsafe.Slice((*byte)(unsafe.Pointer(&words[2])), 20000), data) {
		t.Errorf("%d signals, expected 40, and the data of the largest put", words[1])
	}
	if n := s.users.Load(); n != 1 {
		t.Errorf("%d users of the memory, expected the registration alone", n)
	}
}

// Frames that the loop must not perform come out as they are, and touch nothing.
func TestLoopLeavesTheRestToGo(t *testing.T) {
	for name, f := range map[string]frame{
		"unknown handle":     {kind: framePut, handle: 8},
		"handle beyond":      {kind: framePut, handle: handles},
		"put beyond":         {kind: framePut, handle: 7, offset: 4, bytes: 61},
		"put that overflows": {kind: framePut, handle: 7, offset: ^uint64(0), bytes: 8},
		"numbered put":       {kind: framePut, handle: 7, number: 1},
		"signal beyond":      {kind: frameSignal, handle: 7, offset: 64},
		"unaligned signal":   {kind: frameSignal, handle: 7, offset: 4},
		"signal with data":   {kind: frameSignal, handle: 7, bytes: 8},
		"put with others":    {kind: framePut, handle: 7, others: 1},
		"stripe":             {kind: frameStripe, handle: 7, bytes: 8, number: 1},
		"nonsense":           {kind: 99, handle: 7},
	} {
		t.Run(name, func(t *testing.T) {
			r, _, out := piped(t)
			words := make([]uint64, 8)
			s := known(r, words)
			want := f.append(nil)
			write(t, out, want)
			head := make([]byte, frameBytes)
			if last, err := r.next(head); last || err != nil || !bytes.Equal(head, want) {
				t.Errorf("%v, %v, %v: expected %v", last, err, head, want)
			}
			if s.users.Load() != 1 || words[0] != 0 {
				t.Error("it was performed")
			}
		})
	}
}

// Memory that is closed in the middle of a put is given back when the put is over, and
// is not reached again.
func TestMemoryClosedDuringAPut(t *testing.T) {
	r, _, out := piped(t)
	words := make([]uint64, 8)
	s := known(r, words)
	put := frame{kind: framePut, handle: 7, bytes: 16}.append(nil)
	write(t, out, append(put, 1, 0, 0, 0, 0, 0, 0, 0))
	type result struct {
		last bool
		err  error
	}
	over := make(chan result)
	head := make([]byte, frameBytes)
	next := func() {
		last, err := r.next(head)
		over <- result{last, err}
	}
	go next()
	until(t, "the put begins", func() bool { return s.users.Load() == 2 })
	s.users.Add(-1)
	write(t, out, []byte{2, 0, 0, 0, 0, 0, 0, 0})
	if got := <-over; !got.last || got.err != nil || words[0] != 1 || words[1] != 2 || s.users.Load() != 0 {
		t.Errorf("%+v with %v: expected the last use of the memory, after all data", got, words[:2])
	}
	write(t, out, frame{kind: frameSignal, handle: 7, offset: 8}.append(nil))
	go next()
	if got := <-over; got.last || got.err != nil || words[1] != 2 {
		t.Errorf("%+v with %d: expected the frame, which is refused", got, words[1])
	}
}

func TestEndOfAStream(t *testing.T) {
	r, _, out := piped(t)
	words := make([]uint64, 8)
	s := known(r, words)
	write(t, out, append(frame{kind: framePut, handle: 7, bytes: 16}.append(nil), 1))
	out.Close()
	if _, err := r.next(make([]byte, frameBytes)); !errors.Is(err, io.EOF) || s.users.Load() != 1 {
		t.Errorf("%v with %d users: expected the end, and nobody inside", err, s.users.Load())
	}

}

func TestClosingEndsWaits(t *testing.T) {
	r, w, _ := piped(t)
	over := make(chan error)
	go func() { over <- r.full(make([]byte, 8)) }()
	until(t, "it waits", func() bool {
		if w.mu.TryLock() {
			w.mu.Unlock()
			return false
		}
		return true
	})
	w.close()
	if err := <-over; !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		t.Errorf("who waited got %v", err)
	}
	if err := r.full(make([]byte, 8)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("who came later got %v", err)
	}
	w.close() // once more
}
