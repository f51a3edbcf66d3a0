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
	Bias           bool
	NoResidual     bool
	InPlace        bool // the output is the input, and residual_out the residual
}

func (t Trial) String() string {
	return fmt.Sprintf("all_reduce_norm norm=%d quantization=%d shots=%d %v %dx%d bias=%v residual=%v in-place=%v",
		t.Norm, t.Quantization, t.Shots, t.Type, t.Tokens, t.Hidden, t.Bias, !t.NoResidual, t.InPlace)
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
	return list
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
func (t Trial) Call(m Memory, rank int, seed uint64) (*inference.NormCall, error) {
	p, n := t.places(), t.Tokens*t.Hidden
	for _, x := range []struct{ at, which, n int }{{p.input, rank, n}, {p.residual, residualInput, n}, {p.weight, weightInput, t.Hidden}, {p.bias, biasInput, t.Hidden}} {
		if err := m.Write(t.data(seed, x.which, x.n), x.at); err != nil {
			return nil, err
		}
	}
	var s [4]byte
	encode(s[:], kernel.Float32, 0, scale)
	if err := m.Write(s[:], p.scale); err != nil {
		return nil, err
	}
	c := &inference.NormCall{
		Norm: t.Norm, Quantization: t.Quantization, Shots: t.Shots, Type: t.Type, Tokens: t.Tokens, Hidden: t.Hidden, Epsilon: epsilon,
		Input: m.Pointer(p.input), Weight: m.Pointer(p.weight), Output: m.Pointer(p.output), ResidualOut: m.Pointer(p.residualOut),
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

func (t Trial) read(m Memory) (r result, err error) {
	p, n := t.places(), t.Tokens*t.Hidden
	size := t.Type.Size()
	if t.Quantization != inference.NotQuantized {
		size = 1
	}
	r = result{make([]byte, n*t.Type.Size()), make([]byte, n*size), make([]byte, 4*t.Tokens)}
	if err = m.Read(r.sum, p.residualOut); err == nil {
		err = m.Read(r.out, p.output)
	}
	if c := t.Quantization; err == nil && (c == inference.E4M3PerToken || c == inference.Int8PerToken) {
		err = m.Read(r.scales, p.scales)
	}
	return r, err
}

// Check compares the results of a call with the right ones, and returns a number that is the same for ranks with the same result.
func (t Trial) Check(m Memory, ranks int, seed uint64) (sum uint64, err error) {
	r, err := t.read(m)
	if err != nil {
		return 0, err
	}
	n := t.Tokens * t.Hidden
	var inputs [][]byte
	for rank := range ranks {
		inputs = append(inputs, t.data(seed, rank, n))
	}
	if !t.NoResidual {
		inputs = append(inputs, t.data(seed, residualInput, n))
	}
	for i := range n {
		want, most := 0.0, 0.0
		for _, b := range inputs {
			v := decode(b, t.Type, i)
			want += v
			most += math.Abs(v)
		}
		if got := decode(r.sum, t.Type, i); !within(got, want, unit(t.Type)*math.Abs(want)+most*1e-6) {
			return 0, fmt.Errorf("%v: sum of row %d, element %d: %v: expected %v", t, i/t.Hidden, i%t.Hidden, got, want)
		}
	}
	weight, bias := t.data(seed, weightInput, t.Hidden), t.data(seed, biasInput, t.Hidden)
	for row := range t.Tokens {
		if err := t.checkRow(&r, row, weight, bias); err != nil {
			return 0, err
		}
	}
	h := fnv.New64a()
	for _, b := range [][]byte{r.sum, r.out, r.scales} {
		h.Write(b)
	}
	return h.Sum64(), nil
}

func within(got, want, by float64) bool { return math.Abs(got-want) <= by }

// checkRow compares a row with the norm of the sums that were written.
func (t Trial) checkRow(r *result, row int, weight, bias []byte) error {
	first := row * t.Hidden
	mean, squares := 0.0, 0.0
	if t.Norm == inference.LayerNorm {
		for i := range t.Hidden {
			mean += decode(r.sum, t.Type, first+i) / float64(t.Hidden)
		}
	}
	for i := range t.Hidden {
		v := decode(r.sum, t.Type, first+i) - mean
		squares += v * v / float64(t.Hidden)
	}
	inverse := 1 / math.Sqrt(squares+epsilon)
	y, largest := make([]float64, t.Hidden), 0.0
	for i := range y {
		y[i] = (decode(r.sum, t.Type, first+i) - mean) * inverse * decode(weight, t.Type, i)
		if t.Bias {
			y[i] += decode(bias, t.Type, i)
		}
		largest = max(largest, math.Abs(y[i]))
	}
	by := 1.0
	switch t.Quantization {
	case inference.E4M3PerToken, inference.Int8PerToken:
		by = decode(r.scales, kernel.Float32, row)
		want := largest / t.top()
		if !within(by, want, want*(2*unit(t.Type)+1e-4)) {
			return fmt.Errorf("%v: scale of row %d: %v: expected %v", t, row, by, want)
		}
	case inference.E4M3PerTensor, inference.Int8PerTensor:
		by = scale
	}
	for i, want := range y {
		got, slack := decode(r.out, t.outType(), first+i)*by, unit(t.Type)*math.Abs(want)+2e-5
		switch t.outType() {
		case kernel.Float8E4M3:
			slack += math.Abs(want)/16 + by/512
			want = min(max(want, -448*by), 448*by)
		case kernel.Int8:
			slack += by * 0.501
			want = min(max(want, -128*by), 127*by)
		}
		if !within(got, want, slack) {
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
