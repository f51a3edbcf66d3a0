package intra

import (
	"math"
	"slices"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/choose/model"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// The bounds that tests hold the model to. It has one launch of each kernel in mind, and the
// machines were not always the same: single calls are off by up to a third.
const (
	farthest  = 1.4  // times what was measured, or as much below
	onAverage = 1.15 // for each algorithm
	worse     = 1.15 // times the fastest that was measured: what the model chooses
	unknown   = 43   // chosen algorithms without a measurement at that size; a dozen of them are copies in pieces on four GPUs
)

// overH200s are the links of the machines that were measured.
func overH200s(ranks int) model.Links {
	return model.OverNVLink(18, 4, ranks-1, true, model.MemoryOf("NVIDIA H200"))
}

func TestModelPredictsWhatWasMeasured(t *testing.T) {
	sum, n, all := map[string]float64{}, map[string]float64{}, 0
	for _, s := range measured(t) {
		us, known := s.modeled()
		if !known {
			t.Errorf("%v: the model does not know it", s)
			continue
		}
		off := us / s.now()
		if off > farthest || off < 1/farthest {
			t.Errorf("%v: %.2f µs were measured, the model says %.2f: expected at most %.2f times that, or less", s, s.now(), us, farthest)
		}
		sum[s.Algorithm] += math.Log(off)
		n[s.Algorithm]++
		all++
	}
	if all < 300 {
		t.Errorf("%d times were measured: expected the files to hold 300", all)
	}
	for algorithm, logs := range sum {
		if off := math.Exp(logs / n[algorithm]); off > onAverage || off < 1/onAverage {
			t.Errorf("%s: the model says %.2f times what was measured, over %.0f calls: expected %.2f at most: fit its constants again", algorithm, off, n[algorithm], onAverage)
		}
	}
}

// everyKernel are all of the images for one type.
func everyKernel(t *testing.T) []string {
	t.Helper()
	kernels, _ := imagesOf(t, 1)
	return kernels
}

// modeledOn are ranks on GPUs that go by the model, with copies.
func modeledOn(t *testing.T, l model.Links, ranks int) *gpu {
	t.Helper()
	return modeledBy(t, l, ranks, everyKernel(t))
}

func modeledBy(t *testing.T, l model.Links, ranks int, kernels []string) *gpu {
	t.Helper()
	var copies []*algorithm
	if ranks <= kernelargs.LLRanks {
		copies = modeledCopies(ranks)
	}
	o := Options{CopyScratch: 1 << 30, NoLines: !l.Lines, Route: choose.Route{Links: l}}
	return onGPUWith(t, ranks, o, nil, copies, kernels...)
}

// modeledCopies are the algorithms of copy engines, as copiers offer them on a GPU.
func modeledCopies(ranks int) []*algorithm {
	type steps struct {
		device.Engine
		device.Marker
	}
	of := &engine.Kernel{}
	k := &copier{engine: steps{}, ranks: ranks, signal: of, sum: of, move: of}
	return k.offers()
}

// asks is a call of ranks of modeledOn.
func asks(c *gpu, k collective.Kind, bytes uint64, registered bool) engine.Query {
	r := request(k, bytes, c.ranks)
	if registered {
		r.Registered, r.Reached = true, engine.ReachInputs|engine.ReachOutputs
	}
	return r
}

// At every point that was measured the model chooses what was the fastest, or not much slower.
// Where nobody has measured its choice at that size, what it predicts is not worse either.
func TestModelChoosesWhatWasFast(t *testing.T) {
	best, times := map[sample]sample{}, map[sample]float64{}
	for _, s := range measured(t) {
		key := s
		key.us, key.older = 0, false
		if us, ok := times[key]; !ok || s.now() < us {
			times[key] = s.now()
		}
		if b, ok := best[s.at()]; !ok || s.now() < b.now() {
			best[s.at()] = s
		}
	}
	on := map[int]*gpu{2: modeledOn(t, overH200s(2), 2), 4: modeledOn(t, overH200s(4), 4)}
	guesses := 0
	for p, fastest := range best {
		k := p.Collective
		r := asks(on[p.Ranks], k, p.Bytes, p.Registered)
		a, _, err := on[p.Ranks].find(&r, "")
		if err != nil {
			t.Fatal(err)
		}
		p.Algorithm = a.Name
		us, ok := times[p]
		if other := p; !ok && a.traits.Reach == 0 { // the buffers are the same to it
			other.Registered = !p.Registered
			us, ok = times[other]
		}
		if !ok {
			guesses++
			us, _ = p.modeled()
		}
		if us > worse*fastest.now() {
			t.Errorf("%v takes %.2f µs (measured: %v): %s takes %.2f", p, us, ok, fastest.Algorithm, fastest.now())
		}
	}
	if guesses > unknown {
		t.Errorf("%d of %d choices were not measured: expected at most %d", guesses, len(best), unknown)
	}
}

// The rows are for all sizes and both kinds of buffers, name what the call can be made with, and
// are the same whenever they are made, in whatever order transports list their kernels.
func TestModeledRowsServeAllCalls(t *testing.T) {
	for name, l := range machines(8) {
		for _, ranks := range []int{2, 3, 5, 8, 12} {
			c := modeledOn(t, l, ranks)
			for k := collective.AllReduce; k <= collective.Barrier; k++ {
				for bytes := uint64(2); bytes <= 64<<30; bytes = bytes*5/4 + 2 {
					for _, registered := range []bool{false, true} {
						r := asks(c, k, bytes, registered)
						a, row, err := c.find(&r, "")
						if err != nil || row == nil || row.Algorithm != a.Name {
							t.Fatalf("%s: %v of %d bytes by %d ranks, registered %v: %v by row %+v: %v", name, k, bytes, ranks, registered, a, row, err)
						}
						if row.MaxBytes != 0 && bytes > row.MaxBytes || a.Fits(&r) != nil || a.traits.LL && a.traits.Protocol.Area == kernelargs.LineArea && !l.Lines {
							t.Fatalf("%s: %v of %d bytes by %d ranks: row %+v does not fit", name, k, bytes, ranks, row)
						}
					}
				}
			}
			var reversed []string
			for pair := range slices.Chunk(everyKernel(t), 2) {
				reversed = append(slices.Clone(pair), reversed...)
			}
			rows := modeledBy(t, l, ranks, reversed).rows
			if !slices.EqualFunc(rows, c.rows, sameRow) {
				t.Errorf("%s, %d ranks: other rows when kernels come in another order:\n%v\n%v", name, ranks, rows, c.rows)
			}
		}
	}
}

func sameRow(a, b engine.Row) bool {
	if (a.Registered == nil) != (b.Registered == nil) || a.Registered != nil && *a.Registered != *b.Registered {
		return false
	}
	a.Registered, b.Registered = nil, nil
	return a == b
}

// machines are some on which nobody has measured.
func machines(ranks int) map[string]model.Links {
	return map[string]model.Links{
		"H200":            overH200s(ranks),
		"B200":            model.OverNVLink(18, 5, ranks-1, true, 8000),
		"A100":            model.OverNVLink(12, 3, ranks-1, true, 1555),
		"A100, no switch": model.OverNVLink(4*(ranks-1), 3, ranks-1, false, 1555),
		"H100 NVL":        model.OverNVLink(12, 4, ranks-1, true, 3350),
		"PCIe 4":          model.OverPCIe(31.5, 600),
		"host memory":     model.OverHost(31.5),
	}
}

// integers are not served by packets without a flag.
func integers(r engine.Query) engine.Query {
	r.Count = r.Count * uint64(r.Type.Size()) / uint64(kernel.Int32.Size())
	r.Type = kernel.Int32
	return r
}

// upTo is the largest size for which calls of integers take packets of one step.
func upTo(t *testing.T, c *gpu, k collective.Kind) (bytes uint64) {
	t.Helper()
	for b := uint64(choose.LeastModeled); b <= choose.MostModeled; b += b / 2 {
		r := integers(asks(c, k, b, true))
		a, _, err := c.find(&r, "")
		if err != nil {
			t.Fatal(err)
		}
		if !a.traits.LL || a.traits.Protocol.Twice || a.traits.Protocol.Pieces || a.traits.Protocol.Area != kernelargs.PacketArea {
			return bytes
		}
		bytes = b
	}
	return bytes
}

// Over slow links it is worth less to send more than there is for the sake of a step.
func TestSlowLinksMoveThresholdsDown(t *testing.T) {
	slow := model.OverPCIe(25/0.8, 600) // stores of 25 GB/s
	for _, ranks := range []int{2, 4, 8} {
		fast := overH200s(ranks)
		fast.Lines = false // so that both have the same to choose from
		for _, k := range []collective.Kind{collective.AllReduce, collective.AllGather, collective.ReduceScatter, collective.AllToAll, collective.Reduce} {
			quick, less := upTo(t, modeledOn(t, fast, ranks), k), upTo(t, modeledOn(t, slow, ranks), k)
			if less >= quick {
				t.Errorf("%v by %d ranks: packets of 8 bytes up to %d bytes over PCIe and %d over NVLink: expected less over PCIe", k, ranks, less, quick)
			}
		}
	}
}

// Types that have a NaN to spare are added up by packets without a flag where the model says so, up to a size; others never are.
func TestModelChoosesByTypes(t *testing.T) {
	c := modeledOn(t, overH200s(8), 8)
	for _, x := range []struct {
		of    kernel.DataType
		bytes uint64
		want  string
	}{
		{kernel.Float16, 16 << 10, "oneshot_lamport"}, {kernel.Float32, 16 << 10, "oneshot_lamport"}, {kernel.Float16, 1 << 20, "twoshot_ll128"},
		{kernel.Int32, 16 << 10, "oneshot_ll8"}, {kernel.Int32, 96 << 10, "oneshot_ll128"},
	} {
		r := asks(c, collective.AllReduce, x.bytes, false)
		r.Type, r.Count = x.of, x.bytes/uint64(x.of.Size())
		a, _, err := c.find(&r, "")
		if err != nil || a.Name != x.want {
			t.Errorf("%d bytes of %v: %v, %v: expected %s", x.bytes, x.of, a, err, x.want)
		}
	}
}
