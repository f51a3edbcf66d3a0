// Package ibnonatomic carries bytes over InfiniBand and RoCE where adapters have no remote
// atomics, or where those are slow. It is ib-host but for its signals: a write with an
// immediate, which the peer's plugin counts and adds to the counter in host memory, or to an
// inbox from which the rank's forwarder takes it to the memory of a device.
package ibnonatomic

import (
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/transports/internal/verbs"
)

// Name is the transport's name in configuration.
const Name = "ib-nonatomic"

// Version of the transport.
const Version = "1.0.0"

// Config holds the transport's options. Take Defaults and change what matters.
type Config = verbs.Config

// New returns a transport. It is how plugins.Serve and programs that embed the transport
// make one. It touches no device.
func New(c Config) (framework.Transport, error) {
	return verbs.New(verbs.Setup{Name: Name, Version: Version, Mode: verbs.Immediate}, c)
}
