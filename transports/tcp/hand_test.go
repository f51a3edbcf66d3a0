package tcp

import (
	"context"
	"errors"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/promise"
)

// linkOf connects two transports, without memory.
func linkOf(t testing.TB, ends [2]framework.Transport, device framework.Device) (conns [2]framework.ID, listens [2]framework.Endpoint) {
	t.Helper()
	var err error
	for i := range ends {
		listens[i], err = ends[i].Listen(t.Context(), framework.EndpointConfig{Kind: framework.KindPort, Rank: i, Ranks: []int{0, 1}, Device: device})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range ends {
		if conns[i], err = ends[i].Connect(t.Context(), listens[i].ID, []framework.Peer{{Rank: 1 - i, Address: listens[1-i].Address}}); err != nil {
			t.Fatal(err)
		}
	}
	return conns, listens
}

func handOver(t testing.TB, ends [2]framework.Transport, conns [2]framework.ID) (all [2]framework.Attachment) {
	t.Helper()
	var failed [2]error
	var both sync.WaitGroup
	for i := range ends {
		both.Go(func() { all[i], failed[i] = ends[i].Attach(t.Context(), conns[i], 0, nil) })
	}
	both.Wait()
	if err := errors.Join(failed[:]...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { all[0].Close(); all[1].Close() })
	return all
}

// The size from which a put is divided among streams: within a host none, unless it is set.
func TestHandedStripe(t *testing.T) {
	for _, c := range []struct {
		said     int
		sameHost bool
		want     uint64
	}{{0, true, math.MaxInt64}, {0, false, defaultStripe}, {8192, true, 8192}, {8192, false, 8192}} {
		if got := (Config{Stripe: c.said}).handedStripe(c.sameHost); got != c.want {
			t.Errorf("stripe %d, near %t: %d, expected %d", c.said, c.sameHost, got, c.want)
		}
	}
	ends := two(t, func(*Config) {})
	conns, _ := linkOf(t, ends, framework.Host)
	for i, a := range handOver(t, ends, conns) {
		if m := a.Mappings[0]; m.Bytes != math.MaxInt64 {
			t.Errorf("rank %d of one host: stripes of %d bytes", i, m.Bytes)
		}
	}
}

// The options say how many streams there are, and what is worth one.
func TestHandedStreams(t *testing.T) {
	ends := two(t, func(c *Config) { c.Streams, c.Stripe = 3, 8192 })
	conns, listens := linkOf(t, ends, framework.Host)
	for i, a := range handOver(t, ends, conns) {
		if m := a.Mappings[0]; len(m.Shares) != 3 || m.Bytes != 8192 || m.Peer != 1-i {
			t.Errorf("rank %d got %+v: expected 3 streams to rank %d, and stripes of 8192 bytes", i, m, 1-i)
		}
		for n, s := range a.Mappings[0].Shares {
			if v, err := unix.GetsockoptInt(int(s.FD.Fd()), unix.IPPROTO_TCP, unix.TCP_NODELAY); v == 0 || err != nil {
				t.Errorf("rank %d, stream %d: small messages wait for answers (%v)", i, n, err)
			}
		}
	}
	for i, tr := range ends {
		if err := tr.Close(t.Context(), listens[i].ID); err != nil {
			t.Error(err)
		}
		if n := tr.(*Transport).made.Len(); n != 0 {
			t.Errorf("rank %d has %d things left when its endpoint is closed", i, n)
		}
	}
}

// An option decides whether rank or plugin drives, and the description says it; without it nothing is handed over.
func TestDriveOfThePlugin(t *testing.T) {
	ends := two(t, func(c *Config) { c.Drive = drivePlugin })
	if d, err := ends[0].Describe(t.Context()); err != nil || d.Streams {
		t.Errorf("it offers streams: %+v, %v", d, err)
	}
	conns, _ := linkOf(t, ends, framework.Host)
	if _, err := ends[0].Attach(t.Context(), conns[0], 0, nil); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("attach without keys: %v: expected %v", err, framework.ErrInvalid)
	}
	c := Config{}.Defaults()
	c.Drive = "nobody"
	if err := c.Validate(); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("drive %q: %v: expected %v", c.Drive, err, framework.ErrInvalid)
	}
}

// A rank on a device cannot drive streams.
func TestStreamsOfADevice(t *testing.T) {
	ends := two(t, nil)
	conns, _ := linkOf(t, ends, framework.Device{Type: "cuda"})
	if _, err := ends[0].Attach(t.Context(), conns[0], 0, nil); !errors.Is(err, framework.ErrUnsupported) {
		t.Errorf("%v: expected %v", err, framework.ErrUnsupported)
	}
}

// A rank does not give up a peer whose plugin answers: another rank may hold that up.
func TestHandOverOfAPeerThatIsHeldUp(t *testing.T) {
	ends := two(t, func(c *Config) { c.ConnectTimeout = time.Second }) // the peer is asked after that
	conns, _ := linkOf(t, ends, framework.Host)
	c, err := find[*connection](ends[1].(*Transport), conns[1], "connection")
	if err != nil {
		t.Fatal(err)
	}
	answers := c.ask(t.Context(), ends[1].(*Transport))
	select {
	case <-answers:
	case <-time.After(limit):
		t.Fatal("the plugin of rank 0 does not answer")
	}
	waits := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { waits <- c.awaitStreams(ctx, time.Nanosecond, answers) }()
	select {
	case err := <-waits:
		t.Fatalf("%v: expected rank 0, whose plugin answers, to be waited for", err)
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	if err := <-waits; !errors.Is(err, framework.ErrUnavailable) || framework.PeerOf(err) != framework.NoPeer || !strings.Contains(err.Error(), "another rank holds it up") {
		t.Errorf("%v: expected %v, and no rank to be blamed", err, framework.ErrUnavailable)
	}
	handOver(t, ends, conns) // to ask has changed nothing
}

// A rank gives up waiting for a peer that does not call, in time, and names it, if the
// plugin there does not answer either.
func TestHandOverOfOneSide(t *testing.T) {
	ends := two(t, func(c *Config) { c.ConnectTimeout, c.AnswerTimeout = 100*time.Millisecond, 90*time.Millisecond })
	conns, listens := linkOf(t, ends, framework.Host)
	c, err := find[*connection](ends[1].(*Transport), conns[1], "connection")
	if err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0") // as of a plugin that is stopped
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	c.address.places = []netip.AddrPort{netip.MustParseAddrPort(silent.Addr().String())}
	watch := promise.Begin()
	_, err = ends[1].Attach(t.Context(), conns[1], 0, nil)
	if late := watch.Kept(5 * time.Second); late != nil || !errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) != 0 {
		t.Errorf("%v (%v): expected %v of rank 0", err, late, framework.ErrPeer)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ends[0].Attach(ctx, conns[0], 0, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v: expected %v", err, context.Canceled)
	}
	if err := ends[1].Close(t.Context(), listens[1].ID); err != nil {
		t.Fatal(err)
	}
	if _, err := ends[0].Attach(t.Context(), conns[0], 0, nil); !errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) != 1 {
		t.Errorf("to an endpoint that is closed: %v: expected %v of rank 1", err, framework.ErrPeer)
	}
}

// Streams that nobody has asked for at the other end are closed with its endpoint.
func TestUnclaimedStreams(t *testing.T) {
	ends := two(t, nil)
	conns, listens := linkOf(t, ends, framework.Host)
	a, err := ends[0].Attach(t.Context(), conns[0], 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := ends[1].Close(t.Context(), listens[1].ID); err != nil {
		t.Fatal(err)
	}
	for n, s := range a.Mappings[0].Shares {
		awaitEnd(t, n, int(s.FD.Fd()))
	}
}

func awaitEnd(t testing.TB, n, fd int) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; {
		got, _, err := unix.Recvfrom(fd, make([]byte, 1), unix.MSG_DONTWAIT)
		if got == 0 && err == nil || errors.Is(err, unix.ECONNRESET) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("stream %d has not ended: %v", n, err)
		}
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 50)
	}
}

// The lower rank calls. A stream for the rank in the other direction, a second group, and
// one more stream of the first one are turned down.
func TestStreamsThatDoNotBelong(t *testing.T) {
	ends := two(t, func(c *Config) { c.Streams = 2 })
	conns, listens := linkOf(t, ends, framework.Host)
	handOver(t, ends, conns)
	address := make([]address, 2)
	for i := range address {
		var err error
		if address[i], err = decodeAddress(listens[i].Address); err != nil {
			t.Fatal(err)
		}
	}
	call := func(to int, h hello) error {
		t.Helper()
		at := address[to].places[slices.IndexFunc(address[to].places, func(p netip.AddrPort) bool { return p.Addr().IsLoopback() && p.Addr().Is4() })]
		conn, err := net.Dial("tcp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
			t.Fatal(err)
		}
		h.handed, h.from, h.to, h.endpoint = true, uint32(1-to), uint32(to), address[to].endpoint
		return greet(conn, address[to].secret, h)
	}
	for name, err := range map[string]error{
		"the wrong way":     call(0, hello{streams: 2}),
		"a second group":    call(1, hello{streams: 2}),
		"a stream of none":  call(1, hello{streams: 2, stream: 1}),
		"a group of others": call(1, hello{streams: 1}),
	} {
		if !errors.Is(err, framework.ErrPeer) {
			t.Errorf("%s: %v: expected a refusal", name, err)
		}
	}
}

// The numbers of streams and the mark of those for ranks share a byte.
func TestHelloOfHandedStreams(t *testing.T) {
	for _, h := range []hello{{version: 1, stream: 63, streams: 64, handed: true}, {version: 1, stream: 63, streams: 64}, {version: 1, streams: 1, handed: true}} {
		got, err := decodeHello(h.append(nil))
		if err != nil || got != h {
			t.Errorf("%+v, %v: expected %+v", got, err, h)
		}
	}
	if _, err := decodeHello(hello{version: 1, streams: 0, handed: true}.append(nil)); err == nil {
		t.Error("no streams at all are accepted")
	}
}
