package stats

import (
	"math"
	"testing"
)

func approximately(a, b float64) bool {
	return a == b || math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 1e-12*math.Abs(b)
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{
		{nil, math.NaN()},
		{[]float64{3}, 3},
		{[]float64{9, 1}, 5},
		{[]float64{9, 1, 2}, 2},
		{[]float64{4, 1, 1000, 2}, 3}, // one disturbed sample moves nothing
	} {
		if got := Median(c.in); !approximately(got, c.want) {
			t.Errorf("Median(%v) = %v, want %v", c.in, got, c.want)
		}
	}
}

func TestSlowest(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{
		{nil, math.NaN()},
		{[]float64{1, 7, 3}, 7},
		{[]float64{1, math.NaN(), 3}, math.NaN()},
		{[]float64{0, 0}, 0},
	} {
		if got := Slowest(c.in); !approximately(got, c.want) {
			t.Errorf("Slowest(%v) = %v, want %v", c.in, got, c.want)
		}
	}
}

func TestGeoMean(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{
		{nil, math.NaN()},
		{[]float64{2, 0.5}, 1},
		{[]float64{2, 8}, 4},
		{[]float64{0.8, 0.8, 0.8}, 0.8},
		{[]float64{1, 0}, math.NaN()},
		{[]float64{1, -1}, math.NaN()},
		{[]float64{1, math.Inf(1)}, math.NaN()},
		{[]float64{1, math.NaN()}, math.NaN()},
	} {
		if got := GeoMean(c.in); !approximately(got, c.want) {
			t.Errorf("GeoMean(%v) = %v, want %v", c.in, got, c.want)
		}
	}
}

func TestQuantile(t *testing.T) {
	v := []float64{5, 1, 4, 2, 3}
	for _, c := range []struct{ q, want float64 }{
		{0, 1}, {0.2, 1}, {0.21, 2}, {0.5, 3}, {0.99, 5}, {1, 5}, {2, 5}, {-1, 1}, {math.NaN(), math.NaN()},
	} {
		if got := Quantile(v, c.q); !approximately(got, c.want) {
			t.Errorf("Quantile(%v) = %v, want %v", c.q, got, c.want)
		}
	}
	if got := Quantile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("Quantile of nothing = %v", got)
	}
}
