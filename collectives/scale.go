package collectives

import (
	"fmt"
	"math"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// wholes are the integer types: the least value, and the first that is too large.
var wholes = map[kernel.DataType][2]float64{
	kernel.Int8: {-1 << 7, 1 << 7}, kernel.Uint8: {0, 1 << 8},
	kernel.Int32: {-1 << 31, 1 << 31}, kernel.Uint32: {0, 1 << 32},
	kernel.Int64: {-1 << 63, 1 << 63}, kernel.Uint64: {0, 1 << 64},
}

// checkScale refuses a scale of PreMulSum that would be another one in the type in which inputs are multiplied: that of
// an integer itself, f64 of f64, and f32 of all other floats.
func checkScale(t kernel.DataType, scale float64) error {
	if scale == 0 {
		return fmt.Errorf("%w: %v without a scale: expected CallOptions.Scale", framework.ErrInvalid, kernel.PreMulSum)
	}
	if limits, ok := wholes[t]; ok {
		if scale != math.Trunc(scale) || scale < limits[0] || scale >= limits[1] {
			return fmt.Errorf("%w: scale %v of %v: expected an integer that the type holds", framework.ErrInvalid, scale, t)
		}
		return nil
	}
	if narrow := float32(scale); t != kernel.Float64 && !math.IsInf(scale, 0) && (narrow == 0 || math.IsInf(float64(narrow), 0)) {
		return fmt.Errorf("%w: scale %v of %v: expected a number that f32 holds, in which inputs are multiplied", framework.ErrInvalid, scale, t)
	}
	return nil
}
