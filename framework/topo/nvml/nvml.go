// Package nvml finds NVIDIA's GPUs through its management library, which comes with
// the driver and is opened when it is first needed.
//
// It is a package of its own because the binding is linked with symbols that only
// exist once that library is open. Programs and plugins bear that; a library that
// others load does not. So nothing that becomes part of one imports this package.
package nvml

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/topo"
)

// Find lists the GPUs of this machine, numbered by PCI address. It is a topo.Finder.
// ErrUnavailable: there is no driver, or it does not work; the text says what to do.
func Find() ([]topo.GPU, error) { return find(nvml.New()) }

// Within is Find that gives up when ctx ends: a driver whose GPU has fallen off the
// bus can take minutes.
func Within(ctx context.Context) ([]topo.GPU, error) { return within(ctx, Find) }

func within(ctx context.Context, find topo.Finder) ([]topo.GPU, error) {
	type answer struct {
		gpus []topo.GPU
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		gpus, err := find()
		done <- answer{gpus, err}
	}()
	select {
	case a := <-done:
		return a.gpus, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: NVIDIA's driver does not answer: %w; see dmesg for a GPU that has failed", framework.ErrUnavailable, context.Cause(ctx))
	}
}

func find(lib nvml.Interface) ([]topo.GPU, error) {
	if err := explain(lib.Init()); err != nil {
		return nil, err
	}
	defer lib.Shutdown()
	n, ret := lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, failed("count GPUs", ret)
	}
	r := reader{lib: lib}
	for i := range n {
		d, ret := lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			return nil, failed(fmt.Sprintf("open GPU %d of %d", i, n), ret)
		}
		g, err := r.gpu(i, d)
		if err != nil {
			return nil, err
		}
		r.devices, r.gpus = append(r.devices, d), append(r.gpus, g)
	}
	r.access()
	return r.gpus, nil
}

// explain says what to do about a library that does not start.
func explain(ret nvml.Return) error {
	switch ret {
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return fmt.Errorf("%w: no NVIDIA driver: libnvidia-ml.so.1 is not there: install the driver, or start the container with its GPUs", framework.ErrUnavailable)
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return fmt.Errorf("%w: NVIDIA's driver is installed but not loaded: modprobe nvidia, or reboot after an update", framework.ErrUnavailable)
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return fmt.Errorf("%w: NVIDIA's library and kernel module are of different versions: reboot after the update", framework.ErrUnavailable)
	case nvml.ERROR_NO_PERMISSION:
		return fmt.Errorf("%w: no permission to talk to NVIDIA's driver: look at /dev/nvidiactl", framework.ErrUnavailable)
	}
	return failed("start", ret)
}

func failed(what string, ret nvml.Return) error {
	return fmt.Errorf("%w: NVIDIA's management library: %s: %s", framework.ErrUnavailable, what, ret.String())
}

// reader collects what the library says. Questions that a GPU or a driver does not
// know are answered by silence: a GPU without NVLink is a GPU all the same.
type reader struct {
	lib     nvml.Interface
	devices []nvml.Device
	gpus    []topo.GPU
}

// knows reports whether the driver has a function. To call one that it has not
// would end the process.
func (r *reader) knows(symbol string) bool {
	return r.lib.Extensions().LookupSymbol(symbol) == nil
}

func (r *reader) gpu(i int, d nvml.Device) (topo.GPU, error) {
	g := topo.GPU{Device: framework.Device{Type: "cuda", Index: i}, NUMA: -1}
	pci, ret := d.GetPciInfo()
	if ret != nvml.SUCCESS {
		return g, failed(fmt.Sprintf("address of GPU %d", i), ret)
	}
	g.PCI = address(pci)
	if name, ret := d.GetName(); ret == nvml.SUCCESS {
		g.Name = name
	}
	if id, ret := d.GetUUID(); ret == nvml.SUCCESS {
		g.UUID = id
	}
	if major, minor, ret := d.GetCudaComputeCapability(); ret == nvml.SUCCESS {
		g.Arch = fmt.Sprintf("sm_%d%d", major, minor)
	}
	if m, ret := d.GetMemoryInfo(); ret == nvml.SUCCESS {
		g.Bytes = m.Total
	}
	g.CPUs = cpus(d)
	g.Links = r.links(d)
	g.Fabric = r.fabric(d)
	g.MIG = parts(d)
	return g, nil
}

// address writes a PCI address as /sys does: the library has domains of 8 digits.
func address(p nvml.PciInfo) string {
	text := make([]byte, 0, len(p.BusId))
	for _, c := range p.BusId {
		if c == 0 {
			break
		}
		text = append(text, byte(c))
	}
	full := strings.ToLower(string(text))
	domain, rest, ok := strings.Cut(full, ":")
	if !ok {
		return fmt.Sprintf("%04x:%02x:%02x.0", p.Domain, p.Bus, p.Device)
	}
	domain = strings.TrimLeft(domain, "0")
	return strings.Repeat("0", max(0, 4-len(domain))) + domain + ":" + rest
}

// maxCPUs is how many processors are asked for.
const maxCPUs = 1024

func cpus(d nvml.Device) []int {
	mask, ret := d.GetCpuAffinity(maxCPUs)
	if ret != nvml.SUCCESS {
		return nil
	}
	var list []int
	for i, word := range mask {
		for bit := range 64 {
			if word>>bit&1 == 1 {
				list = append(list, 64*i+bit)
			}
		}
	}
	return list
}

// parts lists the parts of a GPU that is partitioned.
func parts(d nvml.Device) *topo.MIG {
	mode, _, ret := d.GetMigMode()
	if ret != nvml.SUCCESS || mode != nvml.DEVICE_MIG_ENABLE {
		return nil
	}
	m := &topo.MIG{}
	most, ret := d.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return m
	}
	for i := range most {
		part, ret := d.GetMigDeviceHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue // numbers may have gaps
		}
		var p topo.Part
		if id, ret := part.GetUUID(); ret == nvml.SUCCESS {
			p.UUID = id
		}
		if name, ret := part.GetName(); ret == nvml.SUCCESS {
			_, p.Name, _ = strings.Cut(name, "MIG ") // "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
		}
		if memory, ret := part.GetMemoryInfo(); ret == nvml.SUCCESS {
			p.Bytes = memory.Total
		}
		m.Parts = append(m.Parts, p)
	}
	return m
}

// access asks for every pair whether one may address the memory of the other.
func (r *reader) access() {
	for i := range r.gpus {
		for j := range r.gpus {
			if i == j {
				continue
			}
			ask := func(what nvml.GpuP2PCapsIndex) string {
				status, ret := r.devices[i].GetP2PStatus(r.devices[j], what)
				if ret != nvml.SUCCESS {
					return ""
				}
				return verdict(status)
			}
			a := topo.Access{Peer: r.gpus[j].PCI, Read: ask(nvml.P2P_CAPS_INDEX_READ),
				Write: ask(nvml.P2P_CAPS_INDEX_WRITE), Atomics: ask(nvml.P2P_CAPS_INDEX_ATOMICS)}
			if !slices.Contains([]string{a.Read, a.Write}, "") {
				r.gpus[i].Access = append(r.gpus[i].Access, a)
			}
		}
	}
}

func verdict(s nvml.GpuP2PStatus) string {
	switch s {
	case nvml.P2P_STATUS_OK:
		return topo.AccessOK
	case nvml.P2P_STATUS_CHIPSET_NOT_SUPPORTED:
		return "chipset not supported"
	case nvml.P2P_STATUS_GPU_NOT_SUPPORTED:
		return "GPU not supported"
	case nvml.P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED:
		return "topology not supported"
	case nvml.P2P_STATUS_DISABLED_BY_REGKEY:
		return "disabled by the driver's settings"
	case nvml.P2P_STATUS_NOT_SUPPORTED:
		return "not supported"
	}
	return "unknown"
}
