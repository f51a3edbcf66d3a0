package gpulink

import (
	"slices"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// A kernel that some architecture lacks for a type is not offered for it.
func TestListOfKernels(t *testing.T) {
	img := func(arch, family, typ string, threads int, symbols ...string) image {
		return image{framework.ImageInfo{Arch: arch, Family: family, Type: typ}, symbols, threads}
	}
	got := list(&maker, []image{
		img("sm_90", "reduce", "f32", 512, "mscclpp_allreduce_new_one", "mscclpp_allreduce_ring", "mscclpp_allreduce_switch", "other"),
		img("sm_80", "reduce", "f32", 256, "mscclpp_allreduce_ring", "mscclpp_allreduce_switch", "mscclpp_x"),
		img("sm_90", "reduce", "f16", 512, "mscclpp_allreduce_new_one", "mscclpp_allreduce_ring"),
		img("sm_80", "reduce", "f16", 256, "mscclpp_allreduce_new_one"),
		img("sm_90", "move", "", 0, "mscclpp_allgather_a", "mscclpp_allgather_b"),
		img("sm_80", "move", "", 0, "mscclpp_allgather_a"),
	})
	types := map[string][]string{}
	for _, k := range got {
		types[k.Collective+"/"+k.Algorithm] = k.Types
		if want := map[string]int{"reduce": 256}[k.Family]; k.MaxThreads != want {
			t.Errorf("%s: blocks of %d, want %d", k.Symbol, k.MaxThreads, want)
		}
	}
	if len(got) != 3 || !slices.Equal(types["allreduce/new_one"], []string{"f16"}) || !slices.Equal(types["allreduce/ring"], []string{"f32"}) ||
		len(types["allgather/a"]) != int(kernel.DataTypes) {
		t.Errorf("%v", types)
	}
}
