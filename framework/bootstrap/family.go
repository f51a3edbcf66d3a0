package bootstrap

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Family restricts the addresses at which ranks listen and call each other. It must be
// the same on all ranks of a job.
type Family string

// The families, as the configuration spells them.
const (
	AnyFamily Family = ""
	IPv4      Family = "inet"
	IPv6      Family = "inet6"
)

// ParseFamily reads a family in our spelling or in that of MSCCL++: inet, inet6,
// AF_INET or AF_INET6, in any case. The empty string means both.
func ParseFamily(text string) (Family, error) {
	f := Family(strings.TrimPrefix(strings.ToLower(text), "af_"))
	return f, f.validate()
}

func (f Family) validate() error {
	switch f {
	case AnyFamily, IPv4, IPv6:
		return nil
	}
	return fmt.Errorf("%w: address family %q: expected inet, inet6, or nothing for both", framework.ErrInvalid, string(f))
}

// String returns the name of the family for messages.
func (f Family) String() string {
	switch f {
	case IPv4:
		return "IPv4"
	case IPv6:
		return "IPv6"
	}
	return "IPv4 or IPv6"
}

// network is what package net calls TCP over this family.
func (f Family) network() string {
	switch f {
	case IPv4:
		return "tcp4"
	case IPv6:
		return "tcp6"
	}
	return "tcp"
}

func (f Family) admits(ip netip.Addr) bool {
	return f == AnyFamily || ip.Unmap().Is4() == (f == IPv4)
}

// admitsListener is admits for a listener that another process made. One that listens everywhere
// takes connections of both families.
func (f Family) admitsListener(ip netip.Addr) bool {
	return f.admits(ip) || (ip.Is6() && ip.IsUnspecified())
}

// among refuses a host that has no address of the family. The address of the
// loopback counts: ranks of one host need no other.
func (f Family) among(addrs []net.Addr) error {
	if f == AnyFamily {
		return nil
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && f.admits(p.Addr()) {
			return nil
		}
	}
	return fmt.Errorf("%w: this host has no %s address (it has %v): expected one, because bootstrap.family is %s", framework.ErrUnavailable, f, addrs, string(f))
}

// unsuitable explains the error of package net for an address of the other family;
// nil if err is about something else.
func (f Family) unsuitable(address string, err error) error {
	var a *net.AddrError
	if f == AnyFamily || !errors.As(err, &a) {
		return nil
	}
	return fmt.Errorf("%w: %s has no %s address: expected one, because bootstrap.family is %s here; it has to be the same on all ranks", framework.ErrInvalid, address, f, string(f))
}
