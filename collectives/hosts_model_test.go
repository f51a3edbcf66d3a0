package collectives_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/simulate"
)

// Where kernels exchange, one algorithm serves all sizes. The model has two of it, which
// change with the number of steps.
func TestSharesOfKernelsAreTheModels(t *testing.T) {
	const ranks = 8
	on, err := simulate.NewCluster(4, ranks)
	if err != nil {
		t.Fatal(err)
	}
	for bytes, want := range map[int64]simulate.Algorithm{ranks*collectives.TwoSteps - 1: simulate.Small, ranks * collectives.TwoSteps: simulate.LargeDirect} {
		if got, err := (simulate.Program{Direct: true}).Chooses(simulate.AllReduce, on, bytes); err != nil || got != want {
			t.Errorf("%d bytes: the model has %s, %v: expected %s", bytes, got, err, want)
		}
	}
}

// The choice of `mscclpp-run simulate --algorithm program` for these collectives over hosts is
// their own choice: on both sides of each size at which it changes, with much scratch and with so
// little that slots are what counts.
func TestChoiceIsTheModels(t *testing.T) {
	models := map[string]simulate.Algorithm{
		"hierarchical_packets": simulate.SmallWhole, "hierarchical_small": simulate.SmallWhole, "hierarchical_large": simulate.LargeDirect, "ports": simulate.FlatDirect,
	}
	bundles := map[string]simulate.Algorithm{"hierarchical_small": simulate.Small, "hierarchical_large": simulate.FlatDirect, "ports": simulate.FlatDirect}
	for layout, pattern := range map[string][]int{"ab": {1}, "aabb": {2}, "aabbcc": {2}, "abbb": {1, 3}} {
		for _, scratch := range []uint64{collectives.HostScratch, 512 << 10} {
			t.Run(fmt.Sprint(layout, " ", scratch), func(t *testing.T) {
				at := strings.Split(layout, "")
				on, err := simulate.NewCluster(int(at[len(at)-1][0]-'a')+1, pattern...)
				if err != nil {
					t.Fatal(err)
				}
				program := simulate.Program{Scratch: int64(scratch)}
				hosts(t, at, true, collectives.Options{Scratch: scratch}, func(_ context.Context, c *collectives.Comm) error {
					if err := c.Barrier(nil); err != nil { // which finds out what serves calls
						return err
					}
					for kind, modeled := range map[collectives.Collective]simulate.Collective{
						collectives.AllReduce: simulate.AllReduce, collectives.AllGather: simulate.AllGather, collectives.ReduceScatter: simulate.ReduceScatter,
						collectives.Broadcast: simulate.Broadcast, collectives.AllToAll: simulate.AllToAll,
					} {
						sizes := []int64{4, 1 << 30}
						for bytes := int64(1 << 10); bytes <= 1<<20; bytes *= 2 {
							for _, parts := range []int64{1, 3} { // hosts of three have parts for a rank that end beside powers of two
								sizes = append(sizes, bytes*int64(len(at))/parts/4*4, bytes*int64(len(at))/parts/4*4+4, bytes, bytes+4)
							}
						}
						changes := map[simulate.Algorithm]bool{}
						for _, bytes := range sizes {
							got, err := c.Choice(collectives.Request{Collective: kind, Bytes: uint64(bytes), Count: uint64(bytes) / 4, Type: kernel.Float32}, "")
							if err != nil {
								return err
							}
							want, err := program.Chooses(modeled, on, bytes)
							if err != nil {
								return err
							}
							model, known := models[got]
							switch {
							case kind == collectives.AllToAll:
								model, known = bundles[got]
							case kind == collectives.Broadcast && got == "ports": // each rank a host
								model = simulate.LargeDirect
							}
							if !known || model != want {
								return fmt.Errorf("%v of %d bytes goes by %s: the model has %s", kind, bytes, got, want)
							}
							changes[want] = true
						}
						if layout != "ab" && len(changes) != 2 {
							return fmt.Errorf("%v: the model has %v: expected a small and a large one", kind, changes)
						}
					}
					return nil
				})
			})
		}
	}
}
