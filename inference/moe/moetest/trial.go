// Package moetest knows what right results of dispatch and combine are, computed in float64. Tests and `mscclpp-run check` use it.
package moetest

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/inference/moe"
)

// Memory allocates the buffers with which a test calls dispatch and combine.
type Memory interface {
	Pointer(at int) unsafe.Pointer // a multiple of 16 for every multiple of 16
	Write(p []byte, at int) error
	Read(p []byte, at int) error
}

// Trial is a dispatch, and a combine of what came, without experts between: they are the identity, so that each token gets its row times
// the sum of its weights.
type Trial struct {
	Options    moe.Options
	Hidden     int
	TopK       int
	Format     moe.Format
	RoundScale bool
	Exponents  bool
	Index64    bool
	Weighted   bool // dispatch brings the weights
	Split      bool // in two phases
	Slots      int  // 0: as many as may come
	Tokens     func(rank int) int
}

func (t Trial) String() string {
	return fmt.Sprintf("moe %d tokens, hidden %d, top %d of %d, format=%d round=%v exponents=%v index64=%v weighted=%v split=%v",
		t.Options.Tokens, t.Hidden, t.TopK, t.Options.Experts, t.Format, t.RoundScale, t.Exponents, t.Index64, t.Weighted, t.Split)
}

// Options are what the buffer for Trials is made for.
func Options() moe.Options { return moe.Options{Tokens: 12, Hidden: 1024, Experts: 21} }

// Trials are calls of all formats and of odd sizes, for a buffer with Options.
func Trials() (list []Trial) {
	o := Options()
	tokens := []func(int) int{
		func(int) int { return o.Tokens }, func(r int) int { return r * 5 % (o.Tokens + 1) }, func(r int) int { return (r + 1) % 2 * 7 }, func(int) int { return 1 }, func(int) int { return 0 },
	}
	shapes := []struct {
		hidden int
		format moe.Format
	}{{8, moe.BFloat16}, {1000, moe.BFloat16}, {1024, moe.BFloat16}, {128, moe.CastE4M3}, {1024, moe.CastE4M3}, {48, moe.GivenE4M3}, {1024, moe.GivenE4M3}}
	for i := range 3 * len(shapes) {
		s := shapes[i%len(shapes)]
		x := Trial{Options: o, Hidden: s.hidden, Format: s.format, TopK: []int{1, 8, 16, 5}[i%4], Index64: i%2 == 0, Weighted: i%3 == 0, Split: i%4 == 3, Tokens: tokens[i%len(tokens)]}
		if s.format == moe.CastE4M3 {
			x.RoundScale = i/len(shapes) > 0
			x.Exponents = i/len(shapes) > 1 && s.hidden%512 == 0
		}
		list = append(list, x)
	}
	return list
}

// mix makes numbers that look random of a place.
func mix(seed uint64, which, i int) uint32 {
	x := seed*0x9e3779b97f4a7c15 + uint64(which)*0xbf58476d1ce4e5b9 + uint64(i)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return uint32(x >> 32)
}

const indexInput, weightInput, scaleInput = 1000, 2000, 3000

// index is the k-th expert of a token; every ninth is none, and an expert may come twice.
func (t Trial) index(seed uint64, rank, i int) int {
	x := mix(seed, indexInput+rank, i)
	if x%9 == 0 {
		return -1
	}
	return int(x/9) % t.Options.Experts
}

func (t Trial) weight(seed uint64, rank, i int) float32 {
	return float32(mix(seed, weightInput+rank, i)) / (1 << 32)
}

func bf16(v float32) uint16 { return uint16(math.Float32bits(v) >> 16) }

func ofBF16(b uint16) float64 { return float64(math.Float32frombits(uint32(b) << 16)) }

// e4m3 decodes an 8-bit float.
func e4m3(b byte) float64 {
	m, e := float64(b&7), int(b>>3&15)
	v := math.Ldexp(m+8, e-10)
	if e == 0 {
		v = math.Ldexp(m, -9)
	}
	if b&0x7f == 0x7f {
		v = math.NaN()
	}
	if b >= 0x80 {
		v = -v
	}
	return v
}

func (t Trial) given() bool { return t.Format == moe.GivenE4M3 }

// element is one of a row that is sent, before the kernel changes it: its bits and its value.
func (t Trial) element(seed uint64, rank, i int) (bits uint16, value float64) {
	x := mix(seed, rank, i)
	if t.given() {
		bits = uint16(x & 0xff)
		if bits&0x7f == 0x7f {
			bits--
		}
		return bits, e4m3(byte(bits))
	}
	bits = bf16(float32(int32(x)) / (1 << 29)) // -4 to 4
	return bits, ofBF16(bits)
}

func (t Trial) scale(seed uint64, rank, i int) float32 {
	return float32(mix(seed, scaleInput+rank, i)%1000+1) / 1000
}

// rowScales are the scales of a row that are sent, and each is for so many elements.
func (t Trial) rowScales() (n, each int) {
	switch t.Format {
	case moe.CastE4M3:
		return t.Hidden / 128, 128
	case moe.GivenE4M3:
		return t.Hidden / 16, 16
	}
	return 0, t.Hidden
}

func (t Trial) elementBytes() int {
	if t.Format == moe.BFloat16 {
		return 2
	}
	return 1
}

// slots are as many as the expert with the most rows needs, and one more, unless the trial has a number.
func (r Run) slots(ranks int) int {
	if r.Slots != 0 {
		return r.Slots
	}
	return r.Trial.most(r.Seed, ranks) + 1
}

func (t Trial) most(seed uint64, ranks int) int {
	rows, most := make([]int, t.Options.Experts), 0
	for rank := range ranks {
		for i := range t.Tokens(rank) * t.TopK {
			if e := t.index(seed, rank, i); e >= 0 {
				rows[e]++
				most = max(most, rows[e])
			}
		}
	}
	return most
}

// places are where the buffers of a trial begin.
type places struct {
	input, scales, indices, weights, output, outputScales, sources, ranges, received, statistics, handle, experts, combined, end int
}

func (r Run) places() (p places) {
	add := func(at *int, n int) {
		*at = p.end
		p.end += (n + 255) / 256 * 256
	}
	scales, _ := r.rowScales()
	rows := r.Options.Local(r.Ranks) * r.slots(r.Ranks)
	tokens := r.Options.Tokens
	add(&p.input, tokens*r.Hidden*2)
	add(&p.scales, tokens*scales*4)
	add(&p.indices, tokens*r.TopK*8)
	add(&p.weights, tokens*r.TopK*4)
	add(&p.output, rows*r.Hidden*2)
	add(&p.outputScales, rows*scales*4)
	add(&p.sources, rows*4)
	add(&p.ranges, r.Options.Local(r.Ranks)*r.Ranks*8)
	add(&p.received, r.Options.Local(r.Ranks)*4)
	add(&p.statistics, r.Options.Local(r.Ranks)*4)
	add(&p.handle, int(r.Handle))
	add(&p.experts, rows*r.Hidden*2)
	add(&p.combined, tokens*r.Hidden*2)
	return p
}

// Run is a trial on a rank.
type Run struct {
	Trial
	Memory
	Rank, Ranks int
	Seed        uint64
	Handle      uint64 // HandleBytes of the buffer
}

// Bytes is how much memory it takes.
func (r Run) Bytes() int { return r.places().end }

// Dispatch fills the memory, and returns the call.
func (r Run) Dispatch() (*moe.DispatchCall, error) {
	p, n := r.places(), r.Tokens(r.Rank)
	scales, _ := r.rowScales()
	var input, given, indices, weights []byte
	for i := range n * r.Hidden {
		bits, _ := r.element(r.Seed, r.Rank, i)
		if r.given() {
			input = append(input, byte(bits))
		} else {
			input = binary.LittleEndian.AppendUint16(input, bits)
		}
	}
	for i := range n * scales {
		given = binary.LittleEndian.AppendUint32(given, math.Float32bits(r.scale(r.Seed, r.Rank, i)))
	}
	for i := range n * r.TopK {
		e := r.index(r.Seed, r.Rank, i)
		if r.Index64 {
			indices = binary.LittleEndian.AppendUint64(indices, uint64(e))
		} else {
			indices = binary.LittleEndian.AppendUint32(indices, uint32(e))
		}
		weights = binary.LittleEndian.AppendUint32(weights, math.Float32bits(r.weight(r.Seed, r.Rank, i)))
	}
	for _, x := range []struct {
		data []byte
		at   int
	}{{input, p.input}, {given, p.scales}, {indices, p.indices}, {weights, p.weights}, {make([]byte, 4*r.Options.Local(r.Ranks)), p.statistics}} {
		if err := r.Write(x.data, x.at); err != nil {
			return nil, err
		}
	}
	c := &moe.DispatchCall{
		Format: r.Format, Tokens: n, Hidden: r.Hidden, TopK: r.TopK, Slots: r.slots(r.Ranks), RoundScale: r.RoundScale, Exponents: r.Exponents,
		Input: r.Pointer(p.input), Indices: r.Pointer(p.indices), Index64: r.Index64, Output: r.Pointer(p.output), Sources: r.Pointer(p.sources),
		Ranges: r.Pointer(p.ranges), Received: r.Pointer(p.received), Statistics: r.Pointer(p.statistics), Handle: r.Pointer(p.handle),
	}
	if scales != 0 {
		c.OutputScales = r.Pointer(p.outputScales)
	}
	if r.given() {
		c.Scales, c.RowScales = r.Pointer(p.scales), scales
	}
	if r.Weighted {
		c.Weights = r.Pointer(p.weights)
	}
	return c, nil
}

// Combine returns the call that follows on a dispatch that Check has found to be right.
func (r Run) Combine() *moe.CombineCall {
	p := r.places()
	return &moe.CombineCall{
		Tokens: r.Tokens(r.Rank), Hidden: r.Hidden, TopK: r.TopK, Slots: r.slots(r.Ranks), Input: r.Pointer(p.experts), Indices: r.Pointer(p.indices), Index64: r.Index64,
		Weights: r.Pointer(p.weights), Weighted: r.Weighted, Handle: r.Pointer(p.handle), Output: r.Pointer(p.combined),
	}
}
