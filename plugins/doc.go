// Package plugins is the process boundary: it runs a framework.Transport in a
// process of its own.
//
// A vendor's program is one line:
//
//	func main() { plugins.Serve(acme.New) } // func New(acme.Config) (framework.Transport, error)
//
// A host starts it with Open, which returns a framework.Transport again:
//
//	c, err := plugins.Open(ctx, plugins.Spec{Name: "acme", Path: path, Options: options})
//	defer c.Shutdown()
//
// The two talk gRPC over a Unix socket, with the handshake of hashicorp/go-plugin,
// and pass descriptors over a socket pair (the control socket). The end of that pair
// tells each side of the other's death: the plugin exits, and Client.Gone is closed,
// within 100 ms, whatever killed the process. Nothing is left in the file system,
// since the gRPC socket is unlinked as soon as it is connected.
//
// docs/plugin-protocol.md describes the boundary for authors of plugins in other
// languages.
package plugins

import (
	"context"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/mscclpp-go/mscclpp/plugins/internal/environ"
	"github.com/mscclpp-go/mscclpp/plugins/internal/wire"
)

// ProtocolVersion is the newest version of the protocol that this package speaks. Host
// and plugin use the highest version that both speak.
const ProtocolVersion = 1

// The environment of a plugin, beside what go-plugin sets; part of the protocol.
const (
	cookieKey   = "MSCCLPP_TRANSPORT_PLUGIN"
	cookieValue = "2f0e9c55-1f6b-4f0c-9b51-6d1b4a2f7c3e"

	controlKey  = environ.ControlKey
	logLevelKey = environ.LogLevelKey
)

// handshake guards against programs that are not transport plugins. The cookie is
// no secret.
var handshake = goplugin.HandshakeConfig{MagicCookieKey: cookieKey, MagicCookieValue: cookieValue}

const dispensed = "transport"

// versions lists what is served for each version of the protocol. server is nil on
// the host's side.
func versions(server *wire.Server) map[int]goplugin.PluginSet {
	return map[int]goplugin.PluginSet{1: {dispensed: &glue{server: server}}}
}

// glue joins the service to go-plugin.
type glue struct {
	goplugin.NetRPCUnsupportedPlugin
	server *wire.Server
}

// GRPCServer implements goplugin.GRPCPlugin.
func (g *glue) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	wire.Register(s, g.server)
	return nil
}

// GRPCClient implements goplugin.GRPCPlugin. The caller wraps the connection, for
// it alone has the control socket.
func (g *glue) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}
