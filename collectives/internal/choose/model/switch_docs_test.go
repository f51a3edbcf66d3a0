package model

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/collective"
)

// Marks around the table of the switch in the documentation.
const (
	firstOfSwitch = "<!-- the switch, by the model: a test of it holds them -->\n"
	lastOfSwitch  = "<!-- end of the switch -->\n"
)

// Published times of eight H100s, in µs: PyTorch's kernels over multicast memory, and NCCL.
var published = map[uint64][2]float64{
	512 << 10: {11, 24}, 1 << 20: {14, 25}, 2 << 20: {18, 37}, 4 << 20: {27, 50}, 8 << 20: {46, 76}, 16 << 20: {87, 121},
	32 << 20: {165, 195}, 64 << 20: {320, 316}, 128 << 20: {631, 561},
}

// leastOfPublished is the goal: a share of the speed of the best that others have published.
const leastOfPublished = 0.8

// documented returns the part of docs/performance.md between two marks.
func documented(t *testing.T, first, last string) string {
	t.Helper()
	text, err := os.ReadFile("../../../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), first)
	got, _, ended := strings.Cut(rest, last)
	if !found || !ended {
		t.Fatalf("docs/performance.md: expected a table between %q and %q", first, last)
	}
	return got
}

// The documentation's table of the switch has the times of the model, and the model meets the goal at all sizes of which published times exist.
func TestSwitchInTheDocumentation(t *testing.T) {
	got := documented(t, firstOfSwitch, lastOfSwitch)
	chips := []struct {
		name         string
		ranks, links int
	}{{"H100", 4, 4}, {"H100", 8, 4}, {"H200", 4, 4}, {"H200", 8, 4}, {"B200", 4, 5}, {"B200", 8, 5}}
	var b strings.Builder
	b.WriteString("| bytes | by |")
	for _, c := range chips {
		fmt.Fprintf(&b, " %d %s |", c.ranks, c.name)
	}
	b.WriteString(" PyTorch's multimem, 8 H100 | NCCL, 8 H100 |\n|" + strings.Repeat("---|", len(chips)+4) + "\n")
	for bytes := uint64(1 << 10); bytes <= 128<<20; bytes *= 2 {
		by, name := Switch, "`switch`"
		if bytes <= mostPackets {
			by, name = SwitchPackets, "`switch_packets`"
		}
		fmt.Fprintf(&b, "| %s | %s |", size(bytes), name)
		for _, c := range chips {
			us, known := OverNVLink(18, c.links, c.ranks-1, true, MemoryOf("NVIDIA "+c.name)).Time(by, Call{Collective: collective.AllReduce, Ranks: c.ranks, Bytes: bytes})
			if !known {
				t.Fatalf("%d %s: no time", c.ranks, c.name)
			}
			fmt.Fprintf(&b, " %.1f |", us)
			others, ok := published[bytes]
			if ok && c.name == "H100" && c.ranks == 8 && us > min(others[0], others[1])/leastOfPublished {
				t.Errorf("%s: %.1f µs, published %v: expected %v of the speed of the best", size(bytes), us, others, leastOfPublished)
			}
		}
		if others, ok := published[bytes]; ok {
			fmt.Fprintf(&b, " %v | %v |\n", others[0], others[1])
		} else {
			b.WriteString(" | |\n")
		}
	}
	if want := b.String(); got != want {
		t.Errorf("docs/performance.md has another table than the model makes: expected\n%s", want)
	}
}

func size(bytes uint64) string {
	if bytes < 1<<20 {
		return fmt.Sprintf("%dK", bytes>>10)
	}
	return fmt.Sprintf("%dM", bytes>>20)
}
