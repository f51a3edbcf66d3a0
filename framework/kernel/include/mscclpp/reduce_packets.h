// Reductions whose inputs arrive as packets.
#ifndef MSCCLPP_REDUCE_PACKETS_H_
#define MSCCLPP_REDUCE_PACKETS_H_

#include "packet.h"
#include "reduce.h"

namespace mscclpp {
namespace detail {

// Where input i comes from: self is ordinary memory, the others are packets.
struct PacketInputs {
  uint32_t self;
  uint32_t flag;
  const WaitControl* control;
  WaitSite site;
};

#if MSCCLPP_TARGET_CPU
// Packets are unpacked into the cache, a piece of every input at a time, and reduced
// there.
constexpr size_t kPacketPiece = 1024;  // bytes

template <class T, class P, ReduceOp Op, class Inputs>
inline bool reduce_packets_op(void* out, const Inputs& inputs, uint32_t n, size_t count, const Reduction& r, PacketInputs in,
                              uint32_t tid, uint32_t nthreads) {
  constexpr uint32_t kBatch = 16;  // inputs at a time
  alignas(64) char pieces[kBatch][kPacketPiece];
  alignas(64) Accumulator<T> acc[kPacketPiece / sizeof(T) + 8];
  using L = Loops<T, Op>;
  typedef typename L::U U;
  const Scalars<Accumulator<T>> s(r, n);
  const size_t bytes = count * sizeof(T);
  for (size_t at = tid * kPacketPiece; at < bytes; at += nthreads * kPacketPiece) {
    const size_t m = bytes - at < kPacketPiece ? bytes - at : kPacketPiece;
    const char* from[kBatch];
    for (uint32_t base = 0; base < n; base += kBatch) {
      const uint32_t k = n - base < kBatch ? n - base : kBatch;
      for (uint32_t i = 0; i < k; ++i) {
        const char* p = input_at(inputs, base + i, 0);
        if (base + i == in.self) {
          from[i] = p + at;
          continue;
        }
        WaitSite site = in.site;
        site.peer = base + i;
        if (!copyFromPackets<P>(pieces[i], p + 2 * at, m, 0, 1, in.flag, in.control, site)) return false;
        from[i] = pieces[i];
      }
      const size_t elements = m / sizeof(T);
      U* to = reinterpret_cast<U*>(static_cast<char*>(out) + at);
      if (n == 2 && Op != kAvg && Op != kPreMulSum) {
        L::pair(to, reinterpret_cast<const U*>(from[0]), reinterpret_cast<const U*>(from[1]), elements);
        continue;
      }
      for (uint32_t i = 0; i < k; ++i) {
        const U* u = reinterpret_cast<const U*>(from[i]);
        if (base + i == 0) {
          L::first(acc, u, elements, s.scale, s.partial == 0);
        } else {
          L::next(acc, u, elements, s.scale, base + i >= s.partial);
        }
      }
      if (base + k == n) L::last(to, acc, elements, s.divisor);
    }
  }
  return true;
}

#else
// One step covers whole packets and whole elements.
template <class T, class P>
struct PacketStep {
  static constexpr uint32_t kBytes = sizeof(T) > sizeof(typename P::Payload) ? sizeof(T) : sizeof(typename P::Payload);
  static constexpr uint32_t kPackets = kBytes / sizeof(typename P::Payload);
  static constexpr uint32_t kElements = kBytes / sizeof(T);
  struct Parts { typename P::Payload part[kPackets]; };
  struct Elements { T e[kElements]; };
};

template <class T, class P, ReduceOp Op, class Inputs>
MSCCLPP_DEVICE bool reduce_packets_op(void* out, const Inputs& inputs, uint32_t n, size_t count, const Reduction& r,
                                      PacketInputs in, uint32_t tid, uint32_t nthreads MSCCLPP_AT) {
  using A = Accumulator<T>;
  using S = PacketStep<T, P>;
  using U = typename P::Payload;
  const Scalars<A> s(r, n);
  const size_t bytes = count * sizeof(T);
  const size_t steps = (bytes + S::kBytes - 1) / S::kBytes;
  for (size_t w = tid; w < steps; w += nthreads) {
    const size_t at = w * S::kBytes;
    A acc[S::kElements];
    for (uint32_t i = 0; i < n; ++i) {
      typename S::Parts step;
      const char* p = input_at(inputs, i, 0);
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < S::kPackets; ++k) {
        const size_t here = at + k * sizeof(U);
        if (i == in.self) {
          step.part[k] = here < bytes ? load_some<U>(p + here, bytes - here) : 0;
        } else {
          WaitSite site = in.site;
          site.peer = i;
          if (!readPacket(reinterpret_cast<const P*>(p) + w * S::kPackets + k, in.flag, in.control, site,
                          step.part[k] MSCCLPP_HERE)) return false;
        }
      }
      const auto v = __builtin_bit_cast(typename S::Elements, step);
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < S::kElements; ++k) {
        A x = widen_element(v.e[k]);
        if (is<Op>(kPreMulSum, s.op) && i >= s.partial) x = multiply(x, s.scale);
        acc[k] = i == 0 ? x : apply<Op, A>(acc[k], x, s.op);
      }
    }
    average<Op, S::kElements>(acc, s);
    typename S::Elements done;
    MSCCLPP_UNROLL
    for (uint32_t k = 0; k < S::kElements; ++k) done.e[k] = narrow_element<T>(acc[k]);
    const auto parts = __builtin_bit_cast(typename S::Parts, done);
    MSCCLPP_UNROLL
    for (uint32_t k = 0; k < S::kPackets; ++k) {
      const size_t here = at + k * sizeof(U);
      if (here < bytes) store_some<U>(static_cast<char*>(out) + here, parts.part[k], bytes - here);
    }
  }
  return true;
}
#endif

}  // namespace detail

// out[i] = the reduction of element i of n inputs in order. Input self is ordinary
// memory, every other input is a row of packets P with this flag; inputs is an array
// or a function as for reduce_n. site.peer is replaced by the number of the input.
// false: leave the kernel.
template <class T, class P, class Inputs>
MSCCLPP_DEVICE bool reduce_packets(void* out, const Inputs& inputs, uint32_t self, uint32_t n, size_t count, const Reduction& r,
                                   uint32_t flag, const WaitControl* control, const WaitSite& site, uint32_t tid,
                                   uint32_t nthreads MSCCLPP_AT) {
  const detail::PacketInputs in = {self, flag, control, site};
#if !MSCCLPP_TARGET_CPU
  if (r.op == kSum) return detail::reduce_packets_op<T, P, kSum>(out, inputs, n, count, r, in, tid, nthreads MSCCLPP_HERE);
  return detail::reduce_packets_op<T, P, detail::kAnyOp>(out, inputs, n, count, r, in, tid, nthreads MSCCLPP_HERE);
#else
  switch (r.op) {
    case kSum: return detail::reduce_packets_op<T, P, kSum>(out, inputs, n, count, r, in, tid, nthreads MSCCLPP_HERE);
    case kProd: return detail::reduce_packets_op<T, P, kProd>(out, inputs, n, count, r, in, tid, nthreads MSCCLPP_HERE);
    case kMin: return detail::reduce_packets_op<T, P, kMin>(out, inputs, n, count, r, in, tid, nthreads MSCCLPP_HERE);
    case kMax: return detail::reduce_packets_op<T, P, kMax>(out, inputs, n, count, r, in, tid, nthreads MSCCLPP_HERE);
    case kAvg: return detail::reduce_packets_op<T, P, kAvg>(out, inputs, n, count, r, in, tid, nthreads MSCCLPP_HERE);
    default: return detail::reduce_packets_op<T, P, kPreMulSum>(out, inputs, n, count, r, in, tid, nthreads MSCCLPP_HERE);
  }
#endif
}

}  // namespace mscclpp
#endif  // MSCCLPP_REDUCE_PACKETS_H_
