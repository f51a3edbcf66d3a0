package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

func TestParseFamily(t *testing.T) {
	for text, want := range map[string]Family{"": AnyFamily, "inet": IPv4, "AF_INET": IPv4, "Inet6": IPv6, "af_inet6": IPv6} {
		if got, err := ParseFamily(text); got != want || err != nil {
			t.Errorf("%q: %q, %v: expected %q", text, got, err, want)
		}
	}
	for _, text := range []string{"ipv4", "inet66", " ", "AF_UNIX"} {
		if _, err := ParseFamily(text); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "expected inet, inet6") {
			t.Errorf("%q: %v: expected ErrInvalid that says what may be written", text, err)
		}
	}
}

func TestFamilyAdmits(t *testing.T) {
	for _, c := range []struct {
		ip       string
		v4, v6   bool
		listener [2]bool // as the address of a listener: IPv4, IPv6
	}{
		{"127.0.0.1", true, false, [2]bool{true, false}},
		{"::ffff:192.0.2.1", true, false, [2]bool{true, false}},
		{"0.0.0.0", true, false, [2]bool{true, false}},
		{"2001:db8::1", false, true, [2]bool{false, true}},
		{"::", false, true, [2]bool{true, true}},
	} {
		ip := netip.MustParseAddr(c.ip)
		if IPv4.admits(ip) != c.v4 || IPv6.admits(ip) != c.v6 || !AnyFamily.admits(ip) {
			t.Errorf("%s: IPv4 %v, IPv6 %v, any %v", ip, IPv4.admits(ip), IPv6.admits(ip), AnyFamily.admits(ip))
		}
		if got := [2]bool{IPv4.admitsListener(ip), IPv6.admitsListener(ip)}; got != c.listener || !AnyFamily.admitsListener(ip) {
			t.Errorf("a listener at %s: %v, expected %v", ip, got, c.listener)
		}
	}
}

// addressesOf are those of a host, for Config.addresses.
func addressesOf(prefixes ...string) func() ([]net.Addr, error) {
	var out []net.Addr
	for _, p := range prefixes {
		ip, n, _ := net.ParseCIDR(p)
		out = append(out, &net.IPNet{IP: ip, Mask: n.Mask})
	}
	return func() ([]net.Addr, error) { return out, nil }
}

// A host without an address of the family differs from a rank 0 that is late:
// all ranks fail at once, far from their deadline.
func TestHostWithoutTheFamily(t *testing.T) {
	for _, c := range []struct {
		family Family
		has    []string
		wanted string
	}{
		{IPv6, []string{"127.0.0.1/8", "192.0.2.2/24"}, "no IPv6 address (it has [127.0.0.1/8 192.0.2.2/24]): expected one, because bootstrap.family is inet6"},
		{IPv4, []string{"::1/128"}, "no IPv4 address (it has [::1/128])"},
		{IPv4, nil, "no IPv4 address (it has [])"},
	} {
		_, errs := tryJoin(t, 2, func(cfg *Config) { cfg.Family, cfg.addresses = c.family, addressesOf(c.has...) })
		for r, err := range errs {
			if err := wantError(err, framework.ErrUnavailable, framework.NoPeer, c.wanted); err != nil {
				t.Errorf("%s, rank %d: %v", c.family, r, err)
			}
		}
	}
	broken := func() ([]net.Addr, error) { return nil, errors.New("netlink is out of order") }
	_, errs := tryJoin(t, 2, func(cfg *Config) { cfg.Family, cfg.addresses = IPv4, broken })
	if err := wantError(errs[1], framework.ErrUnavailable, framework.NoPeer, "netlink is out of order"); err != nil {
		t.Error(err)
	}
	// One rank needs no address.
	b, err := Join(bounded(t, patience), Config{Size: 1, ID: newID(t), Family: IPv6, addresses: broken})
	if err != nil {
		t.Fatal(err)
	}
	_ = b.Close()
}

// needIPv6 skips a test on hosts whose loopback has IPv4 alone.
func needIPv6(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skipf("no IPv6 on the loopback interface: %v", err)
	}
	_ = l.Close()
}

// Every connection of a job is of the family that was asked for, by address, by
// name and by interface.
func TestFamilyOfAJob(t *testing.T) {
	needIPv6(t)
	for _, c := range []struct {
		family   Family
		at, name string // where rank 0 listens, and how ranks call it
		edit     func(c *Config)
	}{
		{IPv4, "127.0.0.1:0", "127.0.0.1", nil},
		{IPv6, "[::1]:0", "::1", nil},
		{IPv4, "[::]:0", "localhost", nil}, // takes both
		{IPv6, "[::1]:0", "::1", func(c *Config) { c.Interface = "lo" }},
		{IPv4, "127.0.0.1:0", "localhost", func(c *Config) { c.Interface = "lo" }},
	} {
		t.Run(fmt.Sprint(c.family, " ", c.name, " ", c.edit != nil), func(t *testing.T) {
			l, err := listen(context.Background(), AnyFamily, c.at)
			if err != nil {
				t.Fatal(err)
			}
			addr := net.JoinHostPort(c.name, fmt.Sprint(addrPort(l.Addr()).Port()))
			ranks, errs := tryJoin(t, 4, func(cfg *Config) {
				cfg.ID, cfg.Addr, cfg.Family = UniqueID{}, addr, c.family
				if cfg.Rank == 0 {
					_ = cfg.Listener.Close()
					cfg.Listener = l
				}
				if c.edit != nil {
					c.edit(cfg)
				}
			})
			for r, err := range errs {
				if err != nil {
					t.Fatalf("rank %d: %v", r, err)
				}
			}
			for r, b := range ranks {
				b.mu.Lock()
				for l := range b.links {
					for _, a := range []net.Addr{l.Conn.LocalAddr(), l.Conn.RemoteAddr()} {
						if !c.family.admits(addrPort(a).Addr()) {
							t.Errorf("rank %d has a link at %s, expected %s", r, a, c.family)
						}
					}
				}
				if len(b.links) == 0 {
					t.Errorf("rank %d has no links", r)
				}
				b.mu.Unlock()
			}
		})
	}
}

// Rank 0 listens by the family when it makes its listener itself.
func TestFamilyOfTheRoot(t *testing.T) {
	needIPv6(t)
	for family, c := range map[Family]struct{ name, at string }{
		IPv4:      {"localhost", "127.0.0.1"}, // its other addresses do not matter
		IPv6:      {"::1", "::1"},
		AnyFamily: {"::1", "::1"},
	} {
		_, port, _ := net.SplitHostPort(freeAddr(t))
		ranks, errs := tryJoin(t, 2, func(cfg *Config) {
			if cfg.Rank == 0 {
				_ = cfg.Listener.Close()
			}
			cfg.Listener, cfg.ID, cfg.Addr, cfg.Family = nil, UniqueID{}, net.JoinHostPort(c.name, port), family
		})
		for r, err := range errs {
			if err != nil {
				t.Fatalf("%s, rank %d: %v", family, r, err)
			}
			if host, _, _ := net.SplitHostPort(ranks[r].Addr()); host != c.at {
				t.Errorf("%s: rank %d listens at %s, expected %s", family, r, host, c.at)
			}
		}
	}
}

// An address that contradicts the family is an error at once, and says so.
func TestFamilyContradicts(t *testing.T) {
	needIPv6(t)
	l, id, err := Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	other, _, err := Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cfg    Config
		class  error
		peer   int
		wanted string
	}{
		"no such family":     {Config{Size: 2, ID: id, Family: "ipv6"}, framework.ErrInvalid, -1, "expected inet, inet6"},
		"listener":           {Config{Size: 2, Addr: "host:1", Listener: other, Family: IPv6}, framework.ErrInvalid, -1, "rank 0 was given a listener at " + other.Addr().String() + ": expected an IPv6 address"},
		"id, rank 0":         {Config{Size: 2, ID: id, Family: IPv6}, framework.ErrInvalid, -1, "has no IPv6 address"},
		"id, other rank":     {Config{Rank: 1, Size: 2, ID: id, Family: IPv6}, framework.ErrInvalid, -1, "rank 0 listens at [" + l.Addr().String() + "]: expected an IPv6 address"},
		"address":            {Config{Rank: 1, Size: 2, Addr: l.Addr().String(), Family: IPv6}, framework.ErrInvalid, 0, l.Addr().String() + " has no IPv6 address"},
		"other way round":    {Config{Rank: 1, Size: 2, Addr: "[::1]:9", Family: IPv4}, framework.ErrInvalid, 0, "[::1]:9 has no IPv4 address"},
		"rank 0, by address": {Config{Size: 2, Addr: "[::1]:0", Family: IPv4}, framework.ErrInvalid, -1, "has no IPv4 address: expected one, because bootstrap.family is inet"},
	} {
		_, err := Join(bounded(t, patience), c.cfg)
		if err := wantError(err, c.class, c.peer, c.wanted); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestInterfaceWithoutTheFamily(t *testing.T) {
	ip, err := onInterface("127.0.0.0/8", IPv4, netip.MustParseAddr("::1"))
	if err != nil || ip != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("%v, %v: expected 127.0.0.1", ip, err)
	}
	_, err = onInterface("127.0.0.0/8", IPv6, netip.MustParseAddr("127.0.0.1"))
	if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "expected an IPv6 address") {
		t.Errorf("%v: expected ErrInvalid that names the family", err)
	}
}
