package devicetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Sums by packets without a flag come to the same memory again and again, with other sizes, types and algorithms between.
// A NaN of all ones, which nothing sends, is a NaN in the result, with the same bits on all ranks.
func TestLamportSums(t *testing.T) {
	const half = 1 << 20
	type call struct {
		algorithm string
		count     int
		dtype     kernel.DataType
		op        kernel.Op
	}
	calls := []call{
		{"oneshot_lamport", 5, kernel.Float16, kernel.Sum}, {"oneshot_lamport", 30_000, kernel.Float32, kernel.Sum},
		{"oneshot_lamport", 3, kernel.Float16, kernel.Avg}, {"oneshot_ll8", 1000, kernel.Float32, kernel.Sum},
		{"oneshot_lamport", 40_001, kernel.Float16, kernel.Sum}, {"oneshot_lamport", 1, kernel.Float32, kernel.Max},
		{"oneshot_lamport", 1000, kernel.Float16, kernel.PreMulSum}, {"oneshot_lamport", 7000, kernel.Float32, kernel.Sum},
	}
	for _, n := range []int{2, 3} {
		var mu sync.Mutex
		results := make([][]byte, 2*len(calls))
		job(t, n, collectives.Options{}, func(ctx context.Context, r *rank) error {
			m, err := r.memory(ctx, 2*half)
			if err != nil {
				return err
			}
			for i := range results {
				c := calls[i%len(calls)]
				x := trial{Kind: collectives.AllReduce, Algorithm: c.algorithm, Count: c.count, Type: c.dtype, Op: c.op}
				inputs := x.Inputs(n, uint64(i))
				if c.op != kernel.Max { // a maximum need not be NaN
					ones(inputs[i%n], c.dtype)
				}
				if err := errors.Join(r.dev.WriteAt(inputs[r.Rank()], m.Addr()), x.Call(r.Comm, pointer(m.Addr()), pointer(m.Addr()+half), r.stream), r.settle(ctx)); err != nil {
					return fmt.Errorf("call %d: %v: %w", i, x, err)
				}
				got := make([]byte, len(inputs[0]))
				if err := r.dev.ReadAt(got, m.Addr()+half); err != nil {
					return err
				}
				if err := numbers(got, x.Expect(r.Rank(), inputs), inputs, c.dtype); err != nil {
					return fmt.Errorf("call %d: %v: %w", i, x, err)
				}
				mu.Lock()
				if results[i] == nil {
					results[i] = got
				}
				same := bytes.Equal(results[i], got)
				mu.Unlock()
				if !same {
					return fmt.Errorf("call %d: %v: another rank has other bits", i, x)
				}
			}
			return nil
		})
	}
}

// ones makes some elements the NaN that stands for no packet, alone and as a whole packet.
func ones(input []byte, d kernel.DataType) {
	for at := 0; at < len(input); at += 1000 / 16 * 16 {
		end := at + d.Size()
		if at/16%2 == 1 {
			end = at + 16
		}
		for i := at; i < min(end, len(input)); i++ {
			input[i] = 0xff
		}
	}
}

// numbers compares elements: where an input is NaN the result is.
func numbers(got, want []byte, inputs [][]byte, d kernel.DataType) error {
	nan := func(p []byte) bool {
		if d == kernel.Float16 {
			return binary.LittleEndian.Uint16(p)&0x7fff > 0x7c00
		}
		return binary.LittleEndian.Uint32(p)&0x7fffffff > 0x7f800000
	}
	for at := 0; at < len(want); at += d.Size() {
		g, w := got[at:at+d.Size()], want[at:at+d.Size()]
		if slices.ContainsFunc(inputs, func(in []byte) bool { return nan(in[at:]) }) {
			if !nan(g) {
				return fmt.Errorf("element %d is %x, expected NaN", at/d.Size(), g)
			}
		} else if !bytes.Equal(g, w) {
			return fmt.Errorf("element %d is %x, expected %x", at/d.Size(), g, w)
		}
	}
	return nil
}

// Types without a NaN to spare are refused, with a text that names the type.
func TestLamportRefusesTypes(t *testing.T) {
	job(t, 2, collectives.Options{}, func(_ context.Context, r *rank) error {
		for _, d := range []kernel.DataType{kernel.Int8, kernel.Uint8, kernel.Int32, kernel.Uint32, kernel.Int64, kernel.Uint64, kernel.Float8E4M3B15} {
			x := trial{Kind: collectives.AllReduce, Count: 100, Type: d}
			_, err := r.Choice(x.Request(2), "oneshot_lamport")
			if want := fmt.Sprintf("algorithm oneshot_lamport does not reduce %v", d); !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("%v: %w, expected %q", d, err, want)
			}
		}
		return nil
	})
}

// Data movement changes no bit, whatever the pattern.
func TestEveryPatternIsMoved(t *testing.T) {
	const half = 512 << 10
	job(t, 3, collectives.Options{}, func(ctx context.Context, r *rank) error {
		m, err := r.memory(ctx, 2*half)
		if err != nil {
			return err
		}
		moved, err := collectivetest.EveryPattern(r.Comm, r.rig(ctx, m.Addr(), half))
		if err == nil && moved < 20 {
			err = fmt.Errorf("%d algorithms moved the patterns, expected at least 20", moved)
		}
		return err
	})
}
