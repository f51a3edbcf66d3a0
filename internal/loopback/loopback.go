// Package loopback finds the address under which processes of this host reach each other.
package loopback

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
)

// Address returns 127.0.0.1, or ::1 on a host that has IPv6 alone or if six asks for it.
func Address(six bool) string {
	if !six {
		if _, err := bindable(syscall.AF_INET); err == nil {
			return "127.0.0.1"
		}
		if _, err := bindable(syscall.AF_INET6); err != nil {
			return "127.0.0.1" // there is none; errors name the usual one
		}
	}
	return "::1"
}

// Any returns the address at which a listener with a port of the system's choice listens.
func Any(six bool) string { return net.JoinHostPort(Address(six), "0") }

// FreePort finds a port of the loopback address. Nothing keeps it free until a process
// listens there.
func FreePort() (int, error) {
	port, err := bindable(syscall.AF_INET)
	if err == nil {
		return port, nil
	}
	if port, six := bindable(syscall.AF_INET6); six == nil {
		return port, nil
	}
	return 0, fmt.Errorf("no free port: %w", err)
}

// bindable binds a socket to the loopback address of a family, for a moment.
func bindable(family int) (port int, err error) {
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	defer syscall.Close(fd)
	var at syscall.Sockaddr = &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	if family == syscall.AF_INET6 {
		at = &syscall.SockaddrInet6{Addr: [16]byte{15: 1}}
	}
	if err := syscall.Bind(fd, at); err != nil {
		return 0, os.NewSyscallError("bind", err)
	}
	if at, err = syscall.Getsockname(fd); err != nil {
		return 0, os.NewSyscallError("getsockname", err)
	}
	switch at := at.(type) {
	case *syscall.SockaddrInet4:
		return at.Port, nil
	case *syscall.SockaddrInet6:
		return at.Port, nil
	}
	return 0, fmt.Errorf("getsockname: %T: expected an address of IPv4 or IPv6", at)
}

// Unbracket takes the brackets off an address of IPv6, as in [::1]: some launchers write
// MASTER_ADDR as URLs have it. Other hosts are returned as they are.
func Unbracket(host string) string {
	inner, open := strings.CutPrefix(host, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	if ip, err := netip.ParseAddr(inner); open && closed && err == nil && ip.Is6() {
		return inner
	}
	return host
}
