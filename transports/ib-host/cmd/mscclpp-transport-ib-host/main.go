// Command mscclpp-transport-ib-host is the transport over InfiniBand and RoCE, as a plugin.
package main

import (
	"github.com/mscclpp-go/mscclpp/plugins"
	"github.com/mscclpp-go/mscclpp/transports/ib-host"
)

func main() { plugins.Serve(ibhost.New) }
