package loopback

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/mscclpp-go/mscclpp/internal/loopback/sixonly"
)

const childMode = "MSCCLPP_LOOPBACK_TEST_CHILD"

// A child of the tests lives in a network of its own, whose loopback has no IPv4.
func TestMain(m *testing.M) {
	if os.Getenv(childMode) == "" {
		os.Exit(m.Run())
	}
	if err := sixonly.Here(); err != nil {
		fmt.Println("cannot:", err)
		os.Exit(1)
	}
	port, err := FreePort()
	l, lerr := net.Listen("tcp", Any(false))
	fmt.Println(Address(false), port > 0, err, l != nil, lerr)
	os.Exit(0)
}

func TestHostWithIPv6Alone(t *testing.T) {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), childMode+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := c.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("needs permission to make a network namespace")
	}
	if got := strings.TrimSpace(string(out)); err != nil || got != "::1 true <nil> true <nil>" {
		t.Errorf("%q, %v: expected the loopback address of IPv6", got, err)
	}
}

func TestAddress(t *testing.T) {
	if a := Address(true); a != "::1" {
		t.Errorf("asked for IPv6: %s", a)
	}
	if a := Address(false); a != "127.0.0.1" {
		t.Errorf("%s: expected 127.0.0.1 where it is there", a)
	}
	if p, err := FreePort(); p == 0 || err != nil {
		t.Errorf("port %d, %v", p, err)
	}
}

func TestUnbracket(t *testing.T) {
	for in, want := range map[string]string{
		"[::1]": "::1", "[fe80::1%eth0]": "fe80::1%eth0", "::1": "::1", "node1": "node1", "[node1]": "[node1]",
		"[127.0.0.1]": "[127.0.0.1]", "[::1": "[::1", "": "",
	} {
		if got := Unbracket(in); got != want {
			t.Errorf("%q: %q, expected %q", in, got, want)
		}
	}
}
