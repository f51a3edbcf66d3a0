// All-reduce around a ring, for comparison: where all ranks reach all others it is
// never the fastest. The slice of rank s is reduced in the order s + 1, s + 2, …, s:
// the same on all ranks and in all runs, but not that of the other algorithms.
#ifndef MSCCLPP_COLLECTIVES_ALLREDUCE_RING_H_
#define MSCCLPP_COLLECTIVES_ALLREDUCE_RING_H_

#include "links.h"

namespace mscclpp {
namespace collectives {

// One hop: own data enters the partial result, or begins it.
template <class T>
MSCCLPP_DEVICE void ring_step(const Args& a, void* out, const char* partial, const char* own, uint32_t hop, uint64_t count) {
  const uint32_t ranks = a.common.ranks;
  Reduction r = reduction_of(a);
  if (r.op == kAvg && hop + 1 < ranks) r.op = kSum;
  r.divisor = ranks;
  r.partial = hop == 0 ? 0 : 1;
  const auto inputs = [&](uint32_t i) MSCCLPP_LAMBDA { return i == 0 && hop > 0 ? partial : own; };
  reduce_step<T>(out, inputs, hop == 0 ? 1 : 2, count, r);
}

// Partial results are elements of type T, so types of few bits lose more than with
// the other algorithms. Each rank scales its input when it adds it, and the last rank
// divides an average.
template <class T>
MSCCLPP_DEVICE void allreduce_ring(const Args& a) {
  const Common& c = a.common;
  if (!agree(c)) return;
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint32_t tid = thread_id(), threads = block_dim(), n = c.ranks;
  const uint32_t next = (c.rank + 1) % n, previous = (c.rank + n - 1) % n;
  const uint64_t piece = Pipe::payload(c) / sizeof(T) / 64 * 64;
  for (uint32_t lane = block_id(); lane < c.lanes; lane += grid_dim()) {
    const Steps steps{a.count, piece * n, lane, c.lanes};
    for (uint64_t k = 0; k < steps.size(); ++k) {
      const char* from = in + steps.first(k) * sizeof(T);
      char* to = out + steps.first(k) * sizeof(T);
      // The first round of the ring reduces, the second one distributes the results.
      for (uint32_t hop = 0; hop < 2 * n - 1; ++hop) {
        const bool reducing = hop < n;
        const Slice s = slice_of(steps.count(k), (c.rank + 2 * n - hop - 1) % n, n, sizeof(T));
        const uint64_t at = s.first * sizeof(T), bytes = s.count * sizeof(T);
        char* result = to + at;
        const char* partial = nullptr;
        if (hop > 0) {
          if (!Pipe::wait_ready(c, lane, previous)) return;
          partial = Pipe::data(Pipe::from(c, lane, previous));
        }
        const bool last = hop == 2 * n - 2;
        if (!last && !Pipe::wait_room(c, lane, next)) return;
        char* forward = last ? nullptr : Pipe::data(Pipe::to(c, lane, next));
        if (reducing) {
          char* target = hop + 1 == n ? result : forward;
          ring_step<T>(a, target, partial, from + at, hop, s.count);
          block_sync();
          if (target != forward && forward != nullptr) copy(forward, target, bytes, tid, threads);
        } else {
          copy(result, partial, bytes, tid, threads);
          if (forward != nullptr) copy(forward, partial, bytes, tid, threads);
        }
        if (hop > 0) Pipe::take(c, lane, previous);
        if (!last) Pipe::put(c, lane, next);
      }
    }
  }
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_ALLREDUCE_RING_H_
