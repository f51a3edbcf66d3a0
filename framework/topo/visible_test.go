package topo

import (
	"reflect"
	"testing"
)

func TestVisible(t *testing.T) {
	gpus := []GPU{{UUID: "GPU-aa11"}, {UUID: "GPU-aa22"}, {UUID: "GPU-bb33", MIG: &MIG{Parts: []Part{{UUID: "MIG-cc44"}, {UUID: "MIG-cc55"}}}}}
	for i := range gpus {
		gpus[i].Device = cuda(i)
	}
	for list, want := range map[string][]int{
		"0,1,2": {0, 1, 2}, "2,0": {2, 0}, "1": {1}, "": {}, "-1": {}, "0,7,1": {0}, "0,-1,1": {0}, " 1 , 0 ": {1, 0},
		"GPU-bb33,0": {2, 0}, "GPU-bb": {2}, "GPU-aa": {}, "MIG-cc44": {2}, "nonsense": {},
		"0,0": {}, "1,0,GPU-aa22": {}, "MIG-cc44,MIG-cc55": {2},
	} {
		got := []int{}
		for _, g := range Visible(gpus, func(string) (string, bool) { return list, true }) {
			got = append(got, g.Device.Index)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("CUDA_VISIBLE_DEVICES=%q shows %v, want %v", list, got, want)
		}
	}
	if got := Visible(gpus, func(string) (string, bool) { return "", false }); len(got) != 3 {
		t.Errorf("without the variable %d GPUs are seen, want all", len(got))
	}
}
