// Package hostreduce reduces vectors in memory of the host, element by element, as fast as
// memory allows. Results do not depend on the machine: nothing is contracted, 16-bit
// floats are computed in 32 bits and rounded once, and integers wrap.
package hostreduce

// #cgo CFLAGS: -O3 -std=c11 -Wall -Wextra
// #include "pair.h"
import "C"

import (
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// operation returns the C side's number.
func operation(op kernel.Op, first bool) C.int {
	switch op {
	case kernel.Prod:
		return C.mscclpp_prod
	case kernel.Max:
		return C.mscclpp_max
	case kernel.Min:
		return C.mscclpp_min
	case kernel.PreMulSum:
		if first {
			return C.mscclpp_scaled_first
		}
		return C.mscclpp_scaled
	}
	return C.mscclpp_sum
}

// Pair stores a op b, which have the length of to; to may be one of them. With first, a
// was not multiplied by the scale of PreMulSum yet. by divides the results of Avg, if it
// is not 0. It reports whether it knows the type: all but floats of 8 bits.
func Pair(to, a, b []byte, t kernel.DataType, op kernel.Op, scale, by float64, first bool) bool {
	if op != kernel.Avg {
		by = 0
	}
	a, b = a[:len(to)], b[:len(to)]
	x, y, z := unsafe.Pointer(unsafe.SliceData(a)), unsafe.Pointer(unsafe.SliceData(b)), unsafe.Pointer(unsafe.SliceData(to))
	n, o := C.uint64_t(len(to)/max(t.Size(), 1)), operation(op, first)
	switch t {
	case kernel.Float32:
		C.mscclpp_pair_f32((*C.float)(z), (*C.float)(x), (*C.float)(y), n, o, C.float(scale), C.float(by))
	case kernel.Float64:
		C.mscclpp_pair_f64((*C.double)(z), (*C.double)(x), (*C.double)(y), n, o, C.double(scale), C.double(by))
	case kernel.Float16:
		C.mscclpp_pair_f16((*C.uint16_t)(z), (*C.uint16_t)(x), (*C.uint16_t)(y), n, o, C.float(scale), C.float(by))
	case kernel.BFloat16:
		C.mscclpp_pair_bf16((*C.uint16_t)(z), (*C.uint16_t)(x), (*C.uint16_t)(y), n, o, C.float(scale), C.float(by))
	case kernel.Int8:
		C.mscclpp_pair_i8((*C.int8_t)(z), (*C.int8_t)(x), (*C.int8_t)(y), n, o, C.int8_t(int8(scale)), C.int32_t(int32(by)))
	case kernel.Uint8:
		C.mscclpp_pair_u8((*C.uint8_t)(z), (*C.uint8_t)(x), (*C.uint8_t)(y), n, o, C.uint8_t(uint8(scale)), C.uint32_t(uint32(by)))
	case kernel.Int32:
		C.mscclpp_pair_i32((*C.int32_t)(z), (*C.int32_t)(x), (*C.int32_t)(y), n, o, C.int32_t(int32(scale)), C.int32_t(int32(by)))
	case kernel.Uint32:
		C.mscclpp_pair_u32((*C.uint32_t)(z), (*C.uint32_t)(x), (*C.uint32_t)(y), n, o, C.uint32_t(uint32(scale)), C.uint32_t(uint32(by)))
	case kernel.Int64:
		C.mscclpp_pair_i64((*C.int64_t)(z), (*C.int64_t)(x), (*C.int64_t)(y), n, o, C.int64_t(int64(scale)), C.int64_t(int64(by)))
	case kernel.Uint64:
		C.mscclpp_pair_u64((*C.uint64_t)(z), (*C.uint64_t)(x), (*C.uint64_t)(y), n, o, C.uint64_t(uint64(scale)), C.uint64_t(uint64(by)))
	default:
		return false
	}
	return true
}

// Widen converts 16-bit floats, as many as to has room for. It reports whether it knows
// the type.
func Widen(to []float32, from []byte, t kernel.DataType) bool {
	if t != kernel.Float16 && t != kernel.BFloat16 {
		return false
	}
	from = from[:2*len(to)]
	x, y := (*C.float)(unsafe.Pointer(unsafe.SliceData(to))), (*C.uint16_t)(unsafe.Pointer(unsafe.SliceData(from)))
	if t == kernel.Float16 {
		C.mscclpp_widen_f16(x, y, C.uint64_t(len(to)))
	} else {
		C.mscclpp_widen_bf16(x, y, C.uint64_t(len(to)))
	}
	return true
}

// Narrow is the inverse of Widen: it rounds to nearest, ties to even.
func Narrow(to []byte, from []float32, t kernel.DataType) bool {
	if t != kernel.Float16 && t != kernel.BFloat16 {
		return false
	}
	to = to[:2*len(from)]
	x, y := (*C.uint16_t)(unsafe.Pointer(unsafe.SliceData(to))), (*C.float)(unsafe.Pointer(unsafe.SliceData(from)))
	if t == kernel.Float16 {
		C.mscclpp_narrow_f16(x, y, C.uint64_t(len(from)))
	} else {
		C.mscclpp_narrow_bf16(x, y, C.uint64_t(len(from)))
	}
	return true
}
