// Command mscclpp-transport-toylink is the transport between toy accelerators as a plugin.
package main

import (
	"example.com/toy/toylink"
	"github.com/mscclpp-go/mscclpp/plugins"
)

func main() { plugins.Serve(toylink.New) }
