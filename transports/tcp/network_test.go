package tcp

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
)

func TestConfig(t *testing.T) {
	for want, change := range map[string]func(c *Config){
		"":                 func(c *Config) { c.Family = familyV6 },
		"family":           func(c *Config) { c.Family = "ipx" },
		"network":          func(c *Config) { c.Network = "a b" },
		"streams":          func(c *Config) { c.Streams = 0 },
		"streams 65":       func(c *Config) { c.Streams = 65 },
		"stripe":           func(c *Config) { c.Stripe = 1 },
		"buffer":           func(c *Config) { c.Buffer = 100 },
		"socket_buffer":    func(c *Config) { c.SocketBuffer = -1 },
		"max_rate":         func(c *Config) { c.MaxRate = 100 },
		"local_congestion": func(c *Config) { c.LocalCongestion = "a b" },
		"connect_timeout":  func(c *Config) { c.ConnectTimeout = 0 },
		"peer_timeout 1s:": func(c *Config) { c.PeerTimeout = time.Second },
		"drain_spin":       func(c *Config) { c.DrainSpin = -1 },
		"drain_yield":      func(c *Config) { c.DrainYield = time.Hour },
	} {
		c := Config{}.Defaults()
		change(&c)
		tr, err := New(c)
		switch {
		case want == "" && err != nil:
			t.Errorf("a good configuration: %v", err)
		case want != "" && (!errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), want) || tr != nil):
			t.Errorf("%s: %v, want ErrInvalid that names it", want, err)
		}
	}
}

func TestReach(t *testing.T) {
	c := Config{Network: "blue"}
	v4, v6 := localAddress{netip.MustParseAddr("10.0.0.1"), false}, localAddress{netip.MustParseAddr("fd00::1"), false}
	lo := localAddress{netip.MustParseAddr("127.0.0.1"), true}
	for _, x := range []struct {
		localAddresses []localAddress
		want           []string
	}{
		{[]localAddress{lo}, []string{"tcp:stack/s/blue"}},
		{[]localAddress{v6, lo, v4, v4}, []string{"tcp:stack/s/blue", "tcp:inet/blue", "tcp:inet6/blue"}},
	} {
		if got := c.reach("s", x.localAddresses); !slices.Equal(got, x.want) {
			t.Errorf("%v: tokens %v, want %v", x.localAddresses, got, x.want)
		}
	}
}

func TestSpots(t *testing.T) {
	c := Config{}.Defaults()
	c.Interface, c.Family = "lo", familyV4
	if got, err := c.localAddresses(); err != nil || !slices.Contains(got, localAddress{netip.MustParseAddr("127.0.0.1"), true}) {
		t.Errorf("%v, %v, want 127.0.0.1", got, err)
	}
	c.Interface = "missing0"
	if _, err := c.localAddresses(); !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "missing0") || !strings.Contains(err.Error(), "lo") {
		t.Errorf("%v, want ErrUnavailable that names the interface, and those that there are", err)
	}
	tr, err := newTransport(c)
	if err != nil {
		t.Fatal(err)
	}
	_, err = tr.Listen(t.Context(), framework.EndpointConfig{Kind: framework.KindPort, Ranks: []int{0, 1}})
	if !errors.Is(err, framework.ErrUnavailable) {
		t.Errorf("listen without an address: %v, want ErrUnavailable", err)
	}
	for ip, want := range map[string]bool{"10.1.1.1": true, "fe80::1": false, "fd00::1": false, "224.0.0.1": false} {
		if got := c.admits(netip.MustParseAddr(ip)); got != want {
			t.Errorf("%s is admitted: %v, want %v", ip, got, want)
		}
	}
}

func TestCandidates(t *testing.T) {
	place := netip.MustParseAddrPort
	a := address{stack: "here", places: []netip.AddrPort{place("172.17.0.1:9"), place("10.0.0.7:9"), place("127.0.0.1:9")}}
	own := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}
	if got, want := candidates(a, "here", own), []netip.AddrPort{place("127.0.0.1:9"), place("10.0.0.7:9"), place("172.17.0.1:9")}; !slices.Equal(got, want) {
		t.Errorf("within a host %v, want %v", got, want)
	}
	if got, want := candidates(a, "there", own), []netip.AddrPort{place("10.0.0.7:9"), place("172.17.0.1:9")}; !slices.Equal(got, want) {
		t.Errorf("between hosts %v, want %v", got, want)
	}
}

// A peer that can be reached nowhere differs from one that does not answer.
func TestUnreachable(t *testing.T) {
	config := Config{}.Defaults()
	config.ConnectTimeout = 300 * time.Millisecond
	c := &connection{peer: 3, address: someAddress()}
	_, _, err := c.dial(t.Context(), config, nil, hello{streams: 1})
	if !errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) != 3 || !strings.Contains(err.Error(), "of no use from here") {
		t.Errorf("no place: %v, want ErrPeer of rank 3 with what it told", err)
	}
	nobody := netip.MustParseAddrPort("127.0.0.1:1")
	_, _, err = c.dial(t.Context(), config, []netip.AddrPort{nobody}, hello{streams: 1})
	if !errors.Is(err, framework.ErrPeer) || !strings.Contains(err.Error(), nobody.String()) {
		t.Errorf("nobody there: %v, want ErrPeer with %v", err, nobody)
	}
}

func TestQuiet(t *testing.T) {
	for _, c := range []struct {
		q    silent
		want bool
	}{
		{silent{since: 9 * time.Second}, false},
		{silent{since: 11 * time.Second}, true},
		{silent{since: 11 * time.Second, closed: true, probe: 5 * time.Second}, false}, // it does not read, and is alive
		{silent{since: 16 * time.Second, closed: true, probe: 5 * time.Second}, true},
	} {
		if got := c.q.dead(10 * time.Second); got != c.want {
			t.Errorf("%+v is dead: %v, want %v", c.q, got, c.want)
		}
	}
}

// A limit that admits the send buffer has it asked for; a smaller one, or one that cannot
// be read, leaves the buffer to the kernel.
func TestSendBuffer(t *testing.T) {
	limit := filepath.Join(t.TempDir(), "wmem_max")
	if admits(limit) {
		t.Error("without a limit to read the buffer is asked for")
	}
	for text, want := range map[string]bool{"212992\n": false, "2097151\n": false, "2097152\n": true, "4194304\n": true, "none\n": false} {
		if err := os.WriteFile(limit, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := admits(limit); got != want {
			t.Errorf("limit %q: asked for: %v, expected %v", text, got, want)
		}
	}
	for _, asked := range []int{0, 64 << 10} {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "socket")
		defer f.Close()
		raw, err := f.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		before, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
		if err != nil {
			t.Fatal(err)
		}
		if err := (Config{SocketBuffer: asked}).control("", "", raw); err != nil {
			t.Fatal(err)
		}
		want := 2 * asked // the kernel doubles it
		if asked == 0 {
			if want = before; admits("/proc/sys/net/core/wmem_max") {
				want = 2 * buffered
			}
		}
		if got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF); err != nil || got != want {
			t.Errorf("socket_buffer %d: a send buffer of %d bytes, %v; expected %d", asked, got, err, want)
		}
	}
}
