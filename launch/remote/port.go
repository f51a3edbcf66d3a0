package remote

import (
	"net"

	"fmt"
	"github.com/mscclpp-go/mscclpp/framework"
)

// freePort finds a port of this host for the program's own use, as MASTER_PORT.
// Nothing keeps it free until the program takes it.
func freePort() (int, error) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return 0, fmt.Errorf("%w: no free port: %w", framework.ErrUnavailable, err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
