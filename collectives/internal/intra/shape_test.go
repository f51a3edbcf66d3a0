package intra

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// gpu is an engine as New makes it on a device with 132 multiprocessors, without memory behind it, and the table of a
// program: enough for choices.
type gpu struct {
	*Engine
	tables choose.Tables
	ranks  int
}

func onGPU(t testing.TB, ranks int, o Options, program []engine.Row, kernels ...string) *gpu {
	t.Helper()
	o.Route = choose.Joined(h200s(ranks), o.NoLines)
	return onGPUWith(t, ranks, o, program, nil, kernels...)
}

// onGPUWith is onGPU with algorithms of copies, and another route.
func onGPUWith(t testing.TB, ranks int, o Options, program []engine.Row, copies []*algorithm, kernels ...string) *gpu {
	t.Helper()
	var list []comm.Kernel
	for i := 0; i < len(kernels); i += 2 {
		k := comm.Kernel{}
		k.Collective, k.Algorithm, k.MaxThreads = kernels[i], kernels[i+1], 512
		if strings.HasSuffix(k.Algorithm, "_lamport") {
			k.Types = []string{"f16", "bf16", "f32", "f64", "e4m3", "e5m2"}
		}
		list = append(list, k)
	}
	o.Scratch = 256 << 20
	e := &Engine{opts: o}
	if err := e.offer(engine.Discover(list, ranks), copies, site{ranks: ranks, noLines: o.NoLines, line: lineOf(ranks)}, e.shape(132)); err != nil {
		t.Fatal(err)
	}
	return &gpu{e, choose.Tables{Program: program, Builtin: e.rows}, ranks}
}

func (g *gpu) find(q *engine.Query, name string) (*algorithm, *engine.Row, error) {
	o := g.Offers()
	a, row, err := choose.Find(&g.tables, o.Of(q.Collective), q, name)
	if err != nil {
		return nil, nil, err
	}
	return g.byKey[a.Key], row, nil
}

func (g *gpu) choose(q *engine.Query, name string) (*algorithm, device.Launch, error) {
	a, row, err := g.find(q, name)
	if err != nil {
		return nil, device.Launch{}, err
	}
	return a, a.Shape(q, row), nil
}

func (g *gpu) chosen(k collective.Kind, t kernel.DataType) []*algorithm {
	o := g.Offers()
	return g.loadable(k, choose.All(&g.tables, o.Of(k), k, t, g.ranks, "device"))
}

// h200s is what as many ranks on H200s say of them.
func h200s(ranks int) []choose.Surroundings {
	list := make([]choose.Surroundings, ranks)
	for i := range list {
		list[i] = choose.Surroundings{Device: string(rune('a' + i)), Name: "NVIDIA H200", Major: 9}
	}
	return list
}

func request(k collective.Kind, bytes uint64, ranks int) engine.Query {
	count := bytes / 2
	if k.Wide() {
		count /= uint64(ranks)
	}
	return engine.Query{Request: engine.Request{Collective: k, Bytes: bytes, Count: count, Type: kernel.Float16, Ranks: ranks, Device: "device"}}
}

var allReduces = []string{"allreduce", "oneshot_ll8", "allreduce", "oneshot_ll128", "allreduce", "twoshot_ll128", "allreduce", "zerocopy",
	"allreduce", "allpair_ll8", "allreduce", "twophase_ll8", "allreduce", "twophase_chunk"}

func TestShapesOnGPUs(t *testing.T) {
	c := onGPU(t, 4, Options{}, nil, allReduces...)
	for _, x := range []struct {
		bytes       uint64
		registered  bool
		algorithm   string
		grid, block uint32
	}{
		{1 << 10, false, "oneshot_ll8", 2, 128},
		{4 << 10, false, "oneshot_ll8", 16, 64},
		{16 << 10, false, "oneshot_ll8", 64, 64},
		{64 << 10, false, "oneshot_ll128", 35, 128},
		{1 << 20, false, "twoshot_ll128", 55, 320},
		{16 << 20, true, "zerocopy", 128, 512},
		{16 << 20, false, "twophase_chunk", 32, 512},
		{2, false, "oneshot_ll8", 1, 32},
	} {
		r := request(collective.AllReduce, x.bytes, 4)
		if x.registered {
			r.Registered, r.Reached = true, engine.ReachInputs|engine.ReachOutputs
		}
		for range 2 { // the second answer is remembered
			a, l, err := c.choose(&r, "")
			if err != nil || a.Name != x.algorithm || l.Grid != x.grid || l.Block != x.block {
				t.Errorf("%d bytes: %v %+v %v: want %s on %d x %d", x.bytes, a, l, err, x.algorithm, x.grid, x.block)
			} else if l.Overlap != (a.traits.LL || a.Name == choose.Zerocopy) {
				t.Errorf("%d bytes: overlap %v: only kernels that await the one before may", x.bytes, l.Overlap)
			}
		}
	}
}

// The tables for two and four ranks have the algorithms that were fastest when they were measured:
// all algorithms that were in the same run are offered.
func TestChoicesAreThoseMeasured(t *testing.T) {
	kernels := append(slices.Clone(allReduces),
		"allgather", "direct_ll8", "allgather", "direct_ll128", "allgather", "push", "allgather", "zerocopy", "allgather", "chunk",
		"reducescatter", "direct_ll8", "reducescatter", "direct_ll128", "reducescatter", "zerocopy", "reducescatter", "chunk",
		"alltoall", "direct_ll8", "alltoall", "direct_ll128", "alltoall", "push", "alltoall", "zerocopy",
		"broadcast", "direct_ll8", "broadcast", "direct_ll128", "broadcast", "push",
		"reduce", "direct_ll8", "reduce", "direct_ll128", "reduce", "zerocopy", "reduce", "shares", "reduce", "fetch", "reduce", "twoshot_ll128", "broadcast", "fetch", "broadcast", "shares",
		"allreduce", "stream_ll128", "allgather", "stream_ll128", "reducescatter", "stream_ll128", "alltoall", "stream_ll128",
		"broadcast", "stream_ll128", "broadcast", "chunk", "reduce", "stream_ll128", "reduce", "chain", "reduce", "chain_ll128", "broadcast", "chain")
	for ranks, of := range map[int]map[collective.Kind]map[uint64]string{ // by KiB
		2: {
			collective.AllReduce: {1: "oneshot_ll8", 16: "oneshot_ll8", 64: "oneshot_ll128", 256: "oneshot_ll128", 1 << 10: "twoshot_ll128",
				4 << 10: "twoshot_ll128", 16 << 10: "zerocopy", 64 << 10: "zerocopy", 256 << 10: "copy", 1 << 20: "copy"},
			collective.AllGather:     {1: "direct_ll8", 64: "direct_ll8", 256: "direct_ll128", 4 << 10: "direct_ll128", 16 << 10: "push", 64 << 10: "push"},
			collective.ReduceScatter: {64: "direct_ll8", 256: "direct_ll128", 4 << 10: "direct_ll128", 64 << 10: "zerocopy", 256 << 10: "zerocopy", 1 << 20: "copy"},
			collective.AllToAll:      {64: "direct_ll8", 256: "direct_ll128", 4 << 10: "direct_ll128", 16 << 10: "push", 256 << 10: "copy"},
			collective.Broadcast:     {64: "direct_ll8", 256: "direct_ll128", 1 << 10: "direct_ll128", 16 << 10: "push", 256 << 10: "copy", 1 << 20: "copy"},
			collective.Reduce:        {64: "direct_ll8", 256: "direct_ll128", 4 << 10: "direct_ll128", 8 << 10: "direct_ll128", 16 << 10: "zerocopy", 64 << 10: "zerocopy", 256 << 10: "zerocopy"},
		},
		4: {
			collective.AllReduce: {1: "oneshot_ll8", 16: "oneshot_ll8", 64: "oneshot_ll128", 256: "oneshot_ll128", 1 << 10: "twoshot_ll128",
				4 << 10: "twoshot_ll128", 16 << 10: "zerocopy", 64 << 10: "zerocopy", 256 << 10: "copy", 1 << 20: "copy"},
			collective.AllGather:     {64: "direct_ll8", 256: "direct_ll128", 4 << 10: "direct_ll128", 16 << 10: "push", 64 << 10: "push", 256 << 10: "copy"},
			collective.ReduceScatter: {64: "direct_ll8", 256: "direct_ll128", 4 << 10: "direct_ll128", 64 << 10: "zerocopy", 256 << 10: "copy", 1 << 20: "copy"},
			collective.AllToAll:      {64: "direct_ll8", 256: "direct_ll128", 4 << 10: "direct_ll128", 16 << 10: "push", 64 << 10: "push", 256 << 10: "copy"},
			collective.Broadcast:     {64: "direct_ll8", 256: "direct_ll128", 1 << 10: "direct_ll128", 4 << 10: "stream_ll128", 16 << 10: "stream_ll128", 64 << 10: "chain", 256 << 10: "chain"},
			collective.Reduce:        {64: "direct_ll8", 256: "direct_ll128", 1 << 10: "twoshot_ll128", 4 << 10: "twoshot_ll128", 16 << 10: "stream_ll128", 64 << 10: "shares", 256 << 10: "shares"},
		},
	} {
		c := onGPUWith(t, ranks, Options{Route: choose.Joined(h200s(ranks), false)}, nil, modeledCopies(ranks), kernels...)
		for kind, fastest := range of {
			for kib, want := range fastest {
				r := request(kind, kib<<10, ranks)
				r.Registered, r.Reached = true, engine.ReachInputs|engine.ReachOutputs
				if a, _, err := c.choose(&r, ""); err != nil || a.Name != want {
					t.Errorf("%v of %d KiB by %d ranks: %v %v: want %s", kind, kib, ranks, a, err, want)
				}
			}
			if kind != collective.Broadcast && kind != collective.Reduce {
				want := choose.CopyStaged
				if kind == collective.ReduceScatter {
					want = choose.Copy
				}
				r := request(kind, 512<<20, ranks)
				if a, _, err := c.choose(&r, ""); err != nil || a.Name != want {
					t.Errorf("%v of 512 MiB in ordinary buffers of %d ranks: %v %v: want %s", kind, ranks, a, err, want)
				}
			}
			for _, mib := range []uint64{16, 64} {
				r := request(kind, mib<<20, ranks)
				want, grid := "stream_ll128", uint32(choose.StreamBlocks)
				switch {
				case kind == collective.ReduceScatter && ranks > 2 && mib < 24:
					want, grid = "direct_ll128", 112
				case kind == collective.AllReduce && ranks > 2 && mib < 24:
					grid = 96
				case kind == collective.Reduce && ranks > 2 && mib < 32:
					grid = 48
				case kind == collective.Reduce && ranks > 2:
					want = choose.Shares
				case kind == collective.Broadcast && ranks > 2 && mib < 32:
					grid = 96
				case kind == collective.Broadcast && ranks > 2:
					want = choose.Chain
				case kind == collective.Reduce, kind == collective.Broadcast && ranks == 2 && mib > 48:
					want = choose.Fetch
				}
				if a, l, err := c.choose(&r, ""); err != nil || a.Name != want || l.Grid != grid || l.Block != choose.BlockThreads {
					t.Errorf("%v of %d MiB in ordinary buffers of %d ranks: %v %+v %v: want %s", kind, mib, ranks, a, l, err, want)
				}
			}
		}
	}
}

// Partial sums of f32 are f32 in all algorithms, so such reduces go along chains. A chain would round sums of other floats once more, and
// has no code of its own for averages.
func TestChainsReduceWhatTheyDoNotRound(t *testing.T) {
	c := onGPUWith(t, 4, Options{Route: choose.Joined(h200s(4), false)}, nil, modeledCopies(4), "reduce", "twoshot_ll128", "reduce", "stream_ll128",
		"reduce", "shares", "reduce", "chain", "reduce", "chain_ll128")
	for _, x := range []struct {
		typ  kernel.DataType
		op   kernel.Op
		mib  uint64
		want string
		grid uint32
	}{
		{kernel.Float32, kernel.Sum, 4, "twoshot_ll128", 72}, {kernel.Float32, kernel.Sum, 16, "chain_ll128", 96}, {kernel.Float32, kernel.Sum, 64, choose.Chain, 128},
		{kernel.Float32, kernel.Sum, 1 << 10, choose.Chain, 128}, {kernel.Float32, kernel.Avg, 64, choose.Shares, 128}, {kernel.Float16, kernel.Sum, 16, "stream_ll128", 48},
		{kernel.BFloat16, kernel.Sum, 64, choose.Shares, 128}, {kernel.Float16, kernel.Max, 64, choose.Shares, 128},
	} {
		r := request(collective.Reduce, x.mib<<20, 4)
		r.Type, r.Op, r.Count = x.typ, x.op, x.mib<<20/uint64(x.typ.Size())
		if a, l, err := c.choose(&r, ""); err != nil || a.Name != x.want || l.Grid != x.grid {
			t.Errorf("%v of %v, %d MiB: %v %+v %v: want %s by %d blocks", x.op, x.typ, x.mib, a, l, err, x.want, x.grid)
		}
	}
}

// A row of the configuration changes the shape, in whole warps and within bounds.
func TestRowsShapeLaunches(t *testing.T) {
	c := onGPU(t, 4, Options{}, []engine.Row{{Collective: collective.AllReduce, Algorithm: "oneshot_ll128", Blocks: 500, Threads: 100}}, allReduces...)
	r := request(collective.AllReduce, 1<<10, 4)
	for _, name := range []string{"", "oneshot_ll128"} {
		if a, l, err := c.choose(&r, name); err != nil || a.Name != "oneshot_ll128" || l.Grid != 128 || l.Block != 128 {
			t.Errorf("named %q: %v %+v %v", name, a, l, err)
		}
	}
}

func TestLLKernelsTakeWhatFits(t *testing.T) {
	c := onGPU(t, 8, Options{}, nil, allReduces...)
	r := request(collective.AllReduce, 64<<20, 8)
	for _, name := range []string{"oneshot_ll8", "oneshot_ll128", "twoshot_ll128"} {
		if _, _, err := c.choose(&r, name); !errors.Is(err, framework.ErrUnsupported) {
			t.Errorf("%s of 64 MiB: %v: want ErrUnsupported", name, err)
		}
	}
	nine := onGPU(t, 9, Options{}, nil, allReduces...)
	r = request(collective.AllReduce, 1<<10, 9)
	if a, _, err := nine.choose(&r, ""); err != nil || a.Name != "allpair_ll8" {
		t.Errorf("nine ranks: %v %v: want kernels for any number", a, err)
	}
	c = onGPU(t, 8, Options{NoLines: true}, nil, allReduces...)
	r = request(collective.AllReduce, 256<<10, 8)
	if a, _, err := c.choose(&r, ""); err != nil || a.traits.Protocol.Area == kernelargs.LineArea {
		t.Errorf("links that tear lines: %v %v", a, err)
	}
}

// Pieces cover every share once, fit into slots, begin where 16-byte loads may, and
// there is an even number of them.
func TestPiecesCoverShares(t *testing.T) {
	const ranks = 4
	candidates := map[string]func([]uint64, uint64, uint64, uint64, uint64) cut{"evenly": cutEvenly, "to taper": cutToTaper}
	for name, candidate := range candidates {
		for _, element := range []uint64{1, 2, 4, 8} {
			for _, share := range []uint64{0, 1, 15, 1000, 1 << 20, 1<<20 + 16} {
				for _, slot := range []uint64{64 << 10, 1 << 20} {
					total := share*ranks - share/2 // the last share is short
					k := candidate(nil, total, share, element, slot)
					if k.pieces()%2 != 0 || k.pieces() == 0 {
						t.Errorf("%s: %+v: want an even number of pieces", name, k)
					}
					next := uint64(0)
					for rank := range ranks {
						for p := range k.pieces() {
							first, count := k.of(rank, p)
							if count == 0 {
								continue
							}
							if first != next || count*element > slot || (first-uint64(rank)*share)*element%wordBytes != 0 {
								t.Fatalf("%s: %+v: rank %d, piece %d: %d + %d: want it to begin at %d, at a whole word, and fit into %d bytes", name, k, rank, p, first, count, next, slot)
							}
							next = first + count
						}
					}
					if next != total {
						t.Errorf("%s: %+v: pieces end at %d of %d", name, k, next, total)
					}
				}
			}
		}
	}
}

// The work on the last piece of a large share is soon done, and the work on one before takes no
// longer than the next one travels: memory is five times as fast as links.
func TestPiecesTaper(t *testing.T) {
	const slot = 256 << 20
	for _, x := range []struct {
		share  uint64
		pieces int
	}{{64 << 20, 2}, {128 << 20, 2}, {512 << 20, 4}, {2 << 30, 10}} {
		k := cutToTaper(nil, 2*x.share, x.share, 1, slot)
		if k.pieces() != x.pieces {
			t.Errorf("%d MiB in %d pieces: expected %d", x.share>>20, k.pieces(), x.pieces)
		}
		for p := 1; p < k.pieces(); p++ {
			_, before := k.of(0, p-1)
			_, now := k.of(0, p)
			if now > before || 5*now < before {
				t.Errorf("%d MiB: a piece of %d bytes behind one of %d: expected no more, and a fifth at least", x.share>>20, now, before)
			}
			if p == k.pieces()-1 && now > slot/3 {
				t.Errorf("%d MiB: the last piece has %d bytes: expected at most %d", x.share>>20, now, slot/3)
			}
		}
	}
}

// An element type without kernels is refused, and the error says which there are.
func TestTypesWithoutKernels(t *testing.T) {
	c := onGPU(t, 2, Options{}, nil, allReduces...)
	for _, a := range c.list {
		a.Kernel.Types = []string{"f32", "bf16"}
		a.Algorithm.Types = a.Kernel.Types
	}
	r := request(collective.AllReduce, 1<<10, 2)
	r.Type = kernel.Int8
	for _, name := range []string{"", "oneshot_ll8", "zerocopy"} {
		if _, _, err := c.choose(&r, name); err == nil || name != "zerocopy" && !errors.Is(err, framework.ErrUnsupported) {
			t.Errorf("algorithm %q for i8: %v, expected ErrUnsupported", name, err)
		} else if name == "" && !strings.Contains(err.Error(), "bf16 f32") {
			t.Errorf("%v: expected the types that there are", err)
		}
	}
	r.Type = kernel.Float32
	if _, _, err := c.choose(&r, ""); err != nil {
		t.Error(err)
	}
}

// lineOf is how many bytes a line has between so many of NVIDIA's GPUs.
func lineOf(ranks int) uint64 { return lineBytes(wholeLines{}, false, ranks) }

type wholeLines struct{ device.Device }

func (wholeLines) LineBytes() uint64 { return kernelargs.DeviceLine }
