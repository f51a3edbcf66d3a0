// Package shm carries bytes through the memory of one host. It is the transport
// that is always there: it needs no device, and jobs on CPUs run on it alone.
//
// Memory is a sealed memfd. A key is its descriptor with an offset, so a memory
// channel is one mapping. Port channels are driven by a loop in the transport's own
// process, which maps both sides and copies. The switch is emulated: every member
// maps the memory of all members side by side, and kernels store to each; the
// recipe has the very steps that hardware with multicast needs.
package shm

import (
	"context"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/transports/internal/fault"
	"github.com/mscclpp-go/mscclpp/transports/internal/ids"
)

// Name is the transport's name in configuration.
const Name = "shm"

// Version of the transport.
const Version = "1.0.0"

// Transport implements framework.Transport, Proxier and Imager.
type Transport struct {
	config Config
	images *images
	made   ids.Table[closer] // *registration, *endpoint or *connection; its users are proxies
}

// New returns a transport. It is how plugins.Serve and programs that embed the
// transport make one.
func New(c Config) (framework.Transport, error) {
	t, err := newTransport(c)
	if err != nil {
		return nil, err
	}
	return t, nil
}

func newTransport(c Config) (*Transport, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	images, err := openImages(c.Images)
	if err != nil {
		return nil, failure("open", err)
	}
	return &Transport{config: c, images: images}, nil
}

// Describe says what the transport can do.
func (t *Transport) Describe(context.Context) (framework.Description, error) {
	return framework.Description{
		Name:     Name,
		Version:  Version,
		Channels: []framework.Kind{framework.KindMemory, framework.KindPort, framework.KindSwitch},
		Signal:   framework.SignalDirect,
		Needs:    []framework.Need{framework.NeedMemFD},
		Kernels:  t.images.kernels(),
		Images:   t.images.list(),
		Proxy:    framework.ProxyPlugin,
	}, nil
}

// Close frees the object made under id. Proxies lose the slots that were bound with
// it before this returns.
func (t *Transport) Close(_ context.Context, id framework.ID) error {
	t.made.Close(id, closer.close)
	return nil
}

// closer is an object behind an id. A caller that uses it while it is closed finds that
// its descriptors fail to duplicate.
type closer interface{ close() }

func failure(op string, err error) error { return fault.In(Name, op, err) }

var (
	_ framework.Transport = (*Transport)(nil)
	_ framework.Proxier   = (*Transport)(nil)
	_ framework.Imager    = (*Transport)(nil)
)
