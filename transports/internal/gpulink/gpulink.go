// Package gpulink is what transports between GPUs of one host have in common, whoever made the GPUs: which share of a peer's
// memory a rank is to map, and why that one. A Maker says what differs.
//
// It returns data and nothing else, and never opens a GPU: memory channels are mappings, and port channels are driven by the
// rank's own copy engine, which writes through the very same mappings.
package gpulink

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/transports/internal/fault"
	"github.com/mscclpp-go/mscclpp/transports/internal/ids"
)

// Transport implements framework.Transport, Prober and Imager.
type Transport struct {
	maker    Maker
	config   Options
	instance instance // lets peers recognize that this very object serves them as well
	images   *images
	machine  *machine
	log      *slog.Logger
	made     ids.Table[any] // registration, *endpoint or *connection
}

// New returns a transport that asks find about the machine's GPUs, once, when it first needs to know.
func New(m Maker, o Options, find Finder) (*Transport, error) {
	images, err := openImages(&m)
	if err != nil {
		return nil, fault.In(m.name(), "open", err)
	}
	t := &Transport{maker: m, config: o, images: images, log: slog.Default().With("transport", m.name())}
	t.machine = newMachine(&t.maker, find, os.LookupEnv)
	if _, err := rand.Read(t.instance[:]); err != nil {
		return nil, fmt.Errorf("%w: random numbers: %w", framework.ErrUnavailable, err)
	}
	return t, nil
}

// Describe says what the transport can do.
func (t *Transport) Describe(context.Context) (framework.Description, error) {
	return framework.Description{
		Name:     t.maker.name(),
		Version:  t.maker.Version,
		Channels: []framework.Kind{framework.KindMemory, framework.KindPort},
		Signal:   framework.SignalDirect,
		Needs:    t.maker.Needs,
		Kernels:  t.images.kernels,
		Images:   t.images.infos,
		Proxy:    framework.ProxyRank,
		Probe:    true,
	}, nil
}

// Close frees the object made under id; with an endpoint, its connections. There is
// nothing behind ids that would have to end.
func (t *Transport) Close(_ context.Context, id framework.ID) error {
	t.made.Close(id, func(any) {})
	return nil
}

func (t *Transport) failure(op string, err error) error { return fault.In(t.maker.name(), op, err) }

var (
	_ framework.Transport = (*Transport)(nil)
	_ framework.Prober    = (*Transport)(nil)
	_ framework.Imager    = (*Transport)(nil)
)
