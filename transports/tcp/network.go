package tcp

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/transports/internal/link"
)

// networkStack names the network stack that this process sees: the running kernel
// and the namespace. Loopback addresses mean the same within one stack only.
func networkStack() string {
	space, _ := os.Readlink("/proc/thread-self/ns/net") // net:[4026531840]
	space = strings.Trim(strings.TrimPrefix(space, "net:"), "[]")
	name := strings.Join(strings.Fields(link.BootID()), "-") + "/" + space
	return name[:min(len(name), maxStack)]
}

// localAddress is an address of this host.
type localAddress struct {
	addr     netip.Addr
	loopback bool
}

// localAddresses lists the addresses that the configuration admits.
func (c Config) localAddresses() ([]localAddress, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("%w: interfaces of this host: %w", framework.ErrUnavailable, err)
	}
	var names []string
	var out []localAddress
	for _, i := range all {
		names = append(names, i.Name)
		if i.Flags&net.FlagUp == 0 || c.Interface != "" && c.Interface != i.Name {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue // it has just gone
		}
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if ip := p.Addr().Unmap(); err == nil && c.admits(ip) {
				out = append(out, localAddress{ip, i.Flags&net.FlagLoopback != 0})
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: no address of family %q on interface %q: expected one; interfaces are %v (options family, interface)",
			framework.ErrUnavailable, c.Family, c.Interface, names)
	}
	return out[:min(len(out), maxPlaces)], nil
}

// loopbacks leaves the addresses that only this host reaches, where there are any.
func loopbacks(localAddresses []localAddress) []localAddress {
	own := slices.DeleteFunc(slices.Clone(localAddresses), func(s localAddress) bool { return !s.loopback })
	if len(own) == 0 {
		return localAddresses // the loopback device is down, or another interface was asked for
	}
	return own
}

func (c Config) admits(ip netip.Addr) bool {
	if ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() {
		return false
	}
	return c.Family == "" || ip.Is4() == (c.Family == familyV4)
}

// reach turns addresses into tokens: two ranks can connect when both have an address
// of one family, or are in one network stack.
func (c Config) reach(stack string, localAddresses []localAddress) []string {
	tokens := []string{"tcp:stack/" + stack + "/" + c.Network}
	for _, s := range localAddresses {
		family := familyV6
		if s.addr.Is4() {
			family = familyV4
		}
		if token := "tcp:" + family + "/" + c.Network; !s.loopback && !slices.Contains(tokens, token) {
			tokens = append(tokens, token)
		}
	}
	slices.Sort(tokens[1:])
	return tokens
}

// candidates orders the places of a peer, the likeliest first. Loopback addresses of
// another stack lead nowhere.
func candidates(a address, stack string, own []netip.Prefix) []netip.AddrPort {
	local := a.stack == stack
	rank := func(p netip.AddrPort) int {
		switch {
		case p.Addr().IsLoopback():
			return 0
		case slices.ContainsFunc(own, func(n netip.Prefix) bool { return n.Contains(p.Addr()) }):
			return 1
		}
		return 2
	}
	out := slices.DeleteFunc(slices.Clone(a.places), func(p netip.AddrPort) bool { return !local && p.Addr().IsLoopback() })
	slices.SortStableFunc(out, func(x, y netip.AddrPort) int { return rank(x) - rank(y) })
	return out
}

// subnets are those that this host is in.
func subnets() []netip.Prefix {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var out []netip.Prefix
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

// control sets what has to be set before a socket is connected.
func (c Config) control(_, _ string, raw syscall.RawConn) error {
	type option struct{ name, value int }
	set := []option{{unix.SO_SNDBUF, c.SocketBuffer}, {unix.SO_RCVBUF, c.SocketBuffer}}
	if c.SocketBuffer == 0 {
		// To wait for so much at once makes the kernel buffer as much, and leaves it free to
		// buffer more: long ways need that. Then it wakes for every byte again.
		set = []option{{unix.SO_RCVLOWAT, buffered}, {unix.SO_RCVLOWAT, 1}}
		if admits("/proc/sys/net/core/wmem_max") {
			set = append(set, option{unix.SO_SNDBUF, buffered})
		}
	}
	if c.MaxRate > 0 {
		set = append(set, option{unix.SO_MAX_PACING_RATE, c.MaxRate})
	}
	var failed error
	err := raw.Control(func(fd uintptr) {
		for _, o := range set {
			if err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, o.name, o.value); err != nil {
				failed = err
			}
		}
	})
	if err != nil {
		return err
	}
	return failed
}

// buffered is the room of a socket at each end where nothing else was asked for: a sender of a
// smaller put goes on to receive meanwhile. The kernel comes to as much by itself, but late: until
// then a sender waits for room.
const buffered = 2 << 20

// admits reports whether the limit in a file is at least that. A smaller buffer that is
// asked for is worse than none: it grows no more.
func admits(limit string) bool {
	b, err := os.ReadFile(limit)
	if err != nil {
		return false // older kernels show it in the first network namespace alone
	}
	most, err := strconv.Atoi(strings.TrimSpace(string(b)))
	return err == nil && most >= buffered
}

// keepAlive makes the kernels exchange signs of life: about five within the bound.
func (c Config) keepAlive(conn *net.TCPConn) error {
	beat := max(time.Second, c.PeerTimeout/5)
	return conn.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: beat, Interval: beat, Count: int(c.PeerTimeout / beat)})
}
