package bench_test

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/bench/benchtest"
	"github.com/mscclpp-go/mscclpp/bench/sizes"
)

// spoil changes one bit of element i of the output.
func spoil(c *bench.Call, i int) {
	*(*byte)(unsafe.Add(c.Out, i*c.Type.Size()+i%c.Type.Size())) ^= 1 << (i % 8)
}

// once runs a collective of a single size on the ranks of h.
func once(t *testing.T, h *benchtest.Hub, c bench.Collective, bytes int64, root int, inPlace bool) int64 {
	t.Helper()
	o := options(c)
	o.Sizes, o.Root, o.InPlace = sizes.Range{Min: bytes, Max: bytes, Factor: 2}, root, inPlace
	o.Plan.Iterations, o.Plan.Calls = 1, 1
	rows := sweep(t, h, o)
	if len(rows) != 1 || rows[0].Errors == nil {
		t.Fatalf("%s of %d bytes: rows %+v", c, bytes, rows)
	}
	return *rows[0].Errors
}

// Results are compared in pieces of 32768 elements. The count is exact wherever the
// wrong elements lie, and whichever rank has them.
func TestWrongElementsAreCountedExactly(t *testing.T) {
	const ranks = 3
	bytes := int64(70000 * 4)
	for name, at := range map[string][]int{
		"the first":             {0},
		"the last":              {-1},
		"around a piece's end":  {32767, 32768},
		"in every piece":        {5, 40000, 65536, -2},
		"neighbors, ten of one": {100, 101, 102, 103, 104, 105, 106, 107, 108, 109},
	} {
		for liar := range ranks {
			h := benchtest.New(ranks)
			h.Tamper = func(rank int, c *bench.Call) {
				for _, i := range at {
					if rank == liar {
						spoil(c, (i+c.Count)%c.Count)
					}
				}
			}
			// Each is seen before and after the timed calls.
			if got, want := once(t, h, bench.AllReduce, bytes, 0, false), int64(2*len(at)); got != want {
				t.Errorf("%s, on rank %d: %d errors, want %d", name, liar, got, want)
			}
		}
	}
}

// One wrong element in the output of any rank that has one is seen in every
// collective, in place as well.
func TestOneWrongElementOfAnyCollective(t *testing.T) {
	const ranks, root = 3, 2
	for _, c := range bench.All() {
		for _, inPlace := range []bool{false, true} {
			if inPlace && !c.HasInPlace() {
				continue
			}
			r := 0
			if c.Rooted() {
				r = root
			}
			for liar := range ranks {
				h := benchtest.New(ranks)
				var has int
				h.Tamper = func(rank int, call *bench.Call) {
					if rank != liar {
						return
					}
					_, has = c.Elements(call.Count, ranks, rank, r)
					if call.V != nil {
						_, has = call.V.Totals()
					}
					if has > 0 {
						spoil(call, has/2)
					}
				}
				want := int64(2)
				got := once(t, h, c, 960, r, inPlace)
				if has == 0 {
					want = 0
				}
				if got != want {
					t.Errorf("%s, in place %v, rank %d, which has %d elements: %d errors, want %d", c, inPlace, liar, has, got, want)
				}
			}
		}
	}
}

// A broken implementation more often leaves the right data in the wrong place
// than a flipped bit.
func TestPlausibleMistakesAreSeen(t *testing.T) {
	words := func(c *bench.Call) []uint32 { return unsafe.Slice((*uint32)(c.Out), c.Count*3) }
	for name, tamper := range map[string]func(rank int, c *bench.Call){
		"two blocks exchanged": func(_ int, c *bench.Call) {
			w := words(c)
			for i := range c.Count {
				w[i], w[c.Count+i] = w[c.Count+i], w[i]
			}
		},
		"shifted by one element": func(_ int, c *bench.Call) {
			w := words(c)
			copy(w[1:], w[:len(w)-1])
		},
		"the last block missing": func(_ int, c *bench.Call) {
			clear(words(c)[2*c.Count:])
		},
		"a block twice": func(_ int, c *bench.Call) {
			w := words(c)
			copy(w[c.Count:2*c.Count], w[:c.Count])
		},
		"halves of words": func(_ int, c *bench.Call) {
			for i, w := range words(c) {
				words(c)[i] = w<<16 | w>>16
			}
		},
	} {
		h := benchtest.New(3)
		h.Tamper = tamper
		if got := once(t, h, bench.AllGather, 1200, 0, false); got < 100 {
			t.Errorf("%s: %d errors among 300 elements on each of 3 ranks", name, got)
		}
	}
}

// A row without a check has no count at all: 0 would say that it was checked.
func TestUncheckedRowsHaveNoCount(t *testing.T) {
	h := benchtest.New(2)
	h.Tamper = func(_ int, c *bench.Call) { spoil(c, 0) }
	o := options(bench.AllReduce)
	o.Check = false
	for _, r := range sweep(t, h, o) {
		if r.Errors != nil {
			t.Errorf("%d bytes: %d errors, want none counted", r.Bytes, *r.Errors)
		}
	}
}

func TestEverySizeIsMeasuredOnce(t *testing.T) {
	for text, want := range map[string]string{
		"4:64": "[4 8 16 32 64]", "64": "[64]", "0": "[0]", "10:100": "[8 20 40 80]", // whole elements of 4 bytes
	} {
		o := options(bench.AllReduce)
		var err error
		if o.Sizes, err = sizes.ParseRange(text, 2); err != nil {
			t.Fatal(err)
		}
		var got []int64
		for _, r := range sweep(t, benchtest.New(2), o) {
			got = append(got, r.Bytes)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %s", text, got, want)
		}
	}
}
