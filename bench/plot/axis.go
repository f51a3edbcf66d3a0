package plot

import "math"

// axis maps a range of positive values to a range of pixels, by logarithm.
type axis struct {
	base     float64
	low, top int // exponents of base at both ends
	from, to float64
}

// axes spans both axes over everything drawable, rounded out to powers of the base.
func (c Chart) axes() (x, y axis) {
	var xs, ys []float64
	for _, s := range c.Series {
		for _, p := range s.Points {
			if drawable(p) {
				xs, ys = append(xs, p.X), append(ys, p.Y)
			}
		}
	}
	return span(xs, c.XBase, left, width-right), span(ys, c.YBase, height-bottom, top)
}

func span(values []float64, base, from, to float64) axis {
	if base <= 1 {
		base = 10
	}
	a := axis{base: base, from: from, to: to, top: 1}
	for i, v := range values {
		e := math.Log(v) / math.Log(base)
		// The nudge keeps an exact power, computed a hair off, on its own line.
		low, top := int(math.Floor(e+1e-9)), int(math.Ceil(e-1e-9))
		if i == 0 {
			a.low, a.top = low, top
		}
		a.low, a.top = min(a.low, low), max(a.top, top)
	}
	if a.low == a.top {
		a.top++
	}
	return a
}

func (a axis) at(v float64) float64 {
	share := (math.Log(v)/math.Log(a.base) - float64(a.low)) / float64(a.top-a.low)
	return a.from + share*(a.to-a.from)
}

// ticks returns powers of the base, at most ten.
func (a axis) ticks() []float64 {
	step := (a.top-a.low)/10 + 1
	var all []float64
	for e := a.low; e <= a.top; e += step {
		all = append(all, math.Pow(a.base, float64(e)))
	}
	return all
}
