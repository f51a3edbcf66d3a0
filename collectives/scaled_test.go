package collectives_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Every rank multiplies by its own scalar, in every algorithm of every reduction: on one host, over several with and
// without levels, and alone.
func TestScalesOfRanksDiffer(t *testing.T) {
	const most = 3001
	for _, layout := range []string{"a", "aa", "aaa", "ab", "abc", "aab", "aabb"} {
		t.Run(layout, func(t *testing.T) {
			n := len(layout)
			hosts(t, strings.Split(layout, ""), true, collectives.Options{}, func(_ context.Context, c *collectives.Comm) error {
				memory := buffers{make([]byte, most*8*n+4096), make([]byte, most*8*n+4096)}
				i := 0
				for _, kind := range []collectives.Collective{collectives.AllReduce, collectives.ReduceScatter, collectives.Reduce} {
					for _, algorithm := range append(c.Algorithms(kind), "") {
						if strings.HasPrefix(algorithm, "zerocopy") {
							continue // reads exchanged memory; see TestResults
						}
						for _, count := range []int{1, 17, 255, most} {
							i++
							x := trial{Kind: kind, Algorithm: algorithm, Count: count, Type: kernel.DataType(i % kernel.DataTypes), Op: kernel.PreMulSum,
								Root: i % n, InPlace: i/3%2 == 0, Shift: i % 2}
							if _, err := c.Choice(x.Request(n), algorithm); errors.Is(err, framework.ErrUnsupported) && algorithm != "" {
								continue
							}
							if err := x.Run(memory.of(c), uint64(i)); err != nil {
								return err
							}
						}
					}
				}
				return nil
			})
		})
	}
}

// A call with more products than their memory holds goes in pieces; elements at their seams are right.
func TestScaledInPieces(t *testing.T) {
	const n, most = 2, 32<<20 + 12345
	job(t, n, collectives.Options{}, func(_ context.Context, c *collectives.Comm) error {
		in, out := make([]byte, n*most), make([]byte, most)
		for i := range in {
			in[i] = byte(i*7 + c.Rank())
		}
		check := func(what string, got []byte, first int) error {
			for i, b := range got {
				at := first + i
				if want := byte(at*7)*3 + byte(at*7+1)*4; b != want {
					return fmt.Errorf("%s: element %d is %d: expected %d", what, i, b, want)
				}
			}
			return nil
		}
		o := &collectives.CallOptions{Scale: float64(3 + c.Rank())}
		if err := c.Reduce(pointer(in), pointer(out), most, kernel.Uint8, kernel.PreMulSum, 1, o); err != nil {
			return err
		}
		if c.Rank() == 1 {
			if err := check("reduce", out, 0); err != nil {
				return err
			}
		}
		const share = 20 << 20
		own := in[c.Rank()*share:][:share]
		if err := c.ReduceScatter(pointer(in), pointer(own), share, kernel.Uint8, kernel.PreMulSum, o); err != nil {
			return err
		}
		return check("reduce-scatter", own, c.Rank()*share)
	})
}

// Scalars of 64 bits that f64 does not hold, zero, and what is no number. ScaleAt is read before the call returns, and
// on the host with ScaleOnDevice as well.
func TestScaleAt(t *testing.T) {
	nan, inf := math.Float32bits(float32(math.NaN())), math.Float32bits(float32(math.Inf(1)))
	all := []struct {
		dtype         kernel.DataType
		scale, values [2]uint64 // of two ranks
		want          uint64
	}{
		{kernel.Uint64, [2]uint64{1<<63 + 1, 1<<53 + 1}, [2]uint64{3, 5}, 3*(1<<63+1) - 1<<64 + 5*(1<<53+1)},
		{kernel.Int64, [2]uint64{1<<64 - 1<<53 - 1, 1}, [2]uint64{1, 0}, 1<<64 - 1<<53 - 1},
		{kernel.Int64, [2]uint64{1<<62 + 1, 0}, [2]uint64{4, 77}, 4},
		{kernel.Int8, [2]uint64{0xff, 2}, [2]uint64{5, 3}, 1},
		{kernel.Float32, [2]uint64{0, 0}, [2]uint64{0x40400000, 0xc0400000}, 0},
		{kernel.Float32, [2]uint64{0, 0}, [2]uint64{uint64(inf), 0}, uint64(nan)},
		{kernel.Float32, [2]uint64{0, 0x3f800000}, [2]uint64{uint64(nan), 0}, uint64(nan)},
		{kernel.Float32, [2]uint64{uint64(inf), 0x3f800000}, [2]uint64{0x3f800000, 0x3f800000}, uint64(inf)},
		{kernel.Float16, [2]uint64{0x3800, 0x4000}, [2]uint64{0x4400, 0x3c00}, 0x4400}, // 0.5 * 4 + 2 * 1
		{kernel.BFloat16, [2]uint64{0x3f00, 0x4000}, [2]uint64{0x4080, 0x3f80}, 0x4080},
		{kernel.Float8E4M3, [2]uint64{0x30, 0x40}, [2]uint64{0x48, 0x38}, 0x48},
		{kernel.Float64, [2]uint64{math.Float64bits(0.1), 0}, [2]uint64{math.Float64bits(3), math.Float64bits(1)}, 0x3fd3333333333334},
	}
	for _, layout := range []string{"aa", "ab"} {
		t.Run(layout, func(t *testing.T) {
			hosts(t, strings.Split(layout, ""), true, collectives.Options{}, func(_ context.Context, c *collectives.Comm) error {
				for i, x := range all {
					var in, out, scale [8]byte
					binary.LittleEndian.PutUint64(in[:], x.values[c.Rank()])
					binary.LittleEndian.PutUint64(scale[:], x.scale[c.Rank()])
					o := &collectives.CallOptions{Scale: 99, ScaleAt: unsafe.Pointer(&scale), ScaleOnDevice: i%2 == 0}
					if err := c.AllReduce(pointer(in[:]), pointer(out[:]), 1, x.dtype, kernel.PreMulSum, o); err != nil {
						return err
					}
					got := binary.LittleEndian.Uint64(out[:])
					f := math.Float32frombits(uint32(got))
					if want := math.Float32frombits(uint32(x.want)); x.dtype == kernel.Float32 && want != want && f != f {
						continue
					}
					if got != x.want {
						return fmt.Errorf("%v: %#x by %#x: %#x, expected %#x", x.dtype, x.values, x.scale, got, x.want)
					}
				}
				return nil
			})
		})
	}
}

// An algorithm of the program gets products, and a Sum to perform, and may make calls of the same kind meanwhile.
func TestScaledByAlgorithmOfTheProgram(t *testing.T) {
	job(t, 2, collectives.Options{}, func(_ context.Context, c *collectives.Comm) error {
		err := c.RegisterAlgorithm(collectives.Algorithm{Collective: collectives.Reduce, Name: "own", Run: func(c *collectives.Comm, call *collectives.Call) error {
			if call.Op != kernel.Sum {
				return fmt.Errorf("performs %v: expected sum", call.Op)
			}
			one, sum := []byte{1, 1, 1, 1}, make([]byte, 4)
			if err := c.Reduce(pointer(one), pointer(sum), 4, kernel.Uint8, kernel.PreMulSum, 0, &collectives.CallOptions{Scale: float64(10 + c.Rank())}); err != nil {
				return err
			}
			if want := []byte{21, 21, 21, 21}; c.Rank() == 0 && !bytes.Equal(sum, want) {
				return fmt.Errorf("inside: %v, expected %v", sum, want)
			}
			return c.Reduce(call.Input, call.Output, int(call.Count), call.Type, call.Op, call.Root, &collectives.CallOptions{})
		}})
		if err != nil {
			return err
		}
		in, out := []byte{1, 2, 3, 4}, make([]byte, 4)
		for range 3 {
			if err := c.Reduce(pointer(in), pointer(out), 4, kernel.Uint8, kernel.PreMulSum, 0, &collectives.CallOptions{Algorithm: "own", Scale: float64(2 + c.Rank())}); err != nil {
				return err
			}
			if want := []byte{5, 10, 15, 20}; c.Rank() == 0 && !bytes.Equal(out, want) {
				return fmt.Errorf("%v, expected %v", out, want)
			}
		}
		return nil
	})
}

// Multiplying allocates nothing.
func TestScaledCallsDoNotAllocate(t *testing.T) {
	job(t, 1, collectives.Options{}, func(_ context.Context, c *collectives.Comm) error {
		b := make([]byte, 4096)
		o := &collectives.CallOptions{Scale: 1}
		var failed error
		allocated := testing.AllocsPerRun(20, func() {
			failed = errors.Join(failed, c.AllReduce(pointer(b), pointer(b), 1000, kernel.Float32, kernel.PreMulSum, o),
				c.ReduceScatter(pointer(b), pointer(b), 1000, kernel.Float16, kernel.PreMulSum, o))
		})
		if allocated != 0 {
			return fmt.Errorf("%v allocations in two calls", allocated)
		}
		return failed
	})
}
