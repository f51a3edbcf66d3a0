package intra

import (
	"fmt"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives/image"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// imagesOf lists the kernels in the images for sm_90 and a type, as onGPU takes them, and
// the family of each.
func imagesOf(t *testing.T, dtype kernel.DataType) (kernels []string, family map[string]string) {
	t.Helper()
	set, err := image.Images()
	if err != nil {
		t.Fatal(err)
	}
	family = map[string]string{}
	for _, info := range set.Infos() {
		if info.Arch != "sm_90" || info.Type != "" && info.Type != dtype.String() {
			continue
		}
		for _, symbol := range set.Symbols(info.ID) {
			name, _ := strings.CutPrefix(symbol, "mscclpp_")
			collective, algorithm, _ := strings.Cut(name, "_")
			if strings.HasPrefix(algorithm, "switch") {
				continue // the transport with memory channels does not offer them
			}
			kernels = append(kernels, collective, algorithm)
			family[collective+" "+algorithm] = info.Family
		}
	}
	return kernels, family
}

var ofTables = []collective.Kind{collective.AllReduce, collective.AllGather, collective.ReduceScatter, collective.Broadcast, collective.Reduce, collective.AllToAll, collective.Barrier}

// The first call of a collective loads the kernels of every algorithm that a call can choose.
func TestOneCallLoadsForAllSizes(t *testing.T) {
	own := []engine.Row{{Collective: collective.AllReduce, MaxBytes: 12_345_678, Algorithm: "ring"}, {Collective: collective.AllGather, MaxBytes: 3, Algorithm: "chunk"}}
	for _, dtype := range []kernel.DataType{kernel.Float16, kernel.Float8E5M2} {
		kernels, _ := imagesOf(t, dtype)
		for _, n := range []int{2, 3, 4, 8, 12} {
			for _, x := range []struct {
				o    Options
				rows []engine.Row
			}{{}, {o: Options{NoLines: true}}, {rows: own}} {
				c := onGPU(t, n, x.o, x.rows, kernels...)
				for _, k := range ofTables {
					loaded := c.chosen(k, dtype)
					seeds := rand.New(rand.NewPCG(1, uint64(n)))
					for range 300 {
						r := engine.Query{Request: engine.Request{Collective: k, Bytes: seeds.Uint64N(1 << (1 + seeds.UintN(34))), Type: dtype, Ranks: n, Device: "device",
							InPlace: seeds.IntN(2) == 0}}
						if r.Registered = seeds.IntN(2) == 0; r.Registered {
							r.Reached = engine.ReachInputs | engine.ReachOutputs
						}
						r.Count = r.Bytes / uint64(dtype.Size())
						if k.Wide() {
							r.Count /= uint64(n)
						}
						if a, _, err := c.find(&r, ""); err != nil || !slices.Contains(loaded, a) {
							t.Fatalf("%d ranks, %+v: %v, %v: expected one of %s, which are loaded", n, r, a, err, named(loaded))
						}
					}
				}
			}
		}
	}
}

// A job of up to eight GPUs that calls one collective loads one image, and where tables choose packets without a flag theirs,
// which is a third as large. Types of which there are few kernels need two for all-reduce.
func TestOneCollectiveIsOneImage(t *testing.T) {
	kernels, family := imagesOf(t, kernel.BFloat16)
	for n := 2; n <= 8; n++ {
		c := onGPU(t, n, Options{}, nil, kernels...)
		for _, k := range ofTables {
			found := map[string]bool{}
			for _, a := range c.chosen(k, kernel.BFloat16) {
				found[family[fmt.Sprint(k, " ", a.Name)]] = true
			}
			delete(found, "lamport")
			if len(found) != 1 || found[""] {
				t.Errorf("%v of %d ranks: images of %v, expected one family", k, n, found)
			}
		}
	}
}

func named(list []*algorithm) (names []string) {
	for _, a := range list {
		names = append(names, a.Name)
	}
	return names
}
