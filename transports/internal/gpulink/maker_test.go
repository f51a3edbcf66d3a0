package gpulink

import (
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel/actor"
	deviceimage "github.com/mscclpp-go/mscclpp/framework/kernel/image"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/transports/internal/parcel"
)

// head begins the parcels of the transport under test.
var head = parcel.Head{Magic: [4]byte{'M', 'C', 'I', 'P'}, Version: 2, Transport: "cudaipc"}

// maker has the words of one whose machines were recorded.
var maker = Maker{
	Parcels: head, Version: "1.0.0", Device: "cuda", GPUs: "NVIDIA GPUs", Memory: "a CUDA device",
	None: "the driver shows no GPU", Variables: "CUDA_VISIBLE_DEVICES", Link: "NVLink", LinkWord: "NV", HostFixes: "gpu_memory: host",
	WholeLines: true, Archs: []string{"sm_90", "sm_80"}, Elsewhere: []string{"switch", "switch_zerocopy", "switch_minmax", "switch_packets"},
	Images:  []func() (*deviceimage.Set, error){actor.Images},
	Visible: topo.Visible,
	Apart:   func(_, _ topo.GPU) string { return "PCIe" },
}

// everyShare are the ways to share memory, in the usual order.
var everyShare = Names([]framework.ShareKind{vmm, fabric, legacy, hostFD})
