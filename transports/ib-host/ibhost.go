// Package ibhost carries bytes over InfiniBand and RoCE, between hosts or within one. Port
// channels only: the plugin posts an RDMA write for a put, and for a signal an atomic that
// the peer's adapter adds to the counter. Neither host's processor touches the data.
//
// For adapters without remote atomics there is ib-nonatomic.
package ibhost

import (
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/transports/internal/verbs"
)

// Name is the transport's name in configuration.
const Name = "ib-host"

// Version of the transport.
const Version = "1.0.0"

// Config holds the transport's options. Take Defaults and change what matters.
type Config = verbs.Config

// New returns a transport. It is how plugins.Serve and programs that embed the transport
// make one. It touches no device.
func New(c Config) (framework.Transport, error) {
	return verbs.New(verbs.Setup{Name: Name, Version: Version, Mode: verbs.Atomic}, c)
}
