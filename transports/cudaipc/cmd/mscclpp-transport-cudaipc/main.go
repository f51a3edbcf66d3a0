// Command mscclpp-transport-cudaipc is the transport between NVIDIA GPUs of one host,
// as a plugin.
package main

import (
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/topo/nvml"
	"github.com/mscclpp-go/mscclpp/plugins"
	"github.com/mscclpp-go/mscclpp/transports/cudaipc"
)

func main() {
	plugins.Serve(func(c cudaipc.Config) (framework.Transport, error) { return cudaipc.NewWith(c, nvml.Within) })
}
