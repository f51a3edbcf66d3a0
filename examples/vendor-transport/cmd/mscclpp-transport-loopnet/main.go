// Command mscclpp-transport-loopnet is the transport loopnet as a plugin.
package main

import (
	"example.com/loopnet"
	"github.com/mscclpp-go/mscclpp/plugins"
)

func main() { plugins.Serve(loopnet.New) }
