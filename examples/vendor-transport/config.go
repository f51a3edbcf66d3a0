package loopnet

import (
	"fmt"
	"net"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Config has the options that a user can set under transport.loopnet. Its fields are the
// transport's option schema: names, types and help come from here.
type Config struct {
	Listen  string `help:"Address on which puts are received."`
	Network string `help:"Name of the network that joins the hosts; needed unless listen is a loopback address."`
	Buffer  int    `help:"Bytes of small puts that are sent together."`
}

// Defaults are the values of a Config without settings of the user.
func (Config) Defaults() Config { return Config{Listen: "127.0.0.1", Buffer: 1 << 16} }

// Validate says what is wrong with a Config; the plugin asks before it starts.
func (c Config) Validate() error {
	ip := net.ParseIP(c.Listen)
	switch {
	case ip == nil:
		return fmt.Errorf("%w: listen: %q is not an address such as 127.0.0.1", framework.ErrInvalid, c.Listen)
	case !ip.IsLoopback() && c.Network == "":
		return fmt.Errorf("%w: network: expected a name, since %s can be reached by other hosts", framework.ErrInvalid, c.Listen)
	case c.Buffer < 64 || c.Buffer > 64<<20:
		return fmt.Errorf("%w: buffer: %d: expected 64 to %d", framework.ErrInvalid, c.Buffer, 64<<20)
	}
	return nil
}

// reach is the token that two endpoints must share. A loopback address is of use
// within one host alone.
func (c Config) reach(host string) string {
	if net.ParseIP(c.Listen).IsLoopback() {
		return "host:" + host
	}
	return "net:" + c.Network
}
