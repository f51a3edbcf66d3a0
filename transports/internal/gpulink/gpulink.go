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
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	deviceimage "github.com/mscclpp-go/mscclpp/framework/kernel/image"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/transports/internal/fault"
	"github.com/mscclpp-go/mscclpp/transports/internal/ids"
	"github.com/mscclpp-go/mscclpp/transports/internal/parcel"
)

// Maker says what differs between the GPUs of makers, and in the names of their transports.
type Maker struct {
	Parcels parcel.Head // of addresses and keys; it names the transport
	Version string      // of the transport

	Device    string // type of devices: "cuda"
	GPUs      string // for people: "NVIDIA GPUs"
	Memory    string // whose memory it is, for people: "a CUDA device"
	None      string // why there may be no GPU, for people
	Variables string // of the environment, which hide GPUs
	Link      string // "NVLink"; facts of Probe and the option that requires links have it in lower case
	LinkWord  string // the beginning of a bundle's name: "NV", as in NV18
	HostFixes string // what lets a pair without access share memory, for people

	WholeLines bool // links carry stores of 128 bytes whole
	Archs      []string
	Elsewhere  []string // algorithms over channels that the transport has not
	Images     []func() (*deviceimage.Set, error)
	Needs      []framework.Need

	// Visible lists the GPUs that a program with an environment is shown, as it numbers them.
	Visible func(gpus []topo.GPU, lookup func(string) (string, bool)) []topo.GPU
	// Apart names the path between two GPUs that no link joins.
	Apart func(a, b topo.GPU) string
}

func (m *Maker) name() string { return m.Parcels.Transport }

// linkKey is the word for links in options and facts: "nvlink".
func (m *Maker) linkKey() string { return strings.ToLower(m.Link) }

func (m *Maker) fact(name string) string { return topo.FactKey(m.Device, name) }

// Options are those of a transport's configuration.
type Options struct {
	Shares       []string // ways to map a peer's memory, best first
	RequireLinks bool     // refuse pairs of GPUs that no link joins
	Fabric       bool     // also reach GPUs of other hosts
}

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

// instance is a number that no other instance has.
type instance [16]byte

// Finder lists the GPUs of the machine, numbered by PCI address.
type Finder = func(context.Context) ([]topo.GPU, error)

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
