// Package stats holds the few statistics that the benchmark programs report, each
// written out so that a reader can check what a printed number means.
package stats

import (
	"math"
	"slices"
)

// Median returns the middle sample, or the mean of the two middle ones. It sorts
// its argument; of no samples it is NaN.
//
// The median and not the mean: on a shared machine a few samples contain a time
// slice of another process, and say nothing about the program under test.
func Median(samples []float64) float64 {
	n := len(samples)
	if n == 0 {
		return math.NaN()
	}
	slices.Sort(samples)
	if n%2 == 1 {
		return samples[n/2]
	}
	return (samples[n/2-1] + samples[n/2]) / 2
}

// Slowest returns the largest of the ranks' times: a collective is done when its
// last rank is. A rank that has no time makes the result NaN instead of vanishing.
func Slowest(times []float64) float64 {
	if len(times) == 0 {
		return math.NaN()
	}
	worst := math.Inf(-1)
	for _, t := range times {
		if math.IsNaN(t) {
			return t
		}
		worst = max(worst, t)
	}
	return worst
}

// GeoMean returns the geometric mean of positive ratios, the only mean under which
// "twice as fast here, twice as slow there" is 1. Anything else is NaN.
func GeoMean(ratios []float64) float64 {
	if len(ratios) == 0 {
		return math.NaN()
	}
	sum := 0.0
	for _, r := range ratios {
		if !(r > 0) || math.IsInf(r, 1) {
			return math.NaN()
		}
		sum += math.Log(r)
	}
	return math.Exp(sum / float64(len(ratios)))
}

// Quantile returns the value that fraction q of the samples do not exceed, by the
// nearest rank: always one of the samples. It sorts its argument.
func Quantile(samples []float64, q float64) float64 {
	if len(samples) == 0 || math.IsNaN(q) {
		return math.NaN()
	}
	slices.Sort(samples)
	i := int(math.Ceil(q*float64(len(samples)))) - 1
	return samples[min(max(i, 0), len(samples)-1)]
}
