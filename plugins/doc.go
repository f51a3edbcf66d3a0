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
// The two talk gRPC, after the handshake of hashicorp/go-plugin, over a connection that
// the plugin inherits, and pass descriptors over a socket pair (the control socket). The
// end of that pair tells each side of the other's death: the plugin exits, and Client.Gone
// is closed, within 100 ms, whatever killed the process. Nothing is left in the file
// system: a plugin that calls Serve puts nothing there. Plugins in other languages may
// listen on a Unix socket, which the host removes as soon as it is connected.
//
// docs/plugin-protocol.md describes the boundary for authors of plugins in other
// languages.
package plugins

import (
	"context"
	"errors"
	"strconv"
	"strings"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/mscclpp-go/mscclpp/plugins/internal/environ"
)

// ProtocolVersion is the newest version of the protocol that this package speaks. Host
// and plugin use the highest version that both speak.
const ProtocolVersion = 1

// The environment of a plugin, beside what go-plugin sets; part of the protocol.
const (
	cookieKey   = "MSCCLPP_TRANSPORT_PLUGIN"
	cookieValue = "2f0e9c55-1f6b-4f0c-9b51-6d1b4a2f7c3e"

	controlKey    = environ.ControlKey
	connectionKey = environ.ConnectionKey
	folderKey     = environ.FolderKey
	logLevelKey   = environ.LogLevelKey
	versionsKey   = "PLUGIN_PROTOCOL_VERSIONS" // that the host speaks
)

// handshake guards against programs that are not transport plugins. The cookie is
// no secret.
var handshake = goplugin.HandshakeConfig{MagicCookieKey: cookieKey, MagicCookieValue: cookieValue}

const dispensed = "transport"

// handshakeEnvironment is what go-plugin sets for a process that it starts itself.
func handshakeEnvironment() []string {
	var spoken []string
	for v := range versions() {
		spoken = append(spoken, strconv.Itoa(v))
	}
	return []string{cookieKey + "=" + cookieValue, versionsKey + "=" + strings.Join(spoken, ",")}
}

// versions lists what is served for each version of the protocol.
func versions() map[int]goplugin.PluginSet {
	return map[int]goplugin.PluginSet{1: {dispensed: &glue{}}}
}

// glue joins the service to go-plugin, on the host's side.
type glue struct {
	goplugin.NetRPCUnsupportedPlugin
}

// GRPCServer implements goplugin.GRPCPlugin. Plugins do without go-plugin.
func (g *glue) GRPCServer(*goplugin.GRPCBroker, *grpc.Server) error {
	return errors.ErrUnsupported
}

// GRPCClient implements goplugin.GRPCPlugin. The caller wraps the connection, for
// it alone has the control socket.
func (g *glue) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}
