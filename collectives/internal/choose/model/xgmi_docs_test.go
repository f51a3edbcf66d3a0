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

// publishedXGMI are the best times of eight MI300X that others publish, in µs. Where they publish a rate, it is the time by that.
var publishedXGMI = map[uint64]struct {
	us float64
	by string
}{
	2 << 10: {9.4, "FBGEMM, one shot"}, 4 << 10: {9.6, "FBGEMM, one shot"}, 1536 << 10: {32.9, "FBGEMM, two shots"},
	512 << 20: {float64(512<<20) * 1.75 / 330e3, "RCCL, 330 GB/s"}, 1 << 30: {float64(1<<30) * 1.75 / 330e3, "RCCL, 330 GB/s"},
}

// goalOfXGMI is the share of the speed of the best that others have published.
const goalOfXGMI = 0.9

// The documentation's table of xGMI has the times of the model, and says where these miss the goal.
func TestXGMIInTheDocumentation(t *testing.T) {
	got := documented(t, firstOfXGMI, lastOfXGMI)
	among := []*Cost{OnceByWords, OnceByManyWords, TwiceByManyWords, Stages, Pull, Pipes}
	names := []string{"`oneshot_ll8`", "`allpair_ll8`", "`twophase_ll8`", "`twophase_chunk`", "`zerocopy`", "`shares`"}
	links := OverXGMI(1, 7, "AMD Instinct MI300X")
	var b strings.Builder
	b.WriteString("| bytes | by | µs by the model | least by the links | published | of that speed |\n|---|---|---|---|---|---|\n")
	for _, bytes := range []uint64{1 << 10, 2 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 1536 << 10, 4 << 20, 16 << 20, 64 << 20, 512 << 20, 1 << 30} {
		at, us, known := links.Best(Call{Collective: collective.AllReduce, Ranks: 8, Bytes: bytes}, among)
		if !known {
			t.Fatalf("%d bytes: no time", bytes)
		}
		least := float64(bytes) * 1.75 / links.Store / gigabytes
		fmt.Fprintf(&b, "| %s | %s | %.1f | %.1f |", sized(bytes), names[at], us, least)
		others, known := publishedXGMI[bytes]
		switch share := others.us / us; {
		case !known:
			b.WriteString(" | |\n")
		case share < goalOfXGMI:
			fmt.Fprintf(&b, " %.1f (%s) | %.2f: missed |\n", others.us, others.by, share)
		default:
			fmt.Fprintf(&b, " %.1f (%s) | %.2f |\n", others.us, others.by, share)
		}
	}
	if want := b.String(); got != want {
		t.Errorf("docs/performance.md has another table than the model makes: expected\n%s", want)
	}
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
