package actor_test

import (
	"slices"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/actor"
)

func TestImagesForEveryGPUAndType(t *testing.T) {
	set, err := actor.Images()
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]int{}
	for _, info := range set.Infos() {
		if _, err := set.Read(info.ID); err != nil {
			t.Error(err)
		}
		want := actor.Symbol
		if info.Type != "" {
			want = actor.ReduceSymbol
			types[info.Arch]++
		}
		if !slices.Contains(set.Symbols(info.ID), want) {
			t.Errorf("%s: symbols %q, expected %s", info.ID, set.Symbols(info.ID), want)
		}
	}
	for _, arch := range []string{"sm_80", "sm_90", "gfx90a", "gfx942"} {
		if types[arch] != kernel.DataTypes {
			t.Errorf("%s: reductions for %d types, expected %d", arch, types[arch], kernel.DataTypes)
		}
	}
}
