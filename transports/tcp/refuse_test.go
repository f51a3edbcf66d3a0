package tcp

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// intruder makes a stream as a proxy would, with the address that it got.
func intruder(t *testing.T, p *pair, stream, streams uint8, group byte) (*net.TCPConn, error) {
	t.Helper()
	a, err := decodeAddress(p.listens[1].Address)
	if err != nil {
		t.Fatal(err)
	}
	c := &connection{peer: 1, address: a}
	h := hello{stream: stream, streams: streams, from: 0, to: 1, endpoint: a.endpoint, group: [16]byte{group}}
	conn, _, err := c.dial(t.Context(), Config{}.Defaults(), candidates(a, networkStack(), nil), h)
	if err == nil {
		t.Cleanup(func() { conn.Close() })
	}
	return conn, err
}

// An authenticated peer still reaches only memory that it was given a key of.
func TestFramesThatAreRefused(t *testing.T) {
	p := linked(t, header, two(t, nil))
	k, err := decodeKey(p.key)
	if err != nil {
		t.Fatal(err)
	}
	open := func(id uint64, token [16]byte) []byte {
		b := frame{kind: frameOpen, handle: 1, bytes: openBytes}.append(nil)
		return append(order.AppendUint64(b, id), token[:]...)
	}
	good := open(k.id, k.token)
	for want, data := range map[string][]byte{
		"stands for nothing":                    frame{kind: frameSignal, handle: 1}.append(nil),
		"not meant for this peer":               open(k.id, [16]byte{1}),
		"or not meant":                          open(k.id+100, k.token),
		"is in use":                             append(good, good...),
		"bytes at":                              append(good, frame{kind: framePut, handle: 1, offset: header - 8, bytes: 16}.append(nil)...),
		"is not aligned":                        append(good, frame{kind: frameSignal, handle: 1, offset: 4}.append(nil)...),
		"8 bytes at 4096":                       append(good, frame{kind: frameSignal, handle: 1, offset: header}.append(nil)...),
		"makes no sense":                        make([]byte, frameBytes),
		"expected put 1":                        append(good, frame{kind: frameStripe, handle: 1, bytes: 8, number: 2}.append(nil)...),
		"put 1 over 2 more streams: expected p": append(good, frame{kind: frameStripe, others: 2, handle: 1, bytes: 8, number: 1}.append(nil)...),
	} {
		conn, err := intruder(t, p, 0, 2, 1)
		if err != nil {
			t.Fatal(err)
		}
		p.check(conn.SetDeadline(time.Now().Add(limit)))
		if _, err := conn.Write(data); err != nil {
			t.Fatal(err)
		}
		said, err := io.ReadAll(conn)
		if err != nil {
			t.Errorf("%s: the stream ends with %v", want, err)
		}
		if len(said) < answerBytes || !strings.Contains(string(said[answerBytes:]), want) {
			t.Errorf("the receiver says %q, want %q", said, want)
		}
		if n := p.count(); n != 0 {
			t.Errorf("%s: the counter is %d", want, n)
		}
	}
	p.release()
}

func TestStreamsThatAreRefused(t *testing.T) {
	p := linked(t, header, two(t, nil))
	if _, err := intruder(t, p, 1, 2, 1); !errors.Is(err, framework.ErrPeer) || !strings.Contains(err.Error(), "group") {
		t.Errorf("a second stream without a first: %v, want it refused", err)
	}
	if _, err := intruder(t, p, 0, 2, 2); err != nil {
		t.Fatal(err)
	}
	for what, s := range map[string][2]uint8{"the first stream twice": {0, 2}, "another number of streams": {1, 3}} {
		if _, err := intruder(t, p, s[0], s[1], 2); !errors.Is(err, framework.ErrPeer) {
			t.Errorf("%s: %v, want it refused", what, err)
		}
	}
	second, err := intruder(t, p, 1, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	p.check(second.SetDeadline(time.Now().Add(limit)))
	if _, err := second.Write(frame{kind: frameFlush, number: 1}.append(nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Read(make([]byte, 1)); err == nil {
		t.Errorf("a flush on a stream for stripes is answered")
	}
	p.release()
}

// A rank with a wrong secret cannot connect, and learns why.
func TestWrongSecret(t *testing.T) {
	p := linked(t, header, two(t, nil))
	a, err := decodeAddress(p.listens[1].Address)
	if err != nil {
		t.Fatal(err)
	}
	a.secret[0] ^= 1
	conn, err := p.ends[0].Connect(t.Context(), p.listens[0].ID, []framework.Peer{{Rank: 1, Address: framework.Parcel{Data: a.append(nil)}}})
	p.check(err)
	proxy, err := p.ends[0].(framework.Proxier).NewProxy(t.Context())
	p.check(err)
	err = proxy.BindMemory(t.Context(), 0, framework.MemoryBinding{Conn: conn, Key: p.key})
	if !errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) != 1 || !strings.Contains(err.Error(), "proof") {
		t.Errorf("%v, want ErrPeer of rank 1 about the proof", err)
	}
	p.check(proxy.Stop(t.Context()))
	p.release()
}

// A peer that leaves in order does not end a proxy: what is still sent is dropped, and
// no flush waits for it.
func TestPeerLeaves(t *testing.T) {
	for _, size := range []uint64{8, 4 << 20} {
		p := linked(t, header+size, two(t, nil)).open(16)
		if _, err := p.push(putSignal, header, header, size); err != nil {
			t.Fatal(err)
		}
		p.check(p.flush())
		left := make(chan error, 1)
		go func() { left <- p.ends[1].Close(context.Background(), p.listens[1].ID) }()
		for range 200 { // before, during and after
			if _, err := p.push(putSignal, header, header, size); err != nil {
				t.Fatal(err, p.died())
			}
			p.check(p.flush())
		}
		p.check(<-left)
		g := firstGroup(p)
		until(t, "the goodbye", func() bool { return g.parted() })
		if _, err := p.push(putSignal, header, header, size); err != nil {
			t.Fatal(err)
		}
		p.check(p.flush())
		if err := g.usable(); framework.PeerOf(err) != 1 || !strings.Contains(err.Error(), "closed its side") || !strings.Contains(err.Error(), g.place.String()) {
			t.Errorf("%v, want an error of rank 1 at %v, which has closed its side", err, g.place)
		}
		p.check(p.proxy.Stop(t.Context()))
		p.check(p.died())
		p.release()
	}
}

func firstGroup(p *pair) *outbound {
	x := p.proxy.(*proxy)
	x.binds.Lock()
	defer x.binds.Unlock()
	return x.groups[p.conn]
}

// A peer that goes in the middle, without a word, ends the proxy at once.
func TestPeerVanishes(t *testing.T) {
	p := linked(t, header, two(t, nil)).open(16)
	e, err := find[*endpoint](p.ends[1].(*Transport), p.listens[1].ID, "endpoint")
	p.check(err)
	e.mu.Lock()
	var groups []*inbound
	for _, g := range e.groups {
		groups = append(groups, g)
	}
	e.mu.Unlock()
	for _, g := range groups {
		g.end()
	}
	if err := p.died(); !errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) != 1 || !strings.Contains(err.Error(), firstPlace(p)) {
		t.Errorf("%v, want ErrPeer of rank 1 with its address", err)
	}
	if _, err := p.push(kernel.TriggerSignal, 0, 0, 0); !errors.Is(err, framework.ErrPeer) {
		t.Errorf("a push after that: %v, want ErrPeer", err)
	}
}

func firstPlace(p *pair) string {
	a, err := decodeAddress(p.listens[1].Address)
	p.check(err)
	return candidates(a, networkStack(), subnets())[0].String()
}

// A segment that is memory of a GPU is refused with what to do; from then on links
// for that device are not offered.
func TestMemoryOfDevices(t *testing.T) {
	tr, err := New(Config{}.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	gpu := framework.Device{Type: "cuda", Index: 1}
	cfg := framework.EndpointConfig{Kind: framework.KindPort, Ranks: []int{0, 1}, Device: gpu}
	end, err := tr.Listen(t.Context(), cfg)
	if err != nil {
		t.Fatalf("listen for a GPU whose memory nobody has seen: %v", err)
	}
	_, err = tr.Register(t.Context(), framework.Segment{Device: gpu, Bytes: 8, Shares: []framework.Share{{Kind: framework.ShareFabric, Blob: []byte{1}}}})
	if !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "gpu_memory") {
		t.Errorf("%v, want ErrUnsupported that names gpu_memory", err)
	}
	if _, err := tr.Listen(t.Context(), cfg); !errors.Is(err, framework.ErrUnavailable) {
		t.Errorf("listen for it after that: %v, want ErrUnavailable", err)
	}
	if err := tr.Close(t.Context(), end.ID); err != nil {
		t.Error(err)
	}
}

// Links come and go without leaving descriptors or goroutines.
func TestNothingIsLeft(t *testing.T) {
	ends := two(t, nil)
	round := func() {
		p := linked(t, header+(4<<20), ends).open(16)
		if _, err := p.push(putSignal, header, header, 4<<20); err != nil {
			t.Fatal(err)
		}
		p.check(p.flush())
		p.release()
		p.src.Close()
		p.dst.Close()
	}
	open := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	round()
	files, routines := open(), runtime.NumGoroutine()
	for range 10 {
		round()
	}
	until(t, "descriptors", func() bool { return open() <= files })
	until(t, "goroutines", func() bool { return runtime.NumGoroutine() <= routines })
}
