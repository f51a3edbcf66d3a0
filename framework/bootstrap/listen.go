package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Listen makes the listener of rank 0 and the unique id that leads to it. The program
// that starts the ranks calls it, and lets rank 0 inherit the listener: the port is
// never free in between, so nobody else can take it. Address is an IP address or host
// name with a port; for port 0 the system chooses a free one.
func Listen(ctx context.Context, address string) (*net.TCPListener, UniqueID, error) {
	l, err := listen(ctx, AnyFamily, address)
	if err != nil {
		return nil, UniqueID{}, err
	}
	id, err := NewUniqueID(addrPort(l.Addr()))
	if err != nil {
		_ = l.Close()
		return nil, UniqueID{}, err
	}
	return l, id.Listening(), nil
}

func listen(ctx context.Context, family Family, address string) (*net.TCPListener, error) {
	lc := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{Enable: false}, KeepAlive: -1}
	lc.SetMultipathTCP(false) // no peer asks for it, and finding out whether it is there costs as much as all else here
	l, err := lc.Listen(ctx, family.network(), address)
	switch {
	case err == nil:
		return l.(*net.TCPListener), nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%w: address %s is in use by another process: choose another port, or let mscclpp-run choose one: %w", framework.ErrUnavailable, address, err)
	}
	if e := family.unsuitable(address, err); e != nil {
		return nil, fmt.Errorf("cannot listen: %w", e)
	}
	return nil, fmt.Errorf("%w: cannot listen at %s: %w", framework.ErrUnavailable, address, err)
}

func addrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		p := t.AddrPort()
		return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
	}
	return netip.AddrPort{}
}

// listen listens at an address. A name may have addresses that this host does not, as one of
// IPv4 on a host with IPv6 alone: then the next one is tried.
func (c *caller) listen(ctx context.Context, address string) (*net.TCPListener, error) {
	l, err := listen(ctx, c.cfg.Family, address)
	if !errors.Is(err, syscall.EADDRNOTAVAIL) && !errors.Is(err, syscall.EAFNOSUPPORT) {
		return l, err
	}
	host, port, e := net.SplitHostPort(address)
	if e != nil {
		return nil, err
	}
	others, e := c.lookup(ctx, host)
	if e != nil || len(others) < 2 {
		return nil, err
	}
	for _, ip := range others {
		if !c.cfg.Family.admits(ip) {
			continue
		}
		if l, e := listen(ctx, c.cfg.Family, net.JoinHostPort(ip.Unmap().String(), port)); e == nil {
			return l, nil
		}
	}
	return nil, err
}

// lookup finds the addresses of a name.
func (c *caller) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if c.cfg.lookup != nil {
		return c.cfg.lookup(ctx, host)
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// onInterface finds the address of this host on an interface, given by name or as
// a network. like is an address whose family is preferred; no other than family
// will do.
func onInterface(which string, family Family, like netip.Addr) (netip.Addr, error) {
	var addrs []net.Addr
	prefix, err := netip.ParsePrefix(which)
	if err == nil {
		addrs, err = net.InterfaceAddrs()
	} else {
		var i *net.Interface
		if i, err = net.InterfaceByName(which); err == nil {
			addrs, err = i.Addrs()
		}
	}
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%w: interface %q: expected the name of one, or a network such as 10.1.0.0/16: %w", framework.ErrInvalid, which, err)
	}
	var found netip.Addr
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		ip := p.Addr().Unmap()
		if (prefix.IsValid() && !prefix.Contains(ip)) || !family.admits(ip) {
			continue
		}
		if ip.Is4() == like.Is4() && !ip.IsLinkLocalUnicast() {
			return ip, nil
		}
		if !found.IsValid() || found.IsLinkLocalUnicast() {
			found = ip
		}
	}
	if !found.IsValid() {
		return netip.Addr{}, fmt.Errorf("%w: interface %q has no address here: expected an %s address", framework.ErrInvalid, which, family)
	}
	return found, nil
}
