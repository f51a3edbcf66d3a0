package nvml

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// library is a management library of a machine that does not exist. A call that a test does
// not expect panics: the embedded interface is nil.
type library struct {
	nvml.Interface
	init    nvml.Return
	missing map[string]bool // functions that this driver has not
	gpus    []*gpu
	open    int // Init without Shutdown
}

func (l *library) Init() nvml.Return {
	if l.init == nvml.SUCCESS {
		l.open++
	}
	return l.init
}
func (l *library) Shutdown() nvml.Return              { l.open--; return nvml.SUCCESS }
func (l *library) DeviceGetCount() (int, nvml.Return) { return len(l.gpus), nvml.SUCCESS }
func (l *library) Extensions() nvml.ExtendedInterface { return l }
func (l *library) DeviceGetHandleByIndex(i int) (nvml.Device, nvml.Return) {
	if l.gpus[i].lost {
		return nil, nvml.ERROR_GPU_IS_LOST
	}
	return l.gpus[i], nvml.SUCCESS
}
func (l *library) LookupSymbol(name string) error {
	if l.missing[name] {
		return errors.New("no such symbol")
	}
	return nil
}

// gpu is one GPU.
type gpu struct {
	nvml.Device
	n       int
	name    string
	major   int
	bytes   uint64
	busID   string
	affine  []uint
	links   []far // the far end of each link
	version uint32
	fabric  *nvml.GpuFabricInfo
	p2p     nvml.GpuP2PStatus
	atomics nvml.GpuP2PStatus
	mig     []*gpu // nil: not partitioned
	lost    bool
}

// far is the far end of a link: a switch, or a GPU.
type far struct {
	kind  nvml.IntNvLinkDeviceType
	busID string
	off   bool
}

func busID(text string) (p nvml.PciInfo) {
	for i := range text {
		p.BusId[i] = int8(text[i])
	}
	return p
}

func (g *gpu) GetPciInfo() (nvml.PciInfo, nvml.Return) { return busID(g.busID), nvml.SUCCESS }
func (g *gpu) GetName() (string, nvml.Return)          { return g.name, nvml.SUCCESS }
func (g *gpu) GetUUID() (string, nvml.Return) {
	return fmt.Sprintf("GPU-%08x-0000-0000-0000-000000000000", 0xa0+g.n), nvml.SUCCESS
}
func (g *gpu) GetCudaComputeCapability() (int, int, nvml.Return) { return g.major, 0, nvml.SUCCESS }
func (g *gpu) GetMemoryInfo() (nvml.Memory, nvml.Return) {
	return nvml.Memory{Total: g.bytes}, nvml.SUCCESS
}
func (g *gpu) GetCpuAffinity(int) ([]uint, nvml.Return) {
	if g.affine == nil {
		return nil, nvml.ERROR_NOT_SUPPORTED
	}
	return g.affine, nvml.SUCCESS
}
func (g *gpu) GetNvLinkState(i int) (nvml.EnableState, nvml.Return) {
	switch {
	case g.links == nil:
		return 0, nvml.ERROR_NOT_SUPPORTED
	case i >= len(g.links):
		return 0, nvml.ERROR_INVALID_ARGUMENT
	case g.links[i].off:
		return nvml.FEATURE_DISABLED, nvml.SUCCESS
	}
	return nvml.FEATURE_ENABLED, nvml.SUCCESS
}
func (g *gpu) GetNvLinkVersion(int) (uint32, nvml.Return) { return g.version, nvml.SUCCESS }
func (g *gpu) GetNvLinkRemoteDeviceType(i int) (nvml.IntNvLinkDeviceType, nvml.Return) {
	return g.links[i].kind, nvml.SUCCESS
}
func (g *gpu) GetNvLinkRemotePciInfo(i int) (nvml.PciInfo, nvml.Return) {
	return busID(g.links[i].busID), nvml.SUCCESS
}
func (g *gpu) GetGpuFabricInfo() (nvml.GpuFabricInfo, nvml.Return) {
	if g.fabric == nil {
		return nvml.GpuFabricInfo{}, nvml.ERROR_NOT_SUPPORTED
	}
	return *g.fabric, nvml.SUCCESS
}
func (g *gpu) GetP2PStatus(_ nvml.Device, what nvml.GpuP2PCapsIndex) (nvml.GpuP2PStatus, nvml.Return) {
	if what == nvml.P2P_CAPS_INDEX_ATOMICS {
		return g.atomics, nvml.SUCCESS
	}
	return g.p2p, nvml.SUCCESS
}
func (g *gpu) GetMigMode() (int, int, nvml.Return) {
	if g.mig == nil {
		return 0, 0, nvml.ERROR_NOT_SUPPORTED
	}
	return nvml.DEVICE_MIG_ENABLE, nvml.DEVICE_MIG_ENABLE, nvml.SUCCESS
}
func (g *gpu) GetMaxMigDeviceCount() (int, nvml.Return) { return 7, nvml.SUCCESS }
func (g *gpu) GetMigDeviceHandleByIndex(i int) (nvml.Device, nvml.Return) {
	if i >= len(g.mig) || g.mig[i] == nil {
		return nil, nvml.ERROR_NOT_FOUND
	}
	return g.mig[i], nvml.SUCCESS
}
