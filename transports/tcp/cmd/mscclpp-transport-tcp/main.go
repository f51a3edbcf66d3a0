// Command mscclpp-transport-tcp is the transport over TCP sockets, as a plugin.
package main

import (
	"github.com/mscclpp-go/mscclpp/plugins"
	"github.com/mscclpp-go/mscclpp/transports/tcp"
)

func main() { plugins.Serve(tcp.New) }
