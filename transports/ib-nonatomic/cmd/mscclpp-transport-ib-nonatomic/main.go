// Command mscclpp-transport-ib-nonatomic is the transport over InfiniBand and RoCE, as a plugin.
package main

import (
	"github.com/mscclpp-go/mscclpp/plugins"
	"github.com/mscclpp-go/mscclpp/transports/ib-nonatomic"
)

func main() { plugins.Serve(ibnonatomic.New) }
