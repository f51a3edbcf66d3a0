// Package inferencetest knows what right results of the operators for inference are, computed in float64. Tests and
// `mscclpp-run check` use it.
package inferencetest

import (
	"fmt"
	"hash/fnv"
	"math"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/inference"
)

// Memory allocates the buffers with which a test calls operators.
type Memory interface {
	Pointer(at int) unsafe.Pointer // a multiple of 16 for every multiple of 16
	Write(p []byte, at int) error
	Read(p []byte, at int) error
}

// Trial is one call, and how its buffers lie.
type Trial struct {
	Norm           inference.Norm
	Quantization   inference.Quantization
	Shots          inference.Shots
	Type           kernel.DataType
	Tokens, Hidden int
	Rows           inference.Rows
	Bias           bool
	NoResidual     bool
	InPlace        bool // the output is the input, and residual_out the residual
}

func (t Trial) String() string {
	return fmt.Sprintf("all_reduce_norm norm=%d quantization=%d shots=%d rows=%d %v %dx%d bias=%v residual=%v in-place=%v",
		t.Norm, t.Quantization, t.Shots, t.Rows, t.Type, t.Tokens, t.Hidden, t.Bias, !t.NoResidual, t.InPlace)
}

// Trials are calls of all types, norms and quantizations, of odd sizes.
func Trials() (list []Trial) {
	sizes := [][2]int{{1, 8}, {3, 24}, {5, 1032}, {7, 2048}, {2, 8200}, {33, 136}}
	i := 0
	for _, typ := range inference.Types() {
		for norm := range inference.Norm(2) {
			for q := range inference.Quantization(5) {
				for _, shots := range []inference.Shots{inference.OneShot, inference.TwoShot, inference.Automatic} {
					s := sizes[i%len(sizes)]
					list = append(list, Trial{Norm: norm, Quantization: q, Shots: shots, Type: typ, Tokens: s[0], Hidden: s[1],
						Bias: i%2 == 0, NoResidual: i%5 == 4, InPlace: q == inference.NotQuantized && i/2%2 == 0})
					i++
				}
			}
		}
	}
	return append(list, rowTrials(sizes)...)
}

// rowTrials are calls whose buffers have some of the rows, and such without a norm.
func rowTrials(sizes [][2]int) (list []Trial) {
	i := 0
	for _, rows := range []inference.Rows{inference.OwnResidual, inference.OwnRows, inference.OwnInput, inference.Local} {
		for q := range inference.Quantization(5) {
			for _, norm := range []inference.Norm{inference.RMSNorm, inference.LayerNorm, inference.NoNorm} {
				s := sizes[i%len(sizes)]
				list = append(list, Trial{Norm: norm, Quantization: q, Type: inference.Types()[i%3], Tokens: s[0], Hidden: s[1], Rows: rows,
					Bias: norm != inference.NoNorm && i%2 == 0, NoResidual: i%5 == 4, InPlace: false})
				i++
			}
		}
	}
	for _, shots := range []inference.Shots{inference.OneShot, inference.TwoShot} {
		list = append(list, Trial{Norm: inference.NoNorm, Shots: shots, Type: kernel.BFloat16, Tokens: 5, Hidden: 1032, NoResidual: true, InPlace: true})
	}
	return list
}

// LargeTrials are calls of so many rows that a thread of a GPU has two vectors of a row, or four.
func LargeTrials() (list []Trial) {
	for i, tokens := range []int{40, 150} {
		for k, q := range []inference.Quantization{inference.NotQuantized, inference.E4M3PerToken} {
			for _, rows := range []inference.Rows{inference.AllRows, inference.OwnResidual} {
				t := Trial{Norm: inference.Norm((i + k) % 2), Quantization: q, Type: kernel.BFloat16, Tokens: tokens, Hidden: 8200, Rows: rows, Bias: k == 1}
				if rows == inference.AllRows {
					t.Shots = []inference.Shots{inference.OneShot, inference.TwoShot}[(i+k)%2]
				}
				list = append(list, t)
			}
		}
	}
	return list
}

// own are the rows that a rank owns: how many, behind how many.
func (t Trial) own(rank, ranks int) (first, n int) {
	share := (t.Tokens + ranks - 1) / ranks
	first = min(t.Tokens, share*rank)
	return first, min(share, t.Tokens-first)
}

// parts are the rows that the buffers of a rank have: first ones and numbers of the input, of residual and sum, of the output.
type parts struct{ input, residual, output [2]int }

func (t Trial) parts(rank, ranks int) parts {
	all := [2]int{0, t.Tokens}
	first, n := t.own(rank, ranks)
	own := [2]int{first, n}
	switch t.Rows {
	case inference.OwnResidual:
		return parts{all, own, all}
	case inference.OwnRows:
		return parts{all, own, own}
	case inference.OwnInput:
		return parts{own, own, all}
	}
	return parts{all, all, all}
}

const epsilon = 1e-5

// places are where the buffers of a trial begin.
type places struct{ input, residual, weight, bias, output, residualOut, scales, scale, end int }

func (t Trial) places() (p places) {
	rows, row := t.Tokens*t.Hidden*t.Type.Size(), t.Hidden*t.Type.Size()
	add := func(at *int, n int) {
		*at = p.end
		p.end += (n + 255) / 256 * 256
	}
	add(&p.input, rows)
	add(&p.residual, rows)
	add(&p.weight, row)
	add(&p.bias, row)
	add(&p.output, rows)
	add(&p.residualOut, rows)
	add(&p.scales, 4*t.Tokens)
	add(&p.scale, 4)
	if t.InPlace {
		p.output = p.input
		if !t.NoResidual {
			p.residualOut = p.residual
		}
	}
	return p
}

// Bytes is how much memory a trial takes.
func (t Trial) Bytes() int { return t.places().end }

// mix makes numbers that look random of a place.
func mix(seed uint64, which, i int) float32 {
	x := seed*0x9e3779b97f4a7c15 + uint64(which)*0xbf58476d1ce4e5b9 + uint64(i)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return float32(int32(uint32(x>>32))) / (1 << 30) // -2 to 2
}

// The inputs beside those of ranks, which have their numbers.
const residualInput, weightInput, biasInput = 1000, 1001, 1002

func (t Trial) data(seed uint64, which, n int) []byte {
	b := make([]byte, n*t.Type.Size())
	for i := range n {
		encode(b, t.Type, i, mix(seed, which, i))
	}
	return b
}

// scale is that of outputs with one for the tensor.
const scale = 0.03125

// Call fills the memory of a rank, and returns the call.
func (t Trial) Call(m Memory, rank, ranks int, seed uint64) (*inference.NormCall, error) {
	p, has, row := t.places(), t.parts(rank, ranks), t.Hidden*t.Type.Size()
	for _, x := range []struct {
		at, which int
		rows      [2]int
	}{{p.input, rank, has.input}, {p.residual, residualInput, has.residual}, {p.weight, weightInput, [2]int{0, 1}}, {p.bias, biasInput, [2]int{0, 1}}} {
		data := t.data(seed, x.which, (x.rows[0]+x.rows[1])*t.Hidden)[x.rows[0]*row:]
		if err := m.Write(data, x.at); err != nil {
			return nil, err
		}
	}
	var s [4]byte
	encode(s[:], kernel.Float32, 0, scale)
	if err := m.Write(s[:], p.scale); err != nil {
		return nil, err
	}
	c := &inference.NormCall{
		Norm: t.Norm, Quantization: t.Quantization, Shots: t.Shots, Rows: t.Rows, Type: t.Type, Tokens: t.Tokens, Hidden: t.Hidden, Epsilon: epsilon,
		Input: m.Pointer(p.input), Output: m.Pointer(p.output), ResidualOut: m.Pointer(p.residualOut),
	}
	if t.Norm != inference.NoNorm {
		c.Weight = m.Pointer(p.weight)
	} else if t.sumIsOutput() {
		c.ResidualOut = nil
	}
	if !t.NoResidual {
		c.Residual = m.Pointer(p.residual)
	}
	if t.Bias {
		c.Bias = m.Pointer(p.bias)
	}
	switch t.Quantization {
	case inference.E4M3PerToken, inference.Int8PerToken:
		c.Scales = m.Pointer(p.scales)
	case inference.E4M3PerTensor, inference.Int8PerTensor:
		c.Scale = m.Pointer(p.scale)
	}
	return c, nil
}

// result has the bytes that a call has written.
type result struct{ sum, out, scales []byte }

// sumIsOutput reports whether the call writes the sum once.
func (t Trial) sumIsOutput() bool {
	return t.Norm == inference.NoNorm && t.Quantization == inference.NotQuantized
}

func (t Trial) read(m Memory, has parts) (r result, err error) {
	p, size := t.places(), t.outType().Size()
	r = result{make([]byte, has.residual[1]*t.Hidden*t.Type.Size()), make([]byte, has.output[1]*t.Hidden*size), make([]byte, 4*has.output[1])}
	if !t.sumIsOutput() {
		err = m.Read(r.sum, p.residualOut)
	}
	if err == nil {
		err = m.Read(r.out, p.output)
	}
	if c := t.Quantization; err == nil && (c == inference.E4M3PerToken || c == inference.Int8PerToken) {
		err = m.Read(r.scales, p.scales)
	}
	return r, err
}

// sums are those of all rows, and how far each may be off.
func (t Trial) sums(rank, ranks int, seed uint64) (want, slack []float64) {
	n := t.Tokens * t.Hidden
	want, slack = make([]float64, n), make([]float64, n)
	add := func(b []byte, rows [2]int) {
		for i := rows[0] * t.Hidden; i < (rows[0]+rows[1])*t.Hidden; i++ {
			v := decode(b, t.Type, i)
			want[i] += v
			slack[i] += math.Abs(v) * 1e-6
		}
	}
	for r := range ranks {
		rows := [2]int{0, t.Tokens}
		if t.Rows == inference.OwnInput {
			rows[0], rows[1] = t.own(r, ranks)
		}
		if t.Rows != inference.Local || r == rank {
			add(t.data(seed, r, n), rows)
		}
	}
	if !t.NoResidual {
		add(t.data(seed, residualInput, n), [2]int{0, t.Tokens})
	}
	for i := range want {
		slack[i] += unit(t.Type) * math.Abs(want[i])
	}
	return want, slack
}

// Check compares the results of a call with the right ones, and returns a number that is the same for ranks with the same result.
func (t Trial) Check(m Memory, rank, ranks int, seed uint64) (sum uint64, err error) {
	has := t.parts(rank, ranks)
	r, err := t.read(m, has)
	if err != nil {
		return 0, err
	}
	want, slack := t.sums(rank, ranks, seed)
	if !t.sumIsOutput() {
		for i := range has.residual[1] * t.Hidden {
			k := has.residual[0]*t.Hidden + i
			got := decode(r.sum, t.Type, i)
			if !within(got, want[k], slack[k]) {
				return 0, fmt.Errorf("%v: sum of row %d, element %d: %v: expected %v", t, k/t.Hidden, k%t.Hidden, got, want[k])
			}
			want[k], slack[k] = got, 0
		}
	}
	weight, bias := t.data(seed, weightInput, t.Hidden), t.data(seed, biasInput, t.Hidden)
	for row := range has.output[1] {
		first := (has.output[0] + row) * t.Hidden
		if err := t.checkRow(&r, row, want[first:first+t.Hidden], slack[first:first+t.Hidden], weight, bias); err != nil {
			return 0, err
		}
	}
	if t.Rows != inference.AllRows && t.Rows != inference.Local {
		r.sum = nil
	}
	if t.Rows == inference.OwnRows || t.Rows == inference.Local {
		return 0, nil
	}
	h := fnv.New64a()
	for _, b := range [][]byte{r.sum, r.out, r.scales} {
		h.Write(b)
	}
	return h.Sum64(), nil
}

func within(got, want, by float64) bool { return math.Abs(got-want) <= by }

// normal is the norm of a row of sums, and how far its elements may be off.
func (t Trial) normal(x, slack []float64, weight, bias []byte) (y, off []float64, largest float64) {
	mean, squares, inverse := 0.0, 0.0, 1.0
	if t.Norm == inference.LayerNorm {
		for i := range x {
			mean += x[i] / float64(t.Hidden)
		}
	}
	for i := range x {
		squares += (x[i] - mean) * (x[i] - mean) / float64(t.Hidden)
	}
	if t.Norm != inference.NoNorm {
		inverse = 1 / math.Sqrt(squares+epsilon)
	}
	y, off = make([]float64, t.Hidden), make([]float64, t.Hidden)
	average := 0.0 // by which sums are off
	for i := range slack {
		average += slack[i] / float64(t.Hidden)
	}
	for i := range y {
		w := 1.0
		if t.Norm != inference.NoNorm {
			w = decode(weight, t.Type, i)
		}
		y[i] = (x[i] - mean) * inverse * w
		off[i] = 1.5*slack[i]*inverse*math.Abs(w) + 2e-5
		if t.Bias {
			y[i] += decode(bias, t.Type, i)
		}
		if t.Norm != inference.NoNorm {
			off[i] += unit(t.Type)*math.Abs(y[i]) + average*inverse*(math.Abs(w)+math.Abs(y[i]))
		}
		largest = max(largest, math.Abs(y[i]))
	}
	return y, off, largest
}

// checkRow compares a row with the norm of its sums.
func (t Trial) checkRow(r *result, row int, x, slack []float64, weight, bias []byte) error {
	first := row * t.Hidden
	y, off, largest := t.normal(x, slack, weight, bias)
	by := 1.0
	switch t.Quantization {
	case inference.E4M3PerToken, inference.Int8PerToken:
		by = decode(r.scales, kernel.Float32, row)
		want := largest / t.top()
		if !within(by, want, want*(3*unit(t.Type)+1e-4)) {
			return fmt.Errorf("%v: scale of row %d: %v: expected %v", t, row, by, want)
		}
	case inference.E4M3PerTensor, inference.Int8PerTensor:
		by = scale
	}
	for i, want := range y {
		got := decode(r.out, t.outType(), first+i) * by
		switch t.outType() {
		case kernel.Float8E4M3:
			off[i] += math.Abs(want)/16 + by/512
			want = min(max(want, -448*by), 448*by)
		case kernel.Int8:
			off[i] += by * 0.501
			want = min(max(want, -128*by), 127*by)
		}
		if !within(got, want, off[i]) {
			return fmt.Errorf("%v: row %d, element %d: %v: expected %v", t, row, i, got, want)
		}
	}
	return nil
}

func (t Trial) top() float64 {
	if t.outType() == kernel.Int8 {
		return 127
	}
	return 448
}

func (t Trial) outType() kernel.DataType {
	switch t.Quantization {
	case inference.E4M3PerToken, inference.E4M3PerTensor:
		return kernel.Float8E4M3
	case inference.Int8PerToken, inference.Int8PerTensor:
		return kernel.Int8
	}
	return t.Type
}
