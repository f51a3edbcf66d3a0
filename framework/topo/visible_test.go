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
		"GPU-b,0": {2, 0}, "1,GPU-": {1}, "G": {}, "GPU": {}, "bb33": {}, "0,GPU-aa,1": {0}, "MIG-cc4,1": {2, 1}, // the short form of a UUID begins like one
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

// The launcher counts GPUs in the same way, and needs to know where the list ended.
func TestListed(t *testing.T) {
	ids := [][]string{{"GPU-aa11"}, {"GPU-aa22"}, {"GPU-bb33", "MIG-cc44"}}
	for list, want := range map[string]struct {
		places []int
		end    string
	}{
		"2,GPU-aa1": {[]int{2, 0}, ""}, "0,-1,1": {[]int{0}, "-1"}, "": {nil, ""}, "1,GPU-aa,0": {[]int{1}, "GPU-aa"}, "0, MIG-dd": {[]int{0}, "MIG-dd"}, "1,1": {[]int{1, 1}, ""},
	} {
		if places, end := Listed(list, ids); !reflect.DeepEqual(places, want.places) || end != want.end {
			t.Errorf("%q: %v, ended by %q: expected %+v", list, places, end, want)
		}
	}
}
