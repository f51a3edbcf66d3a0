package nvml

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/topo"
)

// old is a driver without the newest functions: those whose answers cannot be faked.
func old(gpus ...*gpu) *library {
	return &library{gpus: gpus, missing: map[string]bool{"nvmlDeviceGetGpuFabricInfoV": true}}
}

func h200(n int) *gpu {
	g := &gpu{n: n, name: "NVIDIA H200", major: 9, bytes: 143771 << 20, busID: fmt.Sprintf("00000000:%02X:00.0", 0x19+n),
		affine: []uint{0xffff, 1 << 63}, version: uint32(nvml.NVLINK_VERSION_4_0), fabric: &nvml.GpuFabricInfo{State: nvml.GPU_FABRIC_STATE_COMPLETED}}
	for range 18 {
		g.links = append(g.links, far{kind: nvml.NVLINK_DEVICE_TYPE_SWITCH, busID: "00000000:05:00.0"})
	}
	return g
}

func TestSwitchedMachine(t *testing.T) {
	lib := old(h200(0), h200(1), h200(2))
	gpus, err := find(lib)
	if err != nil {
		t.Fatal(err)
	}
	if lib.open != 0 {
		t.Errorf("the library was left open %d times", lib.open)
	}
	if len(gpus) != 3 {
		t.Fatalf("%d GPUs, want 3", len(gpus))
	}
	want := topo.GPU{
		Device: framework.Device{Type: "cuda", Index: 1}, Name: "NVIDIA H200", UUID: "GPU-000000a1-0000-0000-0000-000000000000",
		Arch: "sm_90", Bytes: 143771 << 20, NUMA: -1, PCI: "0000:1a:00.0",
		CPUs:  []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 127},
		Links: []topo.Link{{Peer: topo.Switch, Count: 18, Version: 4}},
		Access: []topo.Access{
			{Peer: "0000:19:00.0", Read: "ok", Write: "ok", Atomics: "ok"},
			{Peer: "0000:1b:00.0", Read: "ok", Write: "ok", Atomics: "ok"},
		},
		Fabric: &topo.Fabric{State: "completed"},
	}
	if !reflect.DeepEqual(gpus[1], want) {
		t.Errorf("got\n%+v\nwant\n%+v", gpus[1], want)
	}
	if n, through := gpus[0].NVLinks(gpus[2]); n != 18 || through != topo.Switch {
		t.Errorf("%d links through %q, want 18 through a switch", n, through)
	}
}

// Links that are off are not counted, and those to each GPU apart.
func TestDirectLinks(t *testing.T) {
	a := &gpu{busID: "00000000:01:00.0", major: 8, links: []far{
		{busID: "00000000:41:00.0"}, {busID: "00000000:81:00.0"}, {busID: "00000000:41:00.0"}, {busID: "00000000:41:00.0", off: true},
		{kind: nvml.NVLINK_DEVICE_TYPE_IBMNPU},
	}, version: uint32(nvml.NVLINK_VERSION_3_1)}
	for name, missing := range map[string]map[string]bool{
		"all functions": {"nvmlDeviceGetGpuFabricInfoV": true},
		"old driver":    {"nvmlDeviceGetGpuFabricInfoV": true, "nvmlDeviceGetGpuFabricInfo": true, "nvmlDeviceGetNvLinkRemoteDeviceType": true},
	} {
		gpus, err := find(&library{gpus: []*gpu{a}, missing: missing})
		if err != nil {
			t.Fatal(err)
		}
		got := gpus[0].Links
		if len(got) != 3 || got[0] != (topo.Link{Peer: "0000:41:00.0", Count: 2, Version: 3}) || got[1].Count != 1 {
			t.Errorf("%s: %+v", name, got)
		}
		if name == "all functions" && got[2].Peer != topo.CPU {
			t.Errorf("the link to the processor leads to %q", got[2].Peer)
		}
		if gpus[0].Fabric != nil {
			t.Errorf("%s: a GPU without fabric is in %+v", name, gpus[0].Fabric)
		}
	}
}

func TestNoPeerAccess(t *testing.T) {
	for status, want := range map[nvml.GpuP2PStatus]string{
		nvml.P2P_STATUS_CHIPSET_NOT_SUPPORTED:      "chipset not supported",
		nvml.P2P_STATUS_GPU_NOT_SUPPORTED:          "GPU not supported",
		nvml.P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED: "topology not supported",
		nvml.P2P_STATUS_DISABLED_BY_REGKEY:         "disabled by the driver's settings",
		nvml.P2P_STATUS_NOT_SUPPORTED:              "not supported",
		nvml.P2P_STATUS_UNKNOWN:                    "unknown",
	} {
		a := &gpu{busID: "00000000:01:00.0", p2p: status}
		b := &gpu{busID: "00000000:02:00.0", atomics: nvml.P2P_STATUS_NOT_SUPPORTED}
		gpus, err := find(old(a, b))
		if err != nil {
			t.Fatal(err)
		}
		if access, known := gpus[0].AccessTo(gpus[1]); !known || access.Granted() || access.Why() != want {
			t.Errorf("status %d: %+v, want %q", status, access, want)
		}
		if access, _ := gpus[1].AccessTo(gpus[0]); !access.Granted() || access.Atomics != "not supported" {
			t.Errorf("the other way: %+v, want access without atomics", access)
		}
	}
}

func TestParts(t *testing.T) {
	whole := &gpu{busID: "00000000:01:00.0", mig: []*gpu{
		{n: 1, name: "NVIDIA A100-SXM4-40GB MIG 3g.20gb", bytes: 20 << 30}, nil, {n: 2, name: "NVIDIA A100-SXM4-40GB MIG 1g.5gb", bytes: 5 << 30},
	}}
	gpus, err := find(old(whole))
	if err != nil {
		t.Fatal(err)
	}
	m := gpus[0].MIG
	if m == nil || len(m.Parts) != 2 || m.Parts[0].Name != "3g.20gb" || m.Parts[1].Bytes != 5<<30 || m.Parts[1].UUID == "" {
		t.Errorf("parts %+v", m)
	}
}

func TestFabric(t *testing.T) {
	cluster := [16]uint8{0xab, 15: 1}
	for _, c := range []struct {
		info nvml.GpuFabricInfo
		want *topo.Fabric
	}{
		{nvml.GpuFabricInfo{}, nil},
		{nvml.GpuFabricInfo{State: 77}, nil},
		{nvml.GpuFabricInfo{State: nvml.GPU_FABRIC_STATE_IN_PROGRESS}, &topo.Fabric{State: "in progress"}},
		{nvml.GpuFabricInfo{State: nvml.GPU_FABRIC_STATE_COMPLETED, CliqueId: 3, ClusterUuid: cluster},
			&topo.Fabric{State: "completed", Clique: 3, Cluster: "ab000000000000000000000000000001"}},
	} {
		if got := fabricOf(c.info); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v is %+v, want %+v", c.info, got, c.want)
		}
	}
	failed := fabricOf(nvml.GpuFabricInfo{State: nvml.GPU_FABRIC_STATE_COMPLETED, Status: uint32(nvml.ERROR_UNKNOWN)})
	if !strings.HasPrefix(failed.State, "failed: ") {
		t.Errorf("a fabric that failed is %q", failed.State)
	}
}

// Every way in which the library can be of no use says what to do.
func TestUnavailable(t *testing.T) {
	for ret, want := range map[nvml.Return]string{
		nvml.ERROR_LIBRARY_NOT_FOUND:       "install the driver",
		nvml.ERROR_DRIVER_NOT_LOADED:       "modprobe nvidia",
		nvml.ERROR_LIB_RM_VERSION_MISMATCH: "reboot",
		nvml.ERROR_NO_PERMISSION:           "/dev/nvidiactl",
		nvml.ERROR_UNKNOWN:                 "start",
	} {
		lib := &library{init: ret}
		if _, err := find(lib); !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v: want ErrUnavailable that says %q", ret, err, want)
		}
		if lib.open != 0 {
			t.Errorf("%d: left open", ret)
		}
	}
	lib := old(h200(0), &gpu{lost: true})
	if _, err := find(lib); !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "GPU 1 of 2") || lib.open != 0 {
		t.Errorf("a lost GPU: %v, want ErrUnavailable that names it", err)
	}
}

// On a machine without driver the real library says so; with one it finds GPUs.
func TestThisMachine(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	gpus, err := Within(ctx)
	if err != nil {
		if !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "driver") && !strings.Contains(err.Error(), "NVIDIA") {
			t.Errorf("%v: want ErrUnavailable that speaks of the driver", err)
		}
		return
	}
	for _, g := range gpus {
		if g.Name == "" || g.UUID == "" || g.PCI == "" || g.Arch == "" || len(g.Access) != len(gpus)-1 {
			t.Errorf("%+v: something is unknown", g)
		}
	}
}

func TestWithinBounds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	never := make(chan struct{})
	defer close(never)
	asked := make(chan struct{})
	go func() { <-asked; cancel() }()
	_, err := within(ctx, func() ([]topo.GPU, error) { close(asked); <-never; return nil, nil })
	if !errors.Is(err, framework.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("a driver that hangs: %v, want ErrUnavailable and why", err)
	}
}

func TestAddress(t *testing.T) {
	for text, want := range map[string]string{
		"00000000:19:00.0": "0000:19:00.0", "00010000:E1:00.1": "10000:e1:00.1", "0000001A:00:1B.0": "001a:00:1b.0",
	} {
		if got := address(busID(text)); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
	if got := address(nvml.PciInfo{Domain: 1, Bus: 0x19}); got != "0001:19:00.0" {
		t.Errorf("an address without text is %s", got)
	}
}
