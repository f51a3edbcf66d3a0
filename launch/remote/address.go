package remote

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
)

// maxAddresses is how many a unique id holds.
const maxAddresses = 3

// virtual are the beginnings of names of interfaces that lead to containers and virtual
// machines of this host, and to no other host.
var virtual = []string{"docker", "veth", "br-", "virbr", "cni", "flannel", "cali", "podman", "lxc"}

// listen makes the listener of rank 0, everywhere on this host, and the id that leads
// to it from others.
func listen(ctx context.Context, s *Spec, getenv func(string) string) (*os.File, rendezvous, error) {
	network, family := "tcp", bootstrap.Family(s.Family)
	if family == bootstrap.IPv4 {
		network = "tcp4"
	}
	port := fmt.Sprint(s.Place.MasterPort)
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, network, net.JoinHostPort("", port))
	if err != nil {
		return nil, rendezvous{}, fmt.Errorf("%w: cannot listen at port %s for the other ranks: %w", framework.ErrUnavailable, port, err)
	}
	defer l.Close()
	reach, err := addresses(ctx, s, getenv)
	if err != nil {
		return nil, rendezvous{}, err
	}
	at := l.Addr().(*net.TCPAddr).AddrPort().Port()
	var ports []netip.AddrPort
	for _, a := range reach {
		ports = append(ports, netip.AddrPortFrom(a, at))
	}
	id, err := bootstrap.NewUniqueID(ports...)
	if err != nil {
		return nil, rendezvous{}, err
	}
	file, err := l.(*net.TCPListener).File()
	return file, rendezvous{UniqueID: id.Listening().String(), MasterAddr: reach[0].String()}, err
}

// addresses finds those under which other hosts reach this one, best first.
func addresses(ctx context.Context, s *Spec, getenv func(string) string) ([]netip.Addr, error) {
	fits := func(a netip.Addr) bool {
		switch bootstrap.Family(s.Family) {
		case bootstrap.IPv4:
			return a.Is4()
		case bootstrap.IPv6:
			return a.Is6()
		}
		return true
	}
	if s.At != "" {
		found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", s.At)
		if err != nil {
			return nil, fmt.Errorf("%w: --master-addr %s: %w", framework.ErrInvalid, s.At, err)
		}
		if slices.ContainsFunc(found, linkLocal) {
			return nil, fmt.Errorf("%w: --master-addr %s: an address of one link, which other hosts reach by interfaces with names of their own: expected another address, or a name", framework.ErrInvalid, s.At)
		}
		return best(found, fits, s)
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("%w: the interfaces of this host: %w", framework.ErrUnavailable, err)
	}
	var found, loopback []netip.Addr
	// The address by which ssh came is one that others reach, except when it holds on the
	// launcher's link alone. Then there are several hosts, and loopback leads to none of them.
	byLink := false
	if words := strings.Fields(getenv("SSH_CONNECTION")); len(words) == 4 && s.Interface == "" {
		if a, err := netip.ParseAddr(words[2]); err == nil && !a.IsLoopback() {
			if byLink = linkLocal(a); !byLink {
				found = append(found, a)
			}
		}
	}
	prefix, prefixErr := netip.ParsePrefix(s.Interface)
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 || s.Interface != "" && prefixErr != nil && i.Name != s.Interface {
			continue
		}
		hidden := s.Interface == "" && slices.ContainsFunc(virtual, func(v string) bool { return strings.HasPrefix(i.Name, v) })
		list, err := i.Addrs()
		if hidden || err != nil {
			continue
		}
		for _, entry := range list {
			p, err := netip.ParsePrefix(entry.String())
			a := p.Addr().Unmap()
			switch {
			case err != nil || a.IsLinkLocalUnicast() || prefixErr == nil && !prefix.Contains(a):
			case a.IsLoopback():
				loopback = append(loopback, a)
			default:
				found = append(found, a)
			}
		}
	}
	if len(found) == 0 && !byLink {
		found = loopback // all "hosts" are this one
	}
	return best(found, fits, s)
}

// linkLocal reports whether an address needs a zone. Those of IPv4 do without.
func linkLocal(a netip.Addr) bool {
	return a.Is6() && !a.Is4In6() && a.IsLinkLocalUnicast()
}

// best takes as many as an id holds, each once, those of IPv4 first.
func best(found []netip.Addr, fits func(netip.Addr) bool, s *Spec) ([]netip.Addr, error) {
	var out []netip.Addr
	for _, want4 := range []bool{true, false} {
		for _, a := range found {
			if a = a.Unmap(); a.Is4() == want4 && fits(a) && !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: no address of this host that others reach (interface %q, family %q): expected one, or --master-addr", framework.ErrUnavailable, s.Interface, s.Family)
	}
	return out[:min(maxAddresses, len(out))], nil
}
