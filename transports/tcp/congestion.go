package tcp

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Between processes of one host there is no network that could be congested. A control
// that paces, as BBR does, sets a timer for every few packets all the same, and measures
// the turns that the processors take: on two of them it made puts take two to three times
// as long. So connections within a host have a control of their own.

// sameHost reports whether two network stacks are of one running kernel, in whatever
// namespaces.
func sameHost(stack, other string) bool {
	kernel, _, _ := strings.Cut(stack, "/")
	theirs, _, _ := strings.Cut(other, "/")
	return kernel != "" && kernel == theirs
}

// localControl is control for sockets within this host. It has to come before they are
// connected: a socket that has once been paced always is.
func (c Config) localControl(network, address string, raw syscall.RawConn) error {
	if err := c.control(network, address, raw); err != nil || c.LocalCongestion == "" {
		return err
	}
	var failed error
	err := raw.Control(func(fd uintptr) { failed = setCongestion(int(fd), c.LocalCongestion) })
	if err != nil {
		return err
	}
	return failed
}

// greeting is control for the socket that listens. Those that are accepted inherit it, and the peer
// is known too late: so they begin as if all were on this host, and usual says what those from
// elsewhere are to have.
func (c Config) greeting(usual *string) func(network, address string, raw syscall.RawConn) error {
	return func(network, address string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			*usual, failed = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		})
		if err != nil {
			return err
		}
		if failed != nil {
			return os.NewSyscallError("getsockopt", failed)
		}
		return c.localControl(network, address, raw)
	}
}

// travel makes accepted streams what those between hosts are on this system. Where that
// is refused they stay as they are, which works as well.
func (g *handed) travel(t *Transport) {
	t.mu.Lock()
	usual := t.usual
	t.mu.Unlock()
	for _, w := range g.wires {
		_ = w.use(func(fd int) { _ = setCongestion(fd, usual) })
	}
}

func setCongestion(fd int, name string) error {
	if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name); err != nil {
		return fmt.Errorf("congestion control %q: expected one that the system has and allows, or nothing (option local_congestion): %w", name, err)
	}
	return nil
}
