package rounds

import (
	"math"
	"testing"
)

// The schedule must give every rank the block of every other one exactly once.
func TestScheduleCoversAllRanks(t *testing.T) {
	for n := 1; n <= 300; n++ {
		rounds := schedule(0, n)
		seen := map[int]int{0: 1}
		for _, r := range rounds {
			for i := range r.fromDown {
				seen[((r.down+r.window-r.fromDown+1+i)%n+n)%n]++
			}
			for i := range r.fromUp {
				seen[((r.up-r.window+i)%n+n)%n]++
			}
		}
		for r := range n {
			if seen[r] != 1 {
				t.Fatalf("n=%d: block of rank %d arrives %d times", n, r, seen[r])
			}
		}
		if want := int(math.Ceil(math.Log(float64(n))/math.Log(3) - 1e-9)); len(rounds) != want {
			t.Fatalf("n=%d: %d rounds, expected %d", n, len(rounds), want)
		}
	}
}
