package stats

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// times draws what a benchmark may have measured, in microseconds.
func times(t *rapid.T, least int) []float64 {
	return rapid.SliceOfN(rapid.Float64Range(0.01, 1e7), least, 40).Draw(t, "times")
}

func TestMedianSplitsTheSamples(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := times(t, 1)
		m := Median(slices.Clone(v))
		below, above := 0, 0
		for _, x := range v {
			if x < m {
				below++
			}
			if x > m {
				above++
			}
		}
		if below > len(v)/2 || above > len(v)/2 {
			t.Fatalf("median %v of %v: %d below, %d above", m, v, below, above)
		}
		shuffled := rapid.Permutation(v).Draw(t, "another order")
		if again := Median(shuffled); again != m {
			t.Fatalf("in another order it is %v, not %v", again, m)
		}
	})
}

// Fewer than half of the samples, however wrong, cannot move the median beyond the
// others: that is why it is used.
func TestMedianWithstandsOutliers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := times(t, 3)
		slices.Sort(v)
		low, high := v[0], v[len(v)-1]
		for range rapid.IntRange(0, len(v)-1).Draw(t, "outliers") {
			v = append(v, rapid.SampledFrom([]float64{0, 1e12, math.Inf(1)}).Draw(t, "outlier"))
		}
		if m := Median(v); m < low || m > high {
			t.Fatalf("median %v, but most samples lie between %v and %v", m, low, high)
		}
	})
}

func TestGeoMeanOfRatios(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := times(t, 1)
		m := GeoMean(v)
		inverse := make([]float64, len(v))
		for i, x := range v {
			inverse[i] = 1 / x
		}
		// The direction of a comparison must not matter.
		if p := m * GeoMean(inverse); math.Abs(p-1) > 1e-9 {
			t.Fatalf("mean %v of %v times that of the inverses is %v, want 1", m, v, p)
		}
		if slack := 1 + 1e-12; m*slack < slices.Min(v) || m > slices.Max(v)*slack {
			t.Fatalf("mean %v is outside of %v", m, v)
		}
	})
}

func TestQuantileIsASample(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := times(t, 1)
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		got := Quantile(slices.Clone(v), q)
		if !slices.Contains(v, got) {
			t.Fatalf("Quantile(%v) = %v is none of %v", q, got, v)
		}
		atMost := 0
		for _, x := range v {
			if x <= got {
				atMost++
			}
		}
		if float64(atMost) < q*float64(len(v))-1e-9 {
			t.Fatalf("Quantile(%v) = %v, which only %d of %d do not exceed", q, got, atMost, len(v))
		}
		if up := Quantile(slices.Clone(v), min(1, q+0.1)); up < got {
			t.Fatalf("Quantile falls from %v to %v", got, up)
		}
	})
}

func TestSlowestIsTheLast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := times(t, 1)
		before := slices.Clone(v)
		if got := Slowest(v); got != slices.Max(v) {
			t.Fatalf("%v of %v", got, v)
		}
		if !slices.Equal(v, before) {
			t.Fatal("the ranks' times were reordered: their places are their ranks")
		}
	})
}
