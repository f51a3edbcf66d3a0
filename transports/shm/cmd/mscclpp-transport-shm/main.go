// Command mscclpp-transport-shm is the transport over shared memory, as a plugin.
package main

import (
	"github.com/mscclpp-go/mscclpp/plugins"
	"github.com/mscclpp-go/mscclpp/transports/shm"
)

func main() { plugins.Serve(shm.New) }
