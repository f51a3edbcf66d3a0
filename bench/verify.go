package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Reference computes correct results.
type Reference interface {
	// Fill writes consecutive elements of a rank's input, beginning with element first.
	// Another seed gives other data, so that remains of an earlier call are noticed.
	Fill(dst []byte, t kernel.DataType, op kernel.Op, seed uint64, rank, first int)
	// Reduce writes the correct reduction of the ranks' inputs.
	Reduce(dst []byte, inputs [][]byte, t kernel.DataType, op kernel.Op, scale float64)
	// Wrong counts the elements of got that differ from want by more than rounding between
	// that many ranks explains; 1 rank permits no difference.
	Wrong(got, want []byte, t kernel.DataType, op kernel.Op, ranks int) int64
}

// Verifier checks single calls.
type Verifier struct {
	Reference Reference
	seed      uint64
}

const (
	poison = 0xa5
	chunk  = 32 << 10 // elements whose expected value is held at a time
	margin = 256      // bytes around the output that must stay as they are
)

// Result is the outcome of a checked call on one rank.
type Result struct {
	Wrong  int64  // elements
	Digest uint32 // of the output; equal outputs have equal digests
}

// Verify fills the inputs with data not used before, poisons the memory around the
// buffers, runs the call once and checks the result. An element of the input or of the
// memory around that changed counts as wrong too. All ranks call it with the same
// arguments.
func (v *Verifier) Verify(g Group, c *Call, w Window) (Result, error) {
	v.seed++
	r, err := v.Repeat(g, c, w)
	if err == nil {
		r.Wrong += v.output(c, w, g.Rank(), g.Size())
	}
	return r, err
}

// Repeat makes the call of the last Verify again, on the same data. It checks
// everything but the output as Verify does; the output is correct if its digest is that
// of a correct one.
func (v *Verifier) Repeat(g Group, c *Call, w Window) (Result, error) {
	size := c.Type.Size()
	in, out := c.Collective.Elements(c.Count, g.Size(), g.Rank(), c.Root)
	if c.Collective == AllToAllV {
		in, out = c.V.Totals()
	}
	input, touched := w.in.at(c.In, in*size), w.out.at(c.Out, out*size)
	output := touched
	if w.shared {
		touched = touched.union(input)
	}
	around := stretch{max(touched.low-margin, 0), min(touched.high+margin, len(w.out.View))}
	w.content.ones = 0
	fill(w.out.View[around.low:around.high])
	v.Reference.Fill(w.in.View[input.low:input.high], c.Type, c.Op, v.seed, g.Rank(), 0)
	if err := errors.Join(w.out.push(around), w.in.push(input)); err != nil {
		return Result{}, err
	}
	if err := g.Barrier(); err != nil {
		return Result{}, fmt.Errorf("barrier before the checked call: %w", err)
	}
	if err := g.Do(c); err != nil {
		return Result{}, err
	}
	if err := errors.Join(finish(g), w.out.pull(around), w.in.pull(input)); err != nil {
		return Result{}, err
	}
	wrong := spoiled(w.out.View[around.low:touched.low], size) + spoiled(w.out.View[touched.high:around.high], size)
	if !w.shared {
		wrong += v.inputChanged(c, w, g.Rank(), in)
	}
	return Result{wrong, crc32.Checksum(w.out.View[output.low:output.high], castagnoli())}, nil
}

var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// output compares the output with what is expected, a chunk at a time.
func (v *Verifier) output(c *Call, w Window, rank, ranks int) int64 {
	size := c.Type.Size()
	output := w.out.View[w.out.at(c.Out, 0).low:]
	want := make([]byte, chunk*size)
	wrong := int64(0)
	for _, r := range c.expected(rank, ranks) {
		for done := 0; done < r.n; done += chunk {
			n := min(chunk, r.n-done)
			got := output[(r.out+done)*size:][:n*size]
			if r.from == everyone {
				v.reduce(want[:n*size], c, ranks, r.first+done)
				wrong += v.Reference.Wrong(got, want[:n*size], c.Type, c.Op, ranks)
			} else {
				v.Reference.Fill(want[:n*size], c.Type, c.Op, v.seed, r.from, r.first+done)
				wrong += v.Reference.Wrong(got, want[:n*size], c.Type, c.Op, 1)
			}
		}
	}
	return wrong
}

// reduce computes a stretch of the right reduction from the inputs of all ranks.
func (v *Verifier) reduce(want []byte, c *Call, ranks, first int) {
	inputs := make([][]byte, ranks)
	for r := range inputs {
		inputs[r] = make([]byte, len(want))
		v.Reference.Fill(inputs[r], c.Type, c.Op, v.seed, r, first)
	}
	v.Reference.Reduce(want, inputs, c.Type, c.Op, c.Scale)
}

// inputChanged counts elements of an input that the call was not to touch.
func (v *Verifier) inputChanged(c *Call, w Window, rank, in int) int64 {
	size := c.Type.Size()
	input := w.in.View[w.in.at(c.In, 0).low:]
	want := make([]byte, chunk*size)
	wrong := int64(0)
	for done := 0; done < in; done += chunk {
		n := min(chunk, in-done)
		v.Reference.Fill(want[:n*size], c.Type, c.Op, v.seed, rank, done)
		wrong += differing(input[done*size:][:n*size], want[:n*size], size)
	}
	return wrong
}

func fill(b []byte) { repeat(b, []byte{poison}) }

// repeat fills b with copies of a pattern.
func repeat(b, pattern []byte) {
	for done := copy(b, pattern); done < len(b); done *= 2 {
		copy(b[done:], b[:done])
	}
}

// spoiled counts elements, rounded up, that are no longer poison.
func spoiled(b []byte, size int) int64 {
	n := 0
	for _, x := range b {
		if x != poison {
			n++
		}
	}
	return int64((n + size - 1) / size)
}

func differing(a, b []byte, size int) int64 {
	if bytes.Equal(a, b) {
		return 0
	}
	n := int64(0)
	for i := 0; i < len(a); i += size {
		if !bytes.Equal(a[i:i+size], b[i:i+size]) {
			n++
		}
	}
	return n
}

// verify runs one checked call and adds up the wrong elements of all ranks.
func (v *Verifier) verify(ctx context.Context, g Group, c *Call, w Window) (*int64, error) {
	mine, err := v.Verify(g, c, w)
	if err != nil {
		return nil, err
	}
	all, err := total(ctx, g, mine.Wrong)
	return &all, err
}
