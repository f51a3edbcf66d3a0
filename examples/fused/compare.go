package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/mscclpp-go/mscclpp/collectives"
)

const (
	chunk   = 16 << 20 // bytes that are compared at once
	samples = 2000     // elements that are computed on the CPU
)

// compare runs both ways with fresh numbers, checks what they make, measures them, and
// checks once more. Collective.
func compare(ctx context.Context, x *collectives.Comm, code []byte, s shape, iters int) (r report, err error) {
	if err := s.check(); err != nil {
		return r, err
	}
	c := x.Communicator()
	w, err := newWork(ctx, x, code, s)
	if err != nil {
		return r, err
	}
	defer func() {
		if err != nil {
			c.Abort(err) // the others must not wait for this rank
		}
		err = errors.Join(err, w.close(ctx))
	}()
	for seed := range uint64(2) { // twice: what the first has left must not pass for the second's
		if err := w.verify(1 + 2*seed); err != nil {
			return r, err
		}
	}
	if iters > 0 {
		laps, err := w.measure(iters)
		if err != nil {
			return r, err
		}
		if r, err = summarize(ctx, c, s, laps); err != nil {
			return r, err
		}
		if err := w.verify(5); err != nil {
			return r, fmt.Errorf("after the measurements: %w", err)
		}
	}
	r.shape, r.ranks = s, c.Size()
	return r, c.Barrier(ctx) // no rank frees memory that a peer may still write
}

// verify fills the inputs, multiplies both ways, and checks the results.
func (w *work) verify(seed uint64) error {
	a, b := matrix{seed}, matrix{seed + 1}
	if err := w.fill(a, b); err != nil {
		return err
	}
	if err := errors.Join(w.fused(), w.multiply(), w.gather()); err != nil {
		return err
	}
	if err := w.finish(); err != nil {
		return err
	}
	if err := w.alike(); err != nil {
		return err
	}
	return w.sample(a, b, seed)
}

// fill writes this rank's rows of A, and B.
func (w *work) fill(a, b matrix) error {
	part := make([]byte, w.shape.rows()*w.shape.k*2)
	a.fill(part, w.rank*w.shape.rows(), w.shape.k)
	if err := w.device.write(w.a, 0, part); err != nil {
		return err
	}
	all := make([]byte, w.shape.n*w.shape.k*2)
	b.fill(all, 0, w.shape.k)
	return w.device.write(w.b, 0, all)
}

// alike checks that both ways have made the same, bit by bit.
func (w *work) alike() error {
	size := w.shape.m * w.shape.n * 2
	one, other := make([]byte, min(chunk, size)), make([]byte, min(chunk, size))
	for at := 0; at < size; at += len(one) {
		n := min(len(one), size-at)
		if err := errors.Join(w.device.read(one[:n], w.c[0], at), w.device.read(other[:n], w.c[1], at)); err != nil {
			return err
		}
		if bytes.Equal(one[:n], other[:n]) {
			continue
		}
		for i := 0; i < n; i += 2 {
			got, want := binary.LittleEndian.Uint16(one[i:]), binary.LittleEndian.Uint16(other[i:])
			if got != want {
				row, column := (at+i)/2/w.shape.n, (at+i)/2%w.shape.n
				return fmt.Errorf("element (%d, %d), which rank %d makes: the fused kernel gave %g, multiplication and all-gather %g",
					row, column, row/w.shape.rows(), fromHalf(got), fromHalf(want))
			}
		}
	}
	return nil
}

// sample computes some elements here: corners of tiles, and others at random.
func (w *work) sample(a, b matrix, seed uint64) error {
	random := rand.New(rand.NewPCG(seed, uint64(w.rank)))
	var bits [2]byte
	for i := range samples {
		row, column := random.IntN(w.shape.m), random.IntN(w.shape.n)
		if i%4 == 0 {
			row, column = row/tile*tile+i/4%2*(tile-1), column/tile*tile+i/8%2*(tile-1)
		}
		if err := w.device.read(bits[:], w.c[0], (row*w.shape.n+column)*2); err != nil {
			return err
		}
		got, want := binary.LittleEndian.Uint16(bits[:]), product(a, b, row, column, w.shape.k)
		if got != want && got&want|(got|want)&0x7fff != 0 { // zero has two signs
			return fmt.Errorf("element (%d, %d), which rank %d makes: %g, expected %g",
				row, column, row/w.shape.rows(), fromHalf(got), fromHalf(want))
		}
	}
	return nil
}
