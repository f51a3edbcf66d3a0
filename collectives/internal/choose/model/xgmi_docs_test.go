package model

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/collective"
)

// Marks around the table of xGMI in the documentation.
const (
	firstOfXGMI = "<!-- xGMI, by the model: a test of it holds them -->\n"
	lastOfXGMI  = "<!-- end of xGMI -->\n"
)

type timeOf struct {
	us float64
	by string
}

// publishedXGMI are the best times of exact sums on eight MI300X that others publish, in µs. Where they publish a rate, it is the time by that.
// Those of quick-reduce, and of RCCL beside it, are of f16, with ROCm 6.2.
var publishedXGMI = map[uint64]timeOf{
	2 << 10: {9.4, "FBGEMM, one shot"}, 4 << 10: {9.6, "FBGEMM, one shot"}, 32 << 10: {14.81, "quick-reduce, f16"}, 64 << 10: {15.41, "quick-reduce, f16"},
	128 << 10: {16.15, "quick-reduce, f16"}, 256 << 10: {16.36, "quick-reduce, f16"}, 512 << 10: {17.26, "quick-reduce, f16"}, 1 << 20: {20.01, "quick-reduce, f16"},
	1536 << 10: {32.9, "FBGEMM, two shots"}, 2 << 20: {27.90, "quick-reduce, f16"}, 4 << 20: {46.84, "quick-reduce, f16"}, 8 << 20: {83.12, "RCCL"},
	16 << 20: {147.05, "quick-reduce, f16"}, 32 << 20: {240.4, "RCCL"}, 64 << 20: {426.0, "RCCL"},
	512 << 20: {float64(512<<20) * 1.75 / 330e3, "RCCL, 330 GB/s"}, 1 << 30: {float64(1<<30) * 1.75 / 330e3, "RCCL, 330 GB/s"},
}

// quantisedXGMI are those of quick-reduce with a codec, the best one.
var quantisedXGMI = map[uint64]timeOf{
	32 << 10: {24.76, "FP8"}, 64 << 10: {25.52, "FP8"}, 128 << 10: {25.97, "FP8"}, 256 << 10: {24.95, "FP8"}, 512 << 10: {25.86, "FP8"}, 1 << 20: {27.64, "FP8"},
	2 << 20: {32.44, "FP8"}, 4 << 20: {43.60, "Q4"}, 8 << 20: {60.08, "Q4"}, 16 << 20: {82.84, "Q4"}, 32 << 20: {157.92, "Q4"}, 64 << 20: {272.68, "Q4"},
}

// goalOfXGMI is the share of the speed of the best that others have published.
const goalOfXGMI = 0.9

var eightMI300X = OverXGMI(1, 7, "AMD Instinct MI300X")

// The documentation's table of xGMI has the times of the model, and says where these miss the goal.
func TestXGMIInTheDocumentation(t *testing.T) {
	got := documented(t, firstOfXGMI, lastOfXGMI)
	among := []*Cost{OnceByWords, OnceByManyWords, TwiceByManyWords, Stages, Pull, Pipes}
	names := []string{"`oneshot_ll8`", "`allpair_ll8`", "`twophase_ll8`", "`twophase_chunk`", "`zerocopy`", "`shares`"}
	links := eightMI300X
	var b strings.Builder
	b.WriteString("| bytes | by | µs by the model | least by the links | published | of that speed | quantised sums |\n|---|---|---|---|---|---|---|\n")
	missed := map[uint64]bool{2 << 20: true}
	for _, bytes := range []uint64{
		1 << 10, 2 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 1536 << 10, 2 << 20, 4 << 20, 8 << 20, 16 << 20, 32 << 20, 64 << 20,
		512 << 20, 1 << 30,
	} {
		at, us, known := links.Best(Call{Collective: collective.AllReduce, Ranks: 8, Bytes: bytes}, among)
		if !known {
			t.Fatalf("%d bytes: no time", bytes)
		}
		least := float64(bytes) * 1.75 / links.Store / gigabytes
		fmt.Fprintf(&b, "| %s | %s | %.1f | %.1f |", sized(bytes), names[at], us, least)
		others, known := publishedXGMI[bytes]
		switch share := others.us / us; {
		case !known:
			b.WriteString(" | |")
		case share < goalOfXGMI:
			if !missed[bytes] {
				t.Errorf("%d bytes: %.2f of the speed of %s: expected %.1f", bytes, share, others.by, goalOfXGMI)
			}
			fmt.Fprintf(&b, " %.1f (%s) | %.2f: missed |", others.us, others.by, share)
		default:
			fmt.Fprintf(&b, " %.1f (%s) | %.2f |", others.us, others.by, share)
		}
		if codec, known := quantisedXGMI[bytes]; known {
			fmt.Fprintf(&b, " %.1f (%s) |\n", codec.us, codec.by)
			continue
		}
		b.WriteString(" |\n")
	}
	if want := b.String(); got != want {
		t.Errorf("docs/performance.md has another table than the model makes: expected\n%s", want)
	}
}

// The documentation lists what each algorithm of an all-reduce takes, and what the other collectives do.
func TestXGMIByAlgorithm(t *testing.T) {
	sizes := []uint64{4 << 10, 64 << 10, 1 << 20, 16 << 20, 512 << 20}
	var b strings.Builder
	b.WriteString("| all-reduce by | sends by | steps | bytes on a link | 4K | 64K | 1M | 16M | 512M |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, a := range []struct {
		name, how string
		cost      *Cost
		most      uint64
	}{
		{"oneshot_ll8", "stores", OnceByWords, 512 << 10}, {"allpair_ll8", "stores", OnceByManyWords, 0}, {"twophase_ll8", "stores", TwiceByManyWords, 0},
		{"twophase_chunk", "loads", Stages, 0}, {"zerocopy", "loads, stores", Pull, 0}, {"shares", "stores", Pipes, 0}, {"copy", "copy engines", Copies, 0},
		{"copy_staged", "copy engines", Staged, 0},
	} {
		w := a.cost.of(eightMI300X, sizesOf(collective.AllReduce, 64<<20))
		fmt.Fprintf(&b, "| `%s` | %s | %.0f | %.2f S |", a.name, a.how, w.steps, w.bytes/7/(64<<20))
		for _, bytes := range sizes {
			us, known := eightMI300X.Time(a.cost, Call{Collective: collective.AllReduce, Ranks: 8, Bytes: bytes})
			if !known || a.most != 0 && bytes > a.most {
				b.WriteString(" |")
				continue
			}
			fmt.Fprintf(&b, " %.1f |", us)
		}
		b.WriteString("\n")
	}
	if got := documented(t, "<!-- xGMI, algorithms of all-reduce: a test of it holds them -->\n", "<!-- end of algorithms -->\n"); got != b.String() {
		t.Errorf("docs/performance.md has another table than the model makes: expected\n%s", b.String())
	}
	b.Reset()
	b.WriteString("| collective | by | sends by | 64K | 1M | 16M | 512M |\n|---|---|---|---|---|---|---|\n")
	for _, a := range []struct {
		of        collective.Kind
		name, how string
		cost      *Cost
	}{
		{collective.ReduceScatter, "shares", "stores", Pipes}, {collective.ReduceScatter, "zerocopy", "loads", Pull},
		{collective.Reduce, "shares_to_all", "stores", PipesToAll}, {collective.Reduce, "zerocopy", "loads", Pull}, {collective.Reduce, "chunk", "loads", Stages},
		{collective.AllGather, "push", "stores", Push}, {collective.AllGather, "shares", "stores", Pipes}, {collective.AllGather, "chunk", "loads", Stages},
		{collective.Broadcast, "push", "stores", Push}, {collective.Broadcast, "shares", "stores", Pipes}, {collective.Broadcast, "chunk", "loads", Stages},
		{collective.AllToAll, "push", "stores", Push}, {collective.AllToAll, "shares", "stores", Pipes}, {collective.AllToAll, "chunk", "loads", Stages},
	} {
		fmt.Fprintf(&b, "| %v | `%s` | %s |", a.of, a.name, a.how)
		for _, bytes := range sizes[1:] {
			us, known := eightMI300X.Time(a.cost, Call{Collective: a.of, Ranks: 8, Bytes: bytes})
			if !known {
				t.Fatalf("%v by %s: no time", a.of, a.name)
			}
			fmt.Fprintf(&b, " %.1f |", us)
		}
		b.WriteString("\n")
	}
	if got := documented(t, "<!-- xGMI, other collectives: a test of it holds them -->\n", "<!-- end of collectives -->\n"); got != b.String() {
		t.Errorf("docs/performance.md has another table than the model makes: expected\n%s", b.String())
	}
}

func sizesOf(k collective.Kind, bytes uint64) call {
	return sizes(Call{Collective: k, Ranks: 8, Bytes: bytes})
}

func sized(bytes uint64) string {
	switch bytes {
	case 1536 << 10:
		return "1.5M"
	case 1 << 30:
		return "1G"
	}
	return size(bytes)
}
