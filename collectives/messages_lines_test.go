package collectives

import (
	"fmt"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"testing"
)

// Kernels with lines come first where they can be used, and only there.
func TestOfferedMessages(t *testing.T) {
	for name, x := range map[string]struct {
		host    bool
		noLines bool
		lanes   uint32
		kernels []string
		want    string
	}{
		"GPUs":                  {lanes: 64, kernels: []string{"chunk", "ll128", "few_ll128"}, want: "[ll128 chunk] true"},
		"links that tear lines": {noLines: true, lanes: 64, kernels: []string{"chunk", "ll128", "few_ll128"}, want: "[chunk] false"},
		"no room":               {kernels: []string{"chunk", "ll128", "few_ll128"}, want: "[chunk] false"},
		"hosts":                 {host: true, kernels: []string{"chunk"}, want: "[chunk] false"},
		"nothing":               {lanes: 64, want: "[] false"},
	} {
		c := &Comm{host: x.host, opts: Options{NoLines: x.noLines}, geometry: kernelargs.Geometry{LineLanes: x.lanes}}
		found := map[string]*algorithm{}
		for _, k := range x.kernels {
			found[k] = &algorithm{name: k}
		}
		c.offerMessages(found, 2)
		if got := fmt.Sprint(c.messageNames(), c.few != nil); got != x.want {
			t.Errorf("%s: %s, expected %s", name, got, x.want)
		}
		if c.messagesBy("few_ll128") != nil || len(x.kernels) > 0 && c.messagesBy("chunk").name != "chunk" {
			t.Errorf("%s: named algorithms are not those that are listed", name)
		}
		if c.offerMessages(found, kernelargs.LLRanks+1); c.few != nil {
			t.Errorf("%s: short arguments for more ranks than they have room for", name)
		}
	}
}

// Scratch has room for pipes of lines with more lanes for few ranks than for many, and
// they lie behind everything else.
func TestPipesOfLines(t *testing.T) {
	for _, x := range []struct {
		scratch       uint64
		ranks         int
		lanes, groups uint32
	}{
		{deviceScratch, 2, 64, 8}, {deviceScratch, 4, 64, 4}, {deviceScratch, 8, 64, 2}, {deviceScratch, 16, 64, 1}, {deviceScratch, 72, 16, 1},
	} {
		g, err := kernelargs.Divide(x.scratch, x.ranks, deviceLanes, true)
		if err != nil {
			t.Fatal(err)
		}
		if g.LineLanes != x.lanes || g.LineGroups != x.groups {
			t.Errorf("%d ranks: %d lanes of %d groups, expected %d of %d", x.ranks, g.LineLanes, g.LineGroups, x.lanes, x.groups)
		}
		need := uint64(g.LineLanes) * uint64(x.ranks) * kernelargs.LineSlots * uint64(g.LineGroups) * kernelargs.LineGroupBytes
		pipes := uint64(g.Lanes) * uint64(x.ranks) * kernelargs.PipeSlots * g.PipeSlot
		if g.LinePipes < g.Pipes+pipes || g.LinePipes%kernelargs.DeviceLine != 0 || g.LinePipes+need > g.Total || g.Total > x.scratch {
			t.Errorf("%d ranks: pipes of lines at %d, %d bytes: %+v", x.ranks, g.LinePipes, need, g)
		}
	}
	if g, err := kernelargs.Divide(32<<20, 2, 1, false); err != nil || g.LinePipes != 0 || g.LineLanes != 0 {
		t.Errorf("on the host: %+v, %v: expected none", g, err)
	}
}
