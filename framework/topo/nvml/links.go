package nvml

import (
	"encoding/hex"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/mscclpp-go/mscclpp/framework/topo"
)

// generations says which NVLink is meant by what the library numbers one after the other: H200s
// have version 4, and say 6. 0 is for those that this does not know.
var generations = map[nvml.NvlinkVersion]int{
	nvml.NVLINK_VERSION_1_0: 1,
	nvml.NVLINK_VERSION_2_0: 2, nvml.NVLINK_VERSION_2_2: 2,
	nvml.NVLINK_VERSION_3_0: 3, nvml.NVLINK_VERSION_3_1: 3,
	nvml.NVLINK_VERSION_4_0: 4,
	nvml.NVLINK_VERSION_5_0: 5,
	nvml.NVLINK_VERSION_6_0: 6,
}

// links counts the NVLinks of a GPU by where they lead.
func (r *reader) links(d nvml.Device) []topo.Link {
	var bundles []topo.Link
	for i := range nvml.NVLINK_MAX_LINKS {
		state, ret := d.GetNvLinkState(i)
		if ret != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
			continue
		}
		peer := r.farEnd(d, i)
		if peer == "" {
			continue
		}
		at := -1
		for k := range bundles {
			if bundles[k].Peer == peer {
				at = k
			}
		}
		if at < 0 {
			at = len(bundles)
			bundles = append(bundles, topo.Link{Peer: peer})
		}
		bundles[at].Count++
		if v, ret := d.GetNvLinkVersion(i); ret == nvml.SUCCESS {
			bundles[at].Version = generations[nvml.NvlinkVersion(v)]
		}
	}
	return bundles
}

// farEnd says where a link leads: a switch, a processor, or a GPU by its address.
func (r *reader) farEnd(d nvml.Device, link int) string {
	if r.knows("nvmlDeviceGetNvLinkRemoteDeviceType") {
		switch kind, ret := d.GetNvLinkRemoteDeviceType(link); {
		case ret != nvml.SUCCESS:
		case kind == nvml.NVLINK_DEVICE_TYPE_SWITCH:
			return topo.Switch
		case kind == nvml.NVLINK_DEVICE_TYPE_IBMNPU:
			return topo.CPU
		}
	}
	pci, ret := d.GetNvLinkRemotePciInfo(link)
	if ret != nvml.SUCCESS {
		return ""
	}
	return address(pci)
}

var fabricStates = map[uint8]string{
	nvml.GPU_FABRIC_STATE_NOT_STARTED: "not started",
	nvml.GPU_FABRIC_STATE_IN_PROGRESS: "in progress",
	nvml.GPU_FABRIC_STATE_COMPLETED:   "completed",
}

// fabric tells which switched network a GPU has joined. That of one host has no
// cluster: its identity is zero.
func (r *reader) fabric(d nvml.Device) *topo.Fabric {
	var info nvml.GpuFabricInfo
	switch {
	case r.knows("nvmlDeviceGetGpuFabricInfoV"):
		v, ret := d.GetGpuFabricInfoV().V2()
		if ret != nvml.SUCCESS {
			return nil
		}
		info = nvml.GpuFabricInfo{ClusterUuid: v.ClusterUuid, Status: v.Status, CliqueId: v.CliqueId, State: v.State}
	case r.knows("nvmlDeviceGetGpuFabricInfo"):
		var ret nvml.Return
		if info, ret = d.GetGpuFabricInfo(); ret != nvml.SUCCESS {
			return nil
		}
	}
	return fabricOf(info)
}

func fabricOf(info nvml.GpuFabricInfo) *topo.Fabric {
	state, ok := fabricStates[info.State]
	if !ok {
		return nil
	}
	if info.State == nvml.GPU_FABRIC_STATE_COMPLETED && nvml.Return(info.Status) != nvml.SUCCESS {
		state = "failed: " + nvml.Return(info.Status).String()
	}
	f := &topo.Fabric{State: state, Clique: info.CliqueId}
	if info.ClusterUuid != [16]uint8{} {
		f.Cluster = hex.EncodeToString(info.ClusterUuid[:])
	}
	return f
}
