package moetest

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/mscclpp-go/mscclpp/inference/moe"
)

// received is what a dispatch has written on a rank.
type received struct{ output, scales, sources, ranges, counts, statistics []byte }

func (r Run) received() (x received, err error) {
	p := r.places()
	local, slots := r.Options.Local(r.Ranks), r.slots(r.Ranks)
	scales, _ := r.rowScales()
	for _, part := range []struct {
		to *[]byte
		at int
		n  int
	}{
		{&x.output, p.output, local * slots * r.Hidden * r.elementBytes()}, {&x.scales, p.outputScales, local * slots * scales * 4}, {&x.sources, p.sources, local * slots * 4},
		{&x.ranges, p.ranges, local * r.Ranks * 8}, {&x.counts, p.received, local * 4}, {&x.statistics, p.statistics, local * 4},
	} {
		*part.to = make([]byte, part.n)
		if err := r.Read(*part.to, part.at); err != nil {
			return x, err
		}
	}
	return x, nil
}

func word(b []byte, i int) int { return int(int32(binary.LittleEndian.Uint32(b[4*i:]))) }

// CheckDispatch compares what came with what was sent, and gives the rows to the experts, which are the identity.
func (r Run) CheckDispatch() error {
	x, err := r.received()
	if err != nil {
		return err
	}
	experts := make([]byte, r.Options.Local(r.Ranks)*r.slots(r.Ranks)*r.Hidden*2)
	for e := range r.Options.Local(r.Ranks) {
		row := 0
		for from := range r.Ranks {
			first := row
			for i := range r.Tokens(from) * r.TopK {
				if r.index(r.Seed, from, i) != r.Rank*r.Options.Local(r.Ranks)+e {
					continue
				}
				if err := r.checkRow(&x, experts, e, row, from, i/r.TopK); err != nil {
					return fmt.Errorf("%v: expert %d, row %d, token %d of rank %d: %w", r.Trial, e, row, i/r.TopK, from, err)
				}
				row++
			}
			if got, want := binary.LittleEndian.Uint64(x.ranges[8*(e*r.Ranks+from):]), uint64(first)<<32|uint64(row-first); got != want {
				return fmt.Errorf("%v: expert %d: range of rank %d is %#x: expected %#x", r.Trial, e, from, got, want)
			}
		}
		if got := word(x.counts, e); got != row {
			return fmt.Errorf("%v: expert %d has received %d rows: expected %d", r.Trial, e, got, row)
		}
		if got := word(x.statistics, e); got != row {
			return fmt.Errorf("%v: expert %d: statistics of %d rows: expected %d", r.Trial, e, got, row)
		}
	}
	return r.Write(experts, r.places().experts)
}

// checkRow compares a row that came with that which was sent, and makes a row of bf16 of it for combine.
func (r Run) checkRow(x *received, experts []byte, e, row, from, token int) error {
	place := e*r.slots(r.Ranks) + row
	if got := word(x.sources, place); got != token {
		return fmt.Errorf("its source is %d", got)
	}
	for h := range r.Hidden {
		sent, value := r.element(r.Seed, from, token*r.Hidden+h)
		at := place*r.Hidden + h
		switch r.Format {
		case moe.BFloat16:
			if got := binary.LittleEndian.Uint16(x.output[2*at:]); got != sent {
				return fmt.Errorf("element %d is %#x: expected %#x", h, got, sent)
			}
		case moe.GivenE4M3:
			if got := x.output[at]; uint16(got) != sent {
				return fmt.Errorf("element %d is %#x: expected %#x", h, got, sent)
			}
			n, each := r.rowScales()
			if got, want := r.scaleOf(x, e, row, h/each), r.scale(r.Seed, from, token*n+h/each); got != float64(want) {
				return fmt.Errorf("scale %d is %v: expected %v", h/each, got, want)
			}
		default:
			scale := r.scaleOf(x, e, row, h/128)
			if got := e4m3(x.output[at]) * scale; math.Abs(got-value) > math.Abs(value)/16+scale/512 {
				return fmt.Errorf("element %d is %v: expected %v", h, got, value)
			}
			if err := r.checkScale(scale, from, token, h/128); err != nil {
				return err
			}
		}
		if !r.given() {
			binary.LittleEndian.PutUint16(experts[2*at:], sent)
		} else {
			binary.LittleEndian.PutUint16(experts[2*at:], bf16(float32(value)))
		}
	}
	return nil
}

// checkScale compares the scale of 128 elements with their largest magnitude.
func (r Run) checkScale(scale float64, from, token, group int) error {
	largest := 1e-4
	for h := range 128 {
		_, v := r.element(r.Seed, from, token*r.Hidden+group*128+h)
		largest = max(largest, math.Abs(v))
	}
	want := largest / 448
	if r.RoundScale {
		want = math.Exp2(math.Ceil(math.Log2(want)))
	}
	if math.Abs(scale-want) > want*1e-6 {
		return fmt.Errorf("scale %d is %v: expected %v", group, scale, want)
	}
	return nil
}

func (r Run) scaleOf(x *received, e, row, s int) float64 {
	n, _ := r.rowScales()
	if r.Exponents {
		return math.Exp2(float64(x.scales[4*((e*n/4+s/4)*r.slots(r.Ranks)+row)+s%4]) - 127)
	}
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(x.scales[4*((e*n+s)*r.slots(r.Ranks)+row):])))
}

// CheckCombine compares the sums with the right ones. Ranks round the sums that they send, and the result is rounded once more.
func (r Run) CheckCombine() error {
	n := r.Tokens(r.Rank)
	out := make([]byte, n*r.Hidden*2)
	if err := r.Read(out, r.places().combined); err != nil {
		return err
	}
	for t := range n {
		weights := 0.0
		for k := range r.TopK {
			if r.index(r.Seed, r.Rank, t*r.TopK+k) >= 0 {
				weights += float64(r.weight(r.Seed, r.Rank, t*r.TopK+k))
			}
		}
		for h := range r.Hidden {
			_, value := r.element(r.Seed, r.Rank, t*r.Hidden+h)
			want, got := weights*value, ofBF16(binary.LittleEndian.Uint16(out[2*(t*r.Hidden+h):]))
			if math.Abs(got-want) > math.Abs(want)/100 {
				return fmt.Errorf("%v: token %d, element %d: %v: expected %v", r.Trial, t, h, got, want)
			}
		}
	}
	return nil
}
