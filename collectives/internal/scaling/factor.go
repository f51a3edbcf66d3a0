package scaling

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/hostreduce"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Factor multiplies the input of a rank.
type Factor struct {
	Bits uint64         // in the type that elements are multiplied in: that of an integer itself, f64 of f64, and f32 of all other floats
	At   unsafe.Pointer // if not nil, instead: an element on the device, which is read when the multiplication is done
}

// wholes are the integer types: the least value, and the first that is too large.
var wholes = [kernel.DataTypes][2]float64{
	kernel.Int8: {-1 << 7, 1 << 7}, kernel.Uint8: {0, 1 << 8},
	kernel.Int32: {-1 << 31, 1 << 31}, kernel.Uint32: {0, 1 << 32},
	kernel.Int64: {-1 << 63, 1 << 63}, kernel.Uint64: {0, 1 << 64},
}

// Of returns the factor that a number is. A number that would be another one in the type in which inputs are multiplied
// is ErrInvalid.
func Of(t kernel.DataType, scale float64) (Factor, error) {
	if limits := wholes[t]; limits[1] != 0 {
		if scale != math.Trunc(scale) || scale < limits[0] || scale >= limits[1] {
			return Factor{}, fmt.Errorf("%w: scale %v of %v: expected an integer that the type holds", framework.ErrInvalid, scale, t)
		}
		if scale < 0 {
			return Factor{Bits: uint64(int64(scale))}, nil
		}
		return Factor{Bits: uint64(scale)}, nil
	}
	if t == kernel.Float64 {
		return Factor{Bits: math.Float64bits(scale)}, nil
	}
	narrow := float32(scale)
	if !math.IsInf(scale, 0) && scale != 0 && (narrow == 0 || math.IsInf(float64(narrow), 0)) {
		return Factor{}, fmt.Errorf("%w: scale %v of %v: expected a number that f32 holds, in which inputs are multiplied", framework.ErrInvalid, scale, t)
	}
	return Factor{Bits: uint64(math.Float32bits(narrow))}, nil
}

// Read returns the factor that an element in memory of the host is now.
func Read(t kernel.DataType, at unsafe.Pointer) Factor {
	b := unsafe.Slice((*byte)(at), t.Size())
	switch t.Size() {
	case 8:
		return Factor{Bits: binary.NativeEndian.Uint64(b)}
	case 4:
		return Factor{Bits: uint64(binary.NativeEndian.Uint32(b))}
	case 1:
		if !hostreduce.EightBits(t) {
			return Factor{Bits: uint64(b[0])}
		}
	}
	return Factor{Bits: uint64(math.Float32bits(hostreduce.Float(b, t)))}
}
