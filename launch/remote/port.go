package remote

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"

	"github.com/mscclpp-go/mscclpp/framework"
)

// freePort finds a port of this host for the program's own use, as MASTER_PORT. Nothing keeps it free until the program
// takes it, seconds later: so it is one that the kernel gives to nobody who asks for any port, and to no connection.
func freePort() (int, error) {
	const lowest, tries = 10000, 100
	if below := firstOfAny(); below > lowest {
		for range tries {
			if port, err := listenable(lowest + rand.IntN(below-lowest)); err == nil {
				return port, nil
			}
		}
	}
	port, err := listenable(0)
	if err != nil {
		return 0, fmt.Errorf("%w: no free port: %w", framework.ErrUnavailable, err)
	}
	return port, nil
}

// firstOfAny is the first port of those that the kernel chooses itself; 0 if that is not known.
func firstOfAny() (first int) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err == nil {
		_, _ = fmt.Sscan(string(text), &first)
	}
	return first
}

// listenable returns the port if a program can listen there now.
func listenable(port int) (int, error) {
	l, err := net.Listen("tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
