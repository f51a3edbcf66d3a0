package sizes

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A sweep starts at its first size, multiplies by its factor, ends before it would
// pass its last size, and is never endless, also next to the largest number there is.
func TestSweepsMultiply(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Range{
			Min:    rapid.Int64Range(1, math.MaxInt64).Draw(t, "min"),
			Factor: rapid.Int64Range(2, 1<<40).Draw(t, "factor"),
		}
		r.Max = rapid.Int64Range(r.Min, math.MaxInt64).Draw(t, "max")
		all := r.List()
		if len(all) == 0 || all[0] != r.Min || len(all) > 63 {
			t.Fatalf("%+v: %v", r, all)
		}
		for i, n := range all[1:] {
			if n/r.Factor != all[i] || n%r.Factor != 0 {
				t.Fatalf("%+v: %d follows %d", r, n, all[i])
			}
		}
		if last := all[len(all)-1]; last > r.Max || last <= r.Max/r.Factor {
			t.Fatalf("%+v ends with %d", r, last)
		}
	})
}

func TestAnySizeSurvivesPrinting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, math.MaxInt64).Draw(t, "mantissa") >> rapid.IntRange(0, 62).Draw(t, "less")
		text := Format(n)
		for _, spelling := range []string{text, strings.ToLower(text), text + "B", " " + text} {
			if back, err := Parse(spelling); err != nil || back != n {
				t.Fatalf("Parse(%q) = %d, %v; want %d", spelling, back, err, n)
			}
		}
	})
}
