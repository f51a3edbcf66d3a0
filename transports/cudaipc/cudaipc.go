// Package cudaipc connects NVIDIA GPUs of one host, over NVLink or PCIe, by the
// driver's ways to share memory between processes.
//
// It returns data and nothing else: which share of a peer's memory to map, and why
// that one. It never opens a GPU: a context costs half a gigabyte of memory, and
// copies from another process wait for the rank's kernels. So memory channels are
// mappings, and port channels are driven by the rank's own copy engine, which writes
// through the very same mappings.
package cudaipc

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/transports/internal/fault"
	"github.com/mscclpp-go/mscclpp/transports/internal/ids"
)

// Name is the transport's name in configuration.
const Name = "cudaipc"

// Version of the transport.
const Version = "1.0.0"

// Transport implements framework.Transport, Prober and Imager.
type Transport struct {
	config   Config
	instance instance // lets peers recognize that this very object serves them as well
	images   *images
	machine  *machine
	log      *slog.Logger
	made     ids.Table[any] // registration, *endpoint or *connection
}

// instance is a number that no other instance has.
type instance [16]byte

// New returns a transport for programs that embed it. It knows the GPUs from the driver's
// files in /proc, which leave out which GPU may address the memory of which.
func New(c Config) (framework.Transport, error) {
	return NewWith(c, func(context.Context) ([]topo.GPU, error) { return topo.Driver(os.DirFS("/")) })
}

// NewWith returns a transport that asks find about the machine's GPUs, once, when it
// first needs to know. It is how the plugin makes one, with the driver's library.
func NewWith(c Config, find func(context.Context) ([]topo.GPU, error)) (framework.Transport, error) {
	t, err := newTransport(c, find)
	if err != nil {
		return nil, err
	}
	return t, nil
}

func newTransport(c Config, find finder) (*Transport, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	images, err := openImages()
	if err != nil {
		return nil, failure("open", err)
	}
	t := &Transport{
		config: c, images: images, machine: newMachine(find, os.LookupEnv), log: slog.Default().With("transport", Name),
	}
	if _, err := rand.Read(t.instance[:]); err != nil {
		return nil, fmt.Errorf("%w: random numbers: %w", framework.ErrUnavailable, err)
	}
	return t, nil
}

// Describe says what the transport can do.
func (t *Transport) Describe(context.Context) (framework.Description, error) {
	return framework.Description{
		Name:     Name,
		Version:  Version,
		Channels: []framework.Kind{framework.KindMemory, framework.KindPort},
		Signal:   framework.SignalDirect,
		Needs:    []framework.Need{framework.NeedVMM},
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

func failure(op string, err error) error { return fault.In(Name, op, err) }

var (
	_ framework.Transport = (*Transport)(nil)
	_ framework.Prober    = (*Transport)(nil)
	_ framework.Imager    = (*Transport)(nil)
)
