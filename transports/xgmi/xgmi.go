// Package xgmi connects AMD GPUs of one host, over Infinity Fabric or PCIe, by the ways of HIP's runtime to share memory between
// processes. Package gpulink carries that out; here is what AMD's GPUs have of their own.
//
// No GPU of AMD's has run it: it is tested over an emulated runtime.
package xgmi

import (
	"context"
	"os"

	collectives "github.com/mscclpp-go/mscclpp/collectives/image"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel/actor"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/framework/topo/kfd"
	"github.com/mscclpp-go/mscclpp/transports/internal/gpulink"
	"github.com/mscclpp-go/mscclpp/transports/internal/parcel"
)

// Name is the transport's name in configuration.
const Name = "xgmi"

// Version of the transport.
const Version = "1.0.0"

// Transport implements framework.Transport, Prober and Imager.
type Transport = gpulink.Transport

// amd is what differs from the GPUs of others.
var amd = gpulink.Maker{
	Parcels:   parcel.Head{Magic: [4]byte{'M', 'X', 'G', 'M'}, Version: 1, Transport: Name},
	Version:   Version,
	Device:    kfd.Type,
	GPUs:      "AMD GPUs",
	Memory:    "a HIP device",
	None:      "the driver amdgpu shows no GPU: look at /dev/kfd and /dev/dri, and at what the container was given",
	Variables: "ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES",
	Link:      "xGMI",
	LinkWord:  "XGMI",
	HostFixes: "memory of the host that both register (gpu_memory: host), or a transport that goes through the host",
	// Stores of 16 bytes are all that the lines of packets rely on.
	WholeLines: false,
	Archs:      []string{"gfx942", "gfx90a"},
	Needs:      []framework.Need{framework.NeedVMM},
	Images:     []func() (*image.Set, error){collectives.Images, actor.Images},
	Visible: func(gpus []topo.GPU, lookup func(string) (string, bool)) []topo.GPU {
		visible, _ := kfd.Visible(gpus, lookup)
		return visible
	},
	Apart: apart,
}

// apart tells GPUs of one network of links from those that PCIe alone joins. Machines of MI250 are no full mesh.
func apart(a, b topo.GPU) string {
	if a.Hive != "" && a.Hive == b.Hive {
		return "xGMI through other GPUs"
	}
	return "PCIe"
}

// New returns a transport that knows the GPUs from the files of their driver. It is how plugins.Serve and programs that embed
// the transport make one.
func New(c Config) (framework.Transport, error) {
	find := kfd.GPUs(os.DirFS("/"))
	return NewWith(c, func(context.Context) ([]topo.GPU, error) { return find() })
}

// NewWith returns a transport that asks find about the machine's GPUs, once, when it first needs to know.
func NewWith(c Config, find func(context.Context) ([]topo.GPU, error)) (framework.Transport, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	t, err := gpulink.New(amd, gpulink.Options{Shares: c.Shares, RequireLinks: c.RequireXGMI}, find)
	if err != nil {
		return nil, err
	}
	return t, nil
}
