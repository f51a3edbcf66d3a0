// Package cudaipc connects NVIDIA GPUs of one host, over NVLink or PCIe, by the
// driver's ways to share memory between processes.
//
// It returns data and nothing else: which share of a peer's memory to map, and why
// that one. It never opens a GPU: a context costs half a gigabyte of memory, and
// copies from another process wait for the rank's kernels. So memory channels are
// mappings, and port channels are driven by the rank's own copy engine, which writes
// through the very same mappings. Package gpulink carries all of that out; here is what
// NVIDIA's GPUs have of their own.
package cudaipc

import (
	"context"
	"os"

	collectives "github.com/mscclpp-go/mscclpp/collectives/image"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel/actor"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/transports/internal/gpulink"
	"github.com/mscclpp-go/mscclpp/transports/internal/parcel"
)

// Name is the transport's name in configuration.
const Name = "cudaipc"

// Version of the transport.
const Version = "1.0.0"

// Transport implements framework.Transport, Prober and Imager.
type Transport = gpulink.Transport

// nvidia is what differs from the GPUs of others.
var nvidia = gpulink.Maker{
	// Since version 2 the digest of a link is the same as in other transports.
	Parcels:    parcel.Head{Magic: [4]byte{'M', 'C', 'I', 'P'}, Version: 2, Transport: Name},
	Version:    Version,
	Device:     "cuda",
	GPUs:       "NVIDIA GPUs",
	Memory:     "a CUDA device",
	None:       "NVIDIA's driver shows no GPU: look at nvidia-smi, and at what the container was given",
	Variables:  "CUDA_VISIBLE_DEVICES",
	Link:       "NVLink",
	LinkWord:   "NV",
	HostFixes:  "memory of the host that both register (gpu_memory: host), or a transport that goes through the host",
	WholeLines: true,
	Archs:      []string{"sm_90", "sm_80"}, // best first; newer GPUs compile them for themselves
	Elsewhere:  []string{"switch", "switch_zerocopy", "switch_minmax", "switch_packets"},
	Images:     []func() (*image.Set, error){collectives.Images, actor.Images},
	Needs:      []framework.Need{framework.NeedVMM},
	Visible:    topo.Visible,
	Apart:      func(_, _ topo.GPU) string { return "PCIe" },
}

// New returns a transport for programs that embed it. It knows the GPUs from the driver's
// files in /proc, which leave out which GPU may address the memory of which.
func New(c Config) (framework.Transport, error) {
	return NewWith(c, func(context.Context) ([]topo.GPU, error) { return topo.Driver(os.DirFS("/")) })
}

// NewWith returns a transport that asks find about the machine's GPUs, once, when it
// first needs to know. It is how the plugin makes one, with the driver's library.
func NewWith(c Config, find func(context.Context) ([]topo.GPU, error)) (framework.Transport, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	t, err := gpulink.New(nvidia, gpulink.Options{Shares: c.Shares, RequireLinks: c.RequireNVLink, Fabric: c.Fabric}, find)
	if err != nil {
		return nil, err
	}
	return t, nil
}
