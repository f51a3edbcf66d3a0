// Package nvls is the switch between NVIDIA GPUs of one host: a store to a window reaches the memory of all members, and a
// load sums over it in the switch (NVLink SHARP, sm_90 and later, CUDA 12.6 and later).
//
// It returns data and nothing else. A rank's own driver makes the window, in the order that the hardware dictates; the
// recipe says where ranks have to meet, and where one that fails takes the others back with it. Nothing here opens a
// GPU, or calls a function of the driver: whether there is multicast is a fact that the rank tells.
package nvls

import (
	"context"
	"log/slog"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/transports/internal/fault"
	"github.com/mscclpp-go/mscclpp/transports/internal/ids"
)

// Name is the transport's name in configuration.
const Name = "nvls"

// Version of the transport.
const Version = "1.0.0"

// Transport implements framework.Transport, Prober and Imager.
type Transport struct {
	config Config
	images *images
	log    *slog.Logger
	made   ids.Table[closer] // *registration, *endpoint or *connection
}

// New returns a transport. It is how plugins.Serve and programs that embed the transport make one.
func New(c Config) (framework.Transport, error) {
	images, err := openImages()
	if err != nil {
		return nil, failure("open", err)
	}
	return &Transport{config: c, images: images, log: slog.Default().With("transport", Name)}, nil
}

// Describe says what the transport can do.
func (t *Transport) Describe(context.Context) (framework.Description, error) {
	return framework.Description{
		Name:     Name,
		Version:  Version,
		Channels: []framework.Kind{framework.KindSwitch},
		Signal:   framework.SignalMultimem,
		Needs:    []framework.Need{framework.NeedVMM},
		Kernels:  t.images.kernels,
		Images:   t.images.infos,
		Proxy:    framework.ProxyNone,
		Probe:    true,
	}, nil
}

// Probe says whether the rank's GPU has multicast.
func (t *Transport) Probe(_ context.Context, f framework.Facts) (framework.Live, error) {
	if why := t.lacking(f); why != "" {
		return framework.Live{Reason: why}, nil
	}
	return framework.Live{Available: true, Facts: map[string]string{"driver": f.Other[factDriver]}}, nil
}

// Close frees the object made under id.
func (t *Transport) Close(_ context.Context, id framework.ID) error {
	t.made.Close(id, closer.close)
	return nil
}

// closer is an object behind an id.
type closer interface{ close() }

func failure(op string, err error) error { return fault.In(Name, op, err) }

var (
	_ framework.Transport = (*Transport)(nil)
	_ framework.Prober    = (*Transport)(nil)
	_ framework.Imager    = (*Transport)(nil)
)
