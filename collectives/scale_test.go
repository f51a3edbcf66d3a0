package collectives_test

import (
	"context"
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

// A scale that the type does not hold is refused, and so are no options; others are taken, by kernels and over ports.
func TestScales(t *testing.T) {
	fraction := []float64{0.5, -1.25, math.NaN(), math.Inf(1)}
	for _, layout := range []string{"aa", "ab"} {
		t.Run(layout, func(t *testing.T) {
			hosts(t, strings.Split(layout, ""), true, collectives.Options{}, func(_ context.Context, c *collectives.Comm) error {
				buffer := make([]uint64, 2)
				in, out := unsafe.Pointer(&buffer[0]), unsafe.Pointer(&buffer[1])
				call := func(dtype kernel.DataType, scale float64) error {
					return c.AllReduce(in, out, 1, dtype, kernel.PreMulSum, &collectives.CallOptions{Scale: scale})
				}
				for dtype := range kernel.DataType(kernel.DataTypes) {
					refused, taken := []float64(nil), []float64{0, math.Copysign(0, -1), 1, 2, 100}
					switch dtype {
					case kernel.Int8:
						refused, taken = append(fraction[:4:4], 128, -129), append(taken, 127, -128)
					case kernel.Uint8:
						refused, taken = append(fraction[:4:4], 256, -1), append(taken, 255)
					case kernel.Int32:
						refused, taken = append(fraction[:4:4], 1<<31), append(taken, -1<<31)
					case kernel.Uint32:
						refused, taken = append(fraction[:4:4], 1<<32, -1), append(taken, 1<<32-1)
					case kernel.Int64:
						refused, taken = append(fraction[:4:4], 1<<63), append(taken, -1<<63)
					case kernel.Uint64:
						refused, taken = append(fraction[:4:4], 1<<64, -1), append(taken, 1<<63)
					case kernel.Float64:
						taken = append(taken, 0.5, 1e300, math.Inf(1))
					default:
						refused, taken = []float64{1e39, 1e-60}, append(taken, 0.5, 1.0/3, math.NaN())
					}
					for _, s := range refused {
						if err := call(dtype, s); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "scale") {
							return fmt.Errorf("%v by %v: %v, expected ErrInvalid", dtype, s, err)
						}
					}
					for _, s := range taken {
						if err := call(dtype, s); err != nil {
							return fmt.Errorf("%v by %v: %w", dtype, s, err)
						}
					}
				}
				if err := c.AllReduce(in, out, 1, kernel.Float32, kernel.PreMulSum, nil); !errors.Is(err, framework.ErrInvalid) {
					return fmt.Errorf("no options: %v, expected ErrInvalid", err)
				}
				return nil
			})
		})
	}
}

// special is a reduction of two inputs whose result docs/numerics.md fixes to the bit.
type special struct {
	dtype      kernel.DataType
	op         kernel.Op
	a, b, want uint64
}

// NaN, infinities, values that are too large, and zeros: by kernels, over ports and in two levels.
func TestSpecialNumbers(t *testing.T) {
	f32 := func(v float64) uint64 { return uint64(math.Float32bits(float32(v))) }
	nan := f32(math.NaN())
	all := []special{
		{kernel.Float32, kernel.Max, nan, f32(1), f32(1)}, {kernel.Float32, kernel.Max, f32(-1), nan, f32(-1)},
		{kernel.Float32, kernel.Min, nan, f32(1), f32(1)}, {kernel.Float32, kernel.Min, f32(-1), nan, f32(-1)},
		{kernel.Float16, kernel.Max, 0x7e00, 0x3c00, 0x3c00}, {kernel.BFloat16, kernel.Min, 0x3f80, 0x7fc0, 0x3f80},
		{kernel.Float8E4M3, kernel.Max, 0x7f, 0x38, 0x38}, {kernel.Float8E5M2, kernel.Max, 0x3c, 0x7f, 0x3c},
		{kernel.Float32, kernel.PreMulSum, f32(math.Copysign(0, -1)), f32(math.Copysign(0, -1)), f32(math.Copysign(0, -1))},
		{kernel.Float16, kernel.PreMulSum, 0x8000, 0x8000, 0x8000}, {kernel.Float8E4M3, kernel.PreMulSum, 0x80, 0x80, 0x80},
		{kernel.Float32, kernel.Sum, f32(math.MaxFloat32), f32(math.MaxFloat32), f32(math.Inf(1))},
		{kernel.Float16, kernel.Sum, 0x7bff, 0x7bff, 0x7c00},
		{kernel.Float8E4M3, kernel.Sum, 0x7e, 0x7e, 0x7e}, {kernel.Float8E5M2, kernel.Sum, 0xfb, 0xfb, 0xfb},
		{kernel.Float8E5M2, kernel.Sum, 0x7c, 0x3c, 0x7b}, {kernel.Float8E4M3B15, kernel.Sum, 0x7f, 0x7f, 0x7f},
		{kernel.Int8, kernel.Sum, 100, 100, 0xc8}, {kernel.Int8, kernel.Avg, 100, 100, 0xe4}, // -56 / 2
		{kernel.Uint8, kernel.Avg, 200, 200, 72}, {kernel.Int32, kernel.Avg, 1<<32 - 3, 0, 1<<32 - 1}, // -3 / 2
		{kernel.Int32, kernel.Avg, 1<<31 - 1, 1<<31 - 1, 1<<32 - 1}, {kernel.Int8, kernel.PreMulSum, 100, 0, 0xc8},
	}
	for _, layout := range []string{"aa", "ab"} {
		t.Run(layout, func(t *testing.T) {
			hosts(t, strings.Split(layout, ""), true, collectives.Options{}, func(_ context.Context, c *collectives.Comm) error {
				buffer := make([]uint64, 2)
				for _, x := range all {
					buffer[0], buffer[1] = x.a, 0
					if c.Rank() == 1 {
						buffer[0] = x.b
					}
					err := c.AllReduce(unsafe.Pointer(&buffer[0]), unsafe.Pointer(&buffer[1]), 1, x.dtype, x.op, &collectives.CallOptions{Scale: 2})
					if err != nil {
						return err
					}
					if buffer[1] != x.want {
						return fmt.Errorf("%v of %v, %#x and %#x: %#x, expected %#x", x.op, x.dtype, x.a, x.b, buffer[1], x.want)
					}
				}
				return nil
			})
		})
	}
}

// A scale keeps its bits: inputs are multiplied in a type that is wider than the elements, if these are short floats.
func TestScalesThatElementsDoNotHold(t *testing.T) {
	const third = 1.0 / 3
	all := []struct {
		dtype   kernel.DataType
		scale   float64
		a, want uint64 // with a scale of the elements' type, want would be another
	}{
		{kernel.Float16, third, 0x6401, 0x5d57},                   // 1025 becomes 341.75, not 341.5
		{kernel.BFloat16, third, 0x4302, 0x422d},                  // 130 becomes 43.25, not 43.5
		{kernel.Float8E4M3, third, 0x56, 0x49},                    // 14 becomes 4.5, not 5
		{kernel.Float8E4M3, 1000, 0x01, 0x40},                     // 2^-9 becomes 2, not what the largest scale, 448, makes of it
		{kernel.Float64, third, 0x4010 << 48, 0x3ff5555555555555}, // 4 becomes 4/3
		{kernel.Float16, 1e6, 0x0001, 0x2ba1},                     // 2^-24 becomes 0.0596, not infinite
		{kernel.Int32, 1<<24 + 1, 1, 1<<24 + 1},                   // which f32 does not hold
		{kernel.Uint32, 1<<32 - 1, 1, 1<<32 - 1},
		{kernel.Int64, 1<<53 - 1, 1, 1<<53 - 1},
		{kernel.Uint64, 1<<63 + 1<<11, 1, 1<<63 + 1<<11},
	}
	for _, layout := range []string{"aa", "ab", "aab"} {
		t.Run(layout, func(t *testing.T) {
			hosts(t, strings.Split(layout, ""), true, collectives.Options{}, func(_ context.Context, c *collectives.Comm) error {
				buffer := make([]uint64, 2)
				for _, x := range all {
					buffer[0], buffer[1] = 0, 0
					if c.Rank() == 1 {
						buffer[0] = x.a
					}
					err := c.AllReduce(unsafe.Pointer(&buffer[0]), unsafe.Pointer(&buffer[1]), 1, x.dtype, kernel.PreMulSum, &collectives.CallOptions{Scale: x.scale})
					if err != nil {
						return err
					}
					if buffer[1] != x.want {
						return fmt.Errorf("%#x of %v by %v: %#x, expected %#x", x.a, x.dtype, x.scale, buffer[1], x.want)
					}
				}
				return nil
			})
		})
	}
}
