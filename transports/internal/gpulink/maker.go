package gpulink

import (
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	deviceimage "github.com/mscclpp-go/mscclpp/framework/kernel/image"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/transports/internal/parcel"
)

// Maker says what differs between the GPUs of makers, and in the names of their transports.
type Maker struct {
	Parcels parcel.Head // of addresses and keys; it names the transport
	Version string      // of the transport

	Device    string // type of devices: "cuda"
	GPUs      string // for people: "NVIDIA GPUs"
	Memory    string // the owner of memory, for people: "a CUDA device"
	None      string // why there may be no GPU, for people
	Variables string // of the environment, which hide GPUs
	Link      string // "NVLink"; facts of Probe and the option that requires links have it in lower case
	LinkWord  string // the beginning of a bundle's name: "NV", as in NV18
	HostFixes string // the way out for a pair without access, for people

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
