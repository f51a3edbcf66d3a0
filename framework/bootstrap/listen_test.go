package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/internal/loopback"
)

// The name of rank 0 may have an address of a family that its host does not have.
func TestNameWithAnAddressOfAnotherFamily(t *testing.T) {
	lookup := func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("::1")}, nil
	}
	c := Config{Size: 2, Addr: "192.0.2.1:0", Timeout: time.Second, lookup: lookup}
	id, err := c.complete()
	if err != nil {
		t.Fatal(err)
	}
	to := &TCP{cfg: c}
	to.party.Identity = id
	l, err := (&caller{&to.party, &to.cfg}).listen(t.Context(), c.Addr)
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		if six, e := net.Listen("tcp6", "[::1]:0"); e != nil {
			t.Skip("needs IPv6")
		} else {
			_ = six.Close()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if at := addrPort(l.Addr()).Addr(); at.String() != "::1" {
		t.Errorf("it listens at %v: expected ::1", at)
	}
}

// The loopback address that this host has does not depend on what its list of names says.
func TestLocalhost(t *testing.T) {
	for family, want := range map[Family]string{AnyFamily: net.JoinHostPort(loopback.Address(false), "7"), IPv6: "[::1]:7"} {
		c := Config{Size: 2, Addr: "localhost:7", Family: family}
		if _, err := c.complete(); err != nil || c.Addr != want {
			t.Errorf("%v: %s, %v: expected %s", family, c.Addr, err, want)
		}
	}
}

// Strangers that connect and say nothing take neither the descriptors of rank 0 nor its places: most of what it may have
// open is for its program.
func TestSilentStrangersLeaveDescriptors(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	const strangers, files = 100, 48 // more than rank 0 may have open, and than its backlog
	root := start(t, "leave", UniqueID{}, 0, 2, EnvUniqueID+"=", EnvAddr+"="+host, EnvPort+"="+port, fmt.Sprint(childFiles, "=", files))
	open := func() int {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", root.Process.Pid))
		if err != nil {
			t.Error(err)
		}
		return len(entries)
	}
	ctx := bounded(t, patience)
	var pause backoff
	for at := 0; at < strangers; {
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err != nil { // rank 0 does not listen yet
			if !pause.wait(ctx) {
				t.Fatal(err)
			}
			continue
		}
		defer conn.Close()
		at++
	}
	begun := time.Now()
	b, err := Join(bounded(t, patience), Config{Rank: 1, Size: 2, Addr: addr})
	if err != nil {
		t.Fatal(err)
	}
	if n := open(); n > files*3/4 { // rank 1 was behind more strangers than rank 0 has places for
		t.Errorf("rank 0 has %d of %d files open: expected at most three quarters", n, files)
	}
	root.expect("joined")
	t.Logf("joined after %v among %d strangers", time.Since(begun), strangers)
	_ = b.Close()
}
