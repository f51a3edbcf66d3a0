// Command mscclpp-transport-nvls is the transport through the switch between NVIDIA GPUs of one host, as a plugin.
package main

import (
	"github.com/mscclpp-go/mscclpp/plugins"
	"github.com/mscclpp-go/mscclpp/transports/nvls"
)

func main() { plugins.Serve(nvls.New) }
