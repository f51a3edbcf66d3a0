package bench

import (
	"math"
	"strings"
	"testing"
)

func TestNamesAndParsing(t *testing.T) {
	for _, c := range All() {
		if got, err := ParseCollective(c.String()); err != nil || got != c {
			t.Errorf("ParseCollective(%q) = %v, %v", c, got, err)
		}
	}
	if got, err := ParseCollective("Reduce-Scatter"); err != nil || got != ReduceScatter {
		t.Errorf("Reduce-Scatter is %v, %v", got, err)
	}
	if _, err := ParseCollective("allreduc"); err == nil || !strings.Contains(err.Error(), "allgather") {
		t.Errorf("an unknown name must list the known ones: %v", err)
	}
}

// The factors are those of the performance notes of nccl-tests.
func TestBusFactors(t *testing.T) {
	for c, want := range map[Collective]float64{
		AllReduce: 1.5, AllGather: 0.75, ReduceScatter: 0.75, AllToAll: 0.75, AllToAllV: 0.75, Gather: 0.75, Scatter: 0.75,
		Broadcast: 1, Reduce: 1, SendRecv: 1,
	} {
		if got := c.BusFactor(4); math.Abs(got-want) > 1e-12 {
			t.Errorf("%s: factor %v between 4 ranks, want %v", c, got, want)
		}
	}
}

func TestBytesAreTheLargerBuffer(t *testing.T) {
	for _, c := range All() {
		for _, ranks := range []int{1, 2, 3, 8} {
			for _, bytes := range []int64{0, 1, 1024, 4099, 1 << 20} {
				count := Count(c, bytes, 4, ranks)
				larger := int64(0)
				for r := range ranks {
					in, out := c.Elements(count, ranks, r, 0)
					if c == AllToAllV {
						in, out = UnevenBlocks(count, ranks, r).Totals()
					}
					larger = max(larger, int64(in), int64(out))
				}
				if got := Larger(c, count, ranks); got != larger {
					t.Errorf("%s, %d ranks, %d bytes: Larger = %d, the largest buffer holds %d", c, ranks, bytes, got, larger)
				}
				if larger*4 > bytes {
					t.Errorf("%s, %d ranks: asked for %d bytes, uses %d", c, ranks, bytes, larger*4)
				}
			}
		}
	}
}

func TestUnevenBlocksAgree(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 5, 8} {
		all := make([]*Blocks, ranks)
		for r := range all {
			all[r] = UnevenBlocks(100, ranks, r)
		}
		sizes := map[int]bool{}
		for a := range ranks {
			sent, received := all[a].Totals()
			if sent != received || sent > 100*ranks {
				t.Errorf("%d ranks: rank %d sends %d and receives %d of at most %d", ranks, a, sent, received, 100*ranks)
			}
			for b := range ranks {
				sizes[all[a].SendCounts[b]] = true
				if all[a].SendCounts[b] != all[b].RecvCounts[a] {
					t.Errorf("%d ranks: %d sends %d to %d, which expects %d", ranks, a, all[a].SendCounts[b], b, all[b].RecvCounts[a])
				}
			}
		}
		if len(sizes) != ranks {
			t.Errorf("%d ranks: %d different sizes", ranks, len(sizes))
		}
	}
}
