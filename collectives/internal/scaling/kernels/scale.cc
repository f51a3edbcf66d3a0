// Multiplies this rank's input of a PreMulSum by this rank's factor. The kernel knows no channel and no peer: the sum
// comes behind it on the stream. There is an image for each type: a driver that compiles it has little to do.
#include <mscclpp/device.h>

#include "scale_args.h"

namespace mscclpp {
namespace collectives {

template <class T, uint32_t N>
struct Elements {
  T lane[N];
};

template <class T, uint32_t N>
MSCCLPP_DEVICE Elements<T, N> times(Elements<T, N> v, Accumulator<T> by) {
  MSCCLPP_UNROLL
  for (uint32_t k = 0; k < N; ++k) v.lane[k] = narrow_element<T>(mscclpp::detail::multiply(widen_element(v.lane[k]), by));
  return v;
}

// An element at any address: a copy of bytes, unless the address suits the type.
template <class T>
MSCCLPP_DEVICE T element_at(const char* p) {
  if ((reinterpret_cast<uintptr_t>(p) & (sizeof(T) - 1)) == 0) return *reinterpret_cast<const T*>(p);
  struct Bytes { char b[sizeof(T)]; } bytes;
  MSCCLPP_UNROLL
  for (uint32_t i = 0; i < sizeof(T); ++i) bytes.b[i] = p[i];
  return __builtin_bit_cast(T, bytes);
}

template <class T>
MSCCLPP_DEVICE void put_element(char* p, T v) {
  if ((reinterpret_cast<uintptr_t>(p) & (sizeof(T) - 1)) == 0) {
    *reinterpret_cast<T*>(p) = v;
    return;
  }
  struct Bytes { char b[sizeof(T)]; };
  const Bytes bytes = __builtin_bit_cast(Bytes, v);
  MSCCLPP_UNROLL
  for (uint32_t i = 0; i < sizeof(T); ++i) p[i] = bytes.b[i];
}

template <class T>
MSCCLPP_DEVICE void scale_slice(char* out, const char* in, uint64_t count, Accumulator<T> by) {
  constexpr uint32_t kLanes = 16 / sizeof(T);
  using Word = Elements<T, kLanes>;
  const uint64_t tid = global_thread(), nthreads = global_threads();
  uint64_t words = 0;
  if (((reinterpret_cast<uintptr_t>(in) | reinterpret_cast<uintptr_t>(out)) & 15) == 0) {
    words = count / kLanes;
    for (uint64_t w = tid; w < words; w += nthreads) {
      store16(out + 16 * w, __builtin_bit_cast(Vec16, times(__builtin_bit_cast(Word, load16(in + 16 * w)), by)));
    }
  }
  for (uint64_t e = words * kLanes + tid; e < count; e += nthreads) {
    put_element<T>(out + e * sizeof(T), times(Elements<T, 1>{{element_at<T>(in + e * sizeof(T))}}, by).lane[0]);
  }
}

template <class A> MSCCLPP_DEVICE A factor_of(uint64_t bits) { return static_cast<A>(bits); }
template <> MSCCLPP_DEVICE float factor_of<float>(uint64_t bits) { return __builtin_bit_cast(float, static_cast<uint32_t>(bits)); }
template <> MSCCLPP_DEVICE double factor_of<double>(uint64_t bits) { return __builtin_bit_cast(double, bits); }

template <class T>
MSCCLPP_DEVICE void scale(const ScaleArgs& a) {
  using A = Accumulator<T>;
  const A by = a.at != nullptr ? widen_element(element_at<T>(static_cast<const char*>(a.at))) : factor_of<A>(a.factor);
  for (uint64_t s = 0; s < a.slices; ++s) {
    scale_slice<T>(static_cast<char*>(a.output) + s * a.output_stride, static_cast<const char*>(a.input) + s * a.input_stride, a.count, by);
  }
}

MSCCLPP_KERNEL(mscclpp_steps_scale, ScaleArgs, args) { scale<Element>(args); }

}  // namespace collectives
}  // namespace mscclpp
