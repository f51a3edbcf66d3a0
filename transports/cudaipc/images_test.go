package cudaipc

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/actor"
	deviceimage "github.com/mscclpp-go/mscclpp/framework/kernel/image"
	"github.com/mscclpp-go/mscclpp/framework/kernel/kernellist"
)

// Every kernel that is claimed is in every image in which it is looked for.
func TestClaimsMatchImages(t *testing.T) {
	tr := open(t)
	d := must[framework.Description](t)(tr.Describe(bound(t)))
	entry := regexp.MustCompile(`(?m)^\.visible \.entry (\w+)\(`)
	for _, info := range d.Images {
		if !slices.Contains(nvidia.Archs, info.Arch) || info.ABI != kernel.ABI || info.SHA256 == "" {
			t.Errorf("%+v: want an image of %v with a checksum", info, nvidia.Archs)
		}
		data := must[[]byte](t)(tr.Image(bound(t), info.ID))
		if uint64(len(data)) != info.Bytes || !strings.Contains(string(data), ".target "+info.Arch+"\n") {
			t.Errorf("%s: %d bytes: want %d of PTX for %s", info.ID, len(data), info.Bytes, info.Arch)
		}
		var have []string
		for _, m := range entry.FindAllSubmatch(data, -1) {
			have = append(have, string(m[1]))
		}
		for _, k := range d.Kernels {
			if k.Family == info.Family && (info.Type == "" || slices.Contains(k.Types, info.Type)) && !slices.Contains(have, k.Symbol) {
				t.Errorf("%s lacks %s", info.ID, k.Symbol)
			}
		}
	}
}

// The list has what a job cannot do without, and nothing over channels that the
// transport has not.
func TestKernels(t *testing.T) {
	d := must[framework.Description](t)(open(t).Describe(bound(t)))
	byName := map[string]framework.KernelInfo{}
	for _, k := range d.Kernels {
		byName[k.Collective+"/"+k.Algorithm] = k
		for _, c := range k.Channels {
			if !d.Has(c) {
				t.Errorf("%s uses channels of %v, which are not offered", k.Symbol, c)
			}
		}
	}
	text := source(t, "collectives/image/kernels.json")
	var spec deviceimage.Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		t.Fatal(err)
	}
	threads := map[string]int{}
	for _, f := range spec.Families {
		threads[f.Name] = f.MaxThreads
	}
	for _, name := range []string{
		"allreduce/allpair_ll8", "allreduce/twophase_chunk", "allreduce/zerocopy", "reducescatter/ll8", "reduce/chunk",
		"allgather/ll8", "allgather/push", "alltoall/ll8", "broadcast/chunk", "transfers/chunk", "barrier/signal",
	} {
		k, ok := byName[name]
		if !ok {
			t.Errorf("%s is not offered", name)
			continue
		}
		if k.MaxThreads != threads[k.Family] || k.MaxRanks != kernellist.MaxRanks || (len(k.Ops) > 0) != strings.Contains(k.Collective, "reduce") {
			t.Errorf("%+v: want blocks of up to %d", k, threads[k.Family])
		}
		if !slices.Contains(k.Types, "f16") {
			t.Errorf("%s: types %v", name, k.Types)
		}
	}
	if k := byName["/"]; k.Symbol != actor.Symbol || k.Family != kernellist.Actor {
		t.Errorf("the actor is %+v", k)
	}
	if _, ok := byName["allreduce/switch"]; ok {
		t.Error("an algorithm over switches is offered")
	}
}

func TestImageRefuses(t *testing.T) {
	tr := open(t)
	for _, id := range []string{"", "no-such-image", "../move-sm_90", "move-gfx942"} {
		if _, err := tr.Image(bound(t), id); !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%q: %v: want ErrInvalid", id, err)
		}
	}
}
