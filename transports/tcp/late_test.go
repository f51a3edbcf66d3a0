package tcp

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/internal/promise"
)

// A rank that is stopped between the exchange of addresses and Attach comes late; that it
// has died is for others to say.
func TestLateAttach(t *testing.T) {
	ends := two(t, func(c *Config) { c.ConnectTimeout, c.AnswerTimeout = 200*time.Millisecond, 20*time.Second })
	conns, _ := linkOf(t, ends, framework.Host)
	waits := make(chan error, 1)
	go func() {
		a, err := ends[1].Attach(t.Context(), conns[1], 0, nil)
		a.Close()
		waits <- err
	}()
	select {
	case err := <-waits:
		t.Fatalf("rank 0 is late: %v: expected rank 1 to wait for it", err)
	case <-time.After(400 * time.Millisecond): // twice as long as a connection may take
	}
	a, err := ends[0].Attach(t.Context(), conns[0], 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := <-waits; err != nil {
		t.Errorf("rank 1: %v", err)
	}
}

// peerAt answers as an endpoint at a place of its own, the nth connection by answer(n).
func peerAt(t *testing.T, secret [32]byte, answer func(n int, c net.Conn)) *connection {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answer(n, c)
		}
	}()
	return &connection{peer: 1, address: address{secret: secret, places: []netip.AddrPort{netip.MustParseAddrPort(l.Addr().String())}}}
}

func serve(secret [32]byte, c net.Conn) {
	_, _ = welcome(c, func(hello) ([32]byte, refusal) { return secret, accepted }, func(hello) (refusal, error) { return accepted, nil })
}

// The kernel of a stopped process accepts connections. The peer is waited for; one that
// never goes on is named.
func TestStoppedPeer(t *testing.T) {
	config, secret := Config{}.Defaults(), [32]byte{7}
	config.ConnectTimeout = 200 * time.Millisecond
	goesOn := make(chan struct{})
	c := peerAt(t, secret, func(_ int, conn net.Conn) { <-goesOn; serve(secret, conn) })
	time.AfterFunc(2*config.ConnectTimeout, func() { close(goesOn) })
	conn, _, err := c.dial(t.Context(), config, c.address.places, hello{streams: 1})
	if err != nil {
		t.Fatalf("%v: expected the peer to be waited for", err)
	}
	conn.Close()

	config.AnswerTimeout = 100 * time.Millisecond
	c = peerAt(t, secret, func(_ int, conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	_, _, err = c.dial(t.Context(), config, c.address.places, hello{streams: 1})
	if !errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) != 1 || !strings.Contains(err.Error(), "answer_timeout 100ms") {
		t.Errorf("%v: expected %v of rank 1 with the option", err, framework.ErrPeer)
	}
}

// A handshake that the peer has ended without a reason is begun again; a peer that always
// does so is given up.
func TestBrokenOff(t *testing.T) {
	config, secret := Config{}.Defaults(), [32]byte{7}
	c := peerAt(t, secret, func(n int, conn net.Conn) {
		if n < 3 {
			conn.Close()
			return
		}
		serve(secret, conn)
	})
	conn, _, err := c.dial(t.Context(), config, c.address.places, hello{streams: 1})
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	c = peerAt(t, secret, func(_ int, conn net.Conn) { conn.Close() })
	if _, _, err = c.dial(t.Context(), config, c.address.places, hello{streams: 1}); !errors.Is(err, errBrokenOff) || framework.PeerOf(err) != 1 {
		t.Errorf("%v: expected %v of rank 1", err, errBrokenOff)
	}
}

// flood makes silent connections to an endpoint.
func flood(t *testing.T, to framework.Endpoint, connections int) {
	t.Helper()
	a, err := decodeAddress(to.Address)
	if err != nil {
		t.Fatal(err)
	}
	for range connections {
		c, err := net.Dial("tcp", a.places[0].String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	}
}

// greeters waits until so many connections are in their handshake.
func greeters(t *testing.T, l *listener, n int) {
	t.Helper()
	until(t, "handshakes", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.greets) == n
	})
}

// Silent connections, more than there are places for, keep no rank out.
func TestSilentStrangers(t *testing.T) {
	ends := two(t, nil)
	ends[1].(*Transport).proofTime = time.Millisecond
	conns, listens := linkOf(t, ends, framework.Host)
	flood(t, listens[1], 3*strangers)
	watch := promise.Begin()
	handOver(t, ends, conns)
	if err := watch.Kept(2 * time.Second); err != nil {
		t.Errorf("among strangers %v: expected them to be no hindrance", err)
	}
	l := ends[1].(*Transport).listener
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.greets) > strangers {
		t.Errorf("%d handshakes: expected at most %d", len(l.greets), strangers)
	}
}

// A rank that is slow to prove itself is not ended at once by those that come after it.
func TestSlowPeerAmongStrangers(t *testing.T) {
	ends := two(t, nil)
	ends[1].(*Transport).proofTime = time.Hour
	_, listens := linkOf(t, ends, framework.Host)
	a, err := decodeAddress(listens[1].Address)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", a.places[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	l := ends[1].(*Transport).listener
	greeters(t, l, 1)
	flood(t, listens[1], strangers+64) // which the kernel keeps
	greeters(t, l, strangers)
	_ = conn.SetDeadline(time.Now().Add(limit))
	if err := greet(conn, a.secret, hello{streams: 1, from: 0, to: 1, endpoint: a.endpoint}); err != nil {
		t.Errorf("%v: expected the slow rank to be served", err)
	}
	greeters(t, l, strangers) // one more has its place
}

// A stream is part of its group only if its connection was not dropped: one that was begins
// again, and has its place.
func TestDroppedStreamJoinsNothing(t *testing.T) {
	for _, handed := range []bool{false, true} {
		ends := two(t, nil)
		_, listens := linkOf(t, ends, framework.Host)
		a, err := decodeAddress(listens[1].Address)
		if err != nil {
			t.Fatal(err)
		}
		tr := ends[1].(*Transport)
		h := hello{streams: 2, handed: handed, from: 0, to: 1, endpoint: a.endpoint, group: [16]byte{1}}
		try := func(stream uint8, dropped bool) error {
			server, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			client, err := net.Dial("tcp", server.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { client.Close() })
			conn, err := server.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if _, entered := tr.listener.enter(conn); !entered {
				t.Fatal("no place")
			}
			if dropped { // as if it had been the oldest; it can still speak, as in the moment before it is closed
				tr.listener.removeGreet(conn)
			}
			served := make(chan error, 1)
			go func() {
				_, err := tr.listener.greet(conn.(*net.TCPConn))
				conn.Close()
				served <- err
			}()
			_ = client.SetDeadline(time.Now().Add(limit))
			h.stream = stream
			return errors.Join(greet(client, a.secret, h), <-served)
		}
		for _, stream := range []uint8{0, 1} {
			if err := try(stream, true); !errors.Is(err, errBrokenOff) {
				t.Errorf("handed %t, stream %d: %v: expected %v", handed, stream, err, errBrokenOff)
			}
			if err := try(stream, false); err != nil {
				t.Errorf("handed %t, stream %d again: %v", handed, stream, err)
			}
		}
	}
}

// A stream whose handshake failed after it had joined leaves its place.
func TestStreamThatIsUndone(t *testing.T) {
	ends := two(t, nil)
	_, listens := linkOf(t, ends, framework.Host)
	e, err := find[*endpoint](ends[1].(*Transport), listens[1].ID, "endpoint")
	if err != nil {
		t.Fatal(err)
	}
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	conn, err := net.Dial("tcp", server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, undone := range []uint8{1, 0} { // without the first the group is none
		for round := range 2 {
			first, second := hello{streams: 2, handed: true, from: 0, to: 1, group: [16]byte{1}}, hello{stream: 1, streams: 2, handed: true, from: 0, to: 1, group: [16]byte{1}}
			if why := e.joinHanded(first, conn.(*net.TCPConn)); why != accepted && (undone != 1 || round != 1) {
				t.Fatalf("stream 0, round %d of %d: %v", round, undone, why)
			}
			if why := e.joinHanded(second, conn.(*net.TCPConn)); why != accepted {
				t.Fatalf("stream 1, round %d of %d: %v", round, undone, why)
			}
			e.unjoinHanded(hello{stream: undone, group: [16]byte{1}})
		}
		e.unjoinHanded(hello{group: [16]byte{1}})
		g, why := e.join(hello{streams: 2, from: 0, to: 1, group: [16]byte{2, undone}}, conn.(*net.TCPConn))
		for range 2 {
			if why == accepted {
				_, why = e.join(hello{stream: 1, streams: 2, from: 0, to: 1, group: [16]byte{2, undone}}, conn.(*net.TCPConn))
			}
			if why != accepted {
				t.Fatal(why)
			}
			g.unjoin(1)
		}
		g.unjoin(0)
		if e.groups[g.id] != nil {
			t.Error("a group without its first stream is kept")
		}
	}
}

// Where all ranks are on one host, nobody else is listened to.
func TestListenWhereNeeded(t *testing.T) {
	one, err := New(Config{}.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	localAddresses, err := Config{}.Defaults().localAddresses()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(localAddresses, func(s localAddress) bool { return s.loopback }) {
		t.Skip("needs a loopback device that is up")
	}
	listen := func(other map[string]string) []netip.AddrPort {
		t.Helper()
		e, err := one.Listen(t.Context(), framework.EndpointConfig{Kind: framework.KindPort, Rank: 0, Ranks: []int{0, 1}, Device: framework.Host, Facts: framework.Facts{Other: other}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = one.Close(t.Context(), e.ID) })
		a, err := decodeAddress(e.Address)
		if err != nil {
			t.Fatal(err)
		}
		return a.places
	}
	for _, p := range listen(map[string]string{topo.FactReach: "host"}) {
		if !p.Addr().IsLoopback() {
			t.Errorf("a job of one host listens at %v", p)
		}
	}
	for a := range one.(*Transport).listener.doors {
		if !a.IsLoopback() {
			t.Errorf("a job of one host listens at %v", a)
		}
	}
	if places := listen(nil); len(places) != len(localAddresses) {
		t.Errorf("a job of several hosts listens at %v: expected all of %v", places, localAddresses)
	}
}
