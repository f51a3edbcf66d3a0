package collectives

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives/image"
	"github.com/mscclpp-go/mscclpp/framework/device"
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
			if algorithm == "switch" {
				continue // no transport offers it
			}
			kernels = append(kernels, collective, algorithm)
			family[collective+" "+algorithm] = info.Family
		}
	}
	return kernels, family
}

var ofTables = []Collective{AllReduce, AllGather, ReduceScatter, Broadcast, Reduce, AllToAll, Barrier}

// Whatever a call chooses was loaded by the first call of its collective.
func TestOneCallLoadsForAllSizes(t *testing.T) {
	own := []Row{{Collective: AllReduce, MaxBytes: 12_345_678, Algorithm: "ring"}, {Collective: AllGather, MaxBytes: 3, Algorithm: "chunk"}}
	for _, dtype := range []kernel.DataType{kernel.Float16, kernel.Float8E5M2} {
		kernels, _ := imagesOf(t, dtype)
		for _, n := range []int{2, 3, 4, 8, 12} {
			for _, o := range []Options{{}, {NoLines: true}, {Table: own}} {
				c := onGPU(t, n, o, kernels...)
				if o.NoLines {
					c.withdrawLines()
				}
				for _, k := range ofTables {
					loaded := c.chosen(k, dtype)
					seeds := rand.New(rand.NewPCG(1, uint64(n)))
					for range 300 {
						r := Request{Collective: k, Bytes: seeds.Uint64N(1 << (1 + seeds.UintN(34))), Type: dtype, Ranks: n, Device: "device",
							InPlace: seeds.IntN(2) == 0, slot: c.near[0].Slot, lineSlot: c.near[1].Slot}
						if r.Registered = seeds.IntN(2) == 0; r.Registered {
							r.reached = reachInputs | reachOutputs
						}
						r.Count = r.Bytes / uint64(dtype.Size())
						if k.Wide() {
							r.Count /= uint64(n)
						}
						if a, _, err := c.find(&r, ""); err != nil || !slices.Contains(loaded, a) {
							t.Fatalf("%d ranks, %+v: %v, %v: expected one of %s, which are loaded", n, r, a, err, names(loaded))
						}
					}
				}
			}
		}
	}
}

// A job of up to eight GPUs that calls one collective loads one image. Types of which
// there are few kernels need two for all-reduce.
func TestOneCollectiveIsOneImage(t *testing.T) {
	kernels, family := imagesOf(t, kernel.BFloat16)
	for n := 2; n <= 8; n++ {
		c := onGPU(t, n, Options{}, kernels...)
		for _, k := range ofTables {
			found := map[string]bool{}
			for _, a := range c.chosen(k, kernel.BFloat16) {
				found[family[fmt.Sprint(k, " ", a.name)]] = true
			}
			if len(found) != 1 || found[""] {
				t.Errorf("%v of %d ranks: images of %v, expected one family", k, n, found)
			}
		}
	}
}

// The program's selector is not asked about calls that nobody makes, and stays.
func TestSelectorIsLeftAlone(t *testing.T) {
	kernels, _ := imagesOf(t, kernel.Float32)
	c := onGPU(t, 2, Options{}, kernels...)
	c.selector = func(r *Request) string { t.Errorf("asked about %+v", r); return "" }
	if all := c.chosen(AllReduce, kernel.Float32); len(all) < 3 || c.selector == nil {
		t.Errorf("%s chosen, selector kept: %v", names(all), c.selector != nil)
	}
}

// Kernels of bytes are loaded for all types at once.
func TestBytesHaveNoType(t *testing.T) {
	one := &algorithm{collective: AllGather}
	one.loaded[kernel.Float64] = stubKernel{}
	if err := (&Comm{}).loadAll(t.Context(), []*algorithm{one}, kernel.Float64); err != nil {
		t.Errorf("%v: expected nothing to be loaded twice", err)
	}
	for _, a := range []*algorithm{{collective: AllGather}, {collective: AllReduce}, {collective: SendRecv}} {
		a.keep(kernel.Uint8, stubKernel{})
		for i, k := range a.loaded {
			if has, want := k != nil, !a.collective.Reduces() || kernel.DataType(i) == kernel.Uint8; has != want {
				t.Errorf("%v of %v: loaded %v, expected %v", a.collective, kernel.DataType(i), has, want)
			}
		}
	}
}

type stubKernel struct{ device.Kernel }
