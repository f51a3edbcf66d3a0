package hostreduce

// #include "pair.h"
import "C"

import (
	"math"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Scale stores the elements of from, multiplied by a factor, in to, which has the length of from and may be it. The
// factor is given by its bits, in the type in which elements of t are multiplied: that of integers itself, f64 of f64,
// and f32 of all other floats.
func Scale(to, from []byte, t kernel.DataType, factor uint64) {
	from = from[:len(to)]
	x, y, n := unsafe.Pointer(unsafe.SliceData(to)), unsafe.Pointer(unsafe.SliceData(from)), C.uint64_t(len(to)/max(t.Size(), 1))
	narrow := math.Float32frombits(uint32(factor))
	switch t {
	case kernel.Float32:
		C.mscclpp_scale_f32((*C.float)(x), (*C.float)(y), n, C.float(narrow))
	case kernel.Float64:
		C.mscclpp_scale_f64((*C.double)(x), (*C.double)(y), n, C.double(math.Float64frombits(factor)))
	case kernel.Float16:
		C.mscclpp_scale_f16((*C.uint16_t)(x), (*C.uint16_t)(y), n, C.float(narrow))
	case kernel.BFloat16:
		C.mscclpp_scale_bf16((*C.uint16_t)(x), (*C.uint16_t)(y), n, C.float(narrow))
	case kernel.Int8, kernel.Uint8:
		C.mscclpp_scale_u8((*C.uint8_t)(x), (*C.uint8_t)(y), n, C.uint8_t(factor))
	case kernel.Int32, kernel.Uint32:
		C.mscclpp_scale_u32((*C.uint32_t)(x), (*C.uint32_t)(y), n, C.uint32_t(factor))
	case kernel.Int64, kernel.Uint64:
		C.mscclpp_scale_u64((*C.uint64_t)(x), (*C.uint64_t)(y), n, C.uint64_t(factor))
	default:
		f, values := floats8[t], bytes8()[t]
		var products [256]byte // there are no more of one factor
		for i := range products {
			products[i] = f.encode(values[i] * narrow)
		}
		for i, b := range from {
			to[i] = products[b]
		}
	}
}

// Float is the value of one element, of a float of 8 or 16 bits.
func Float(b []byte, t kernel.DataType) float32 {
	var to [1]float32
	if !Widen(to[:], b, t) {
		to[0] = bytes8()[t][b[0]]
	}
	return to[0]
}
