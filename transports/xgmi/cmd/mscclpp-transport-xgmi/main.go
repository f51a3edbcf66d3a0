// Command mscclpp-transport-xgmi is the transport between AMD's GPUs of one host, as a plugin.
package main

import (
	"github.com/mscclpp-go/mscclpp/plugins"
	"github.com/mscclpp-go/mscclpp/transports/xgmi"
)

func main() {
	plugins.Serve(xgmi.New)
}
