// All-reduce through an emulated window over the memory of all ranks, of any type and operation. Of a switch in hardware
// that is switch_reduce.h.
#ifndef MSCCLPP_COLLECTIVES_ALLREDUCE_SWITCH_H_
#define MSCCLPP_COLLECTIVES_ALLREDUCE_SWITCH_H_

#include "links.h"

namespace mscclpp {
namespace collectives {

// The window has two halves, used in turn. In each, every rank copies a step in,
// reduces its slice of it over all copies, and stores the result into all copies.
// A rank comes back to a half two steps later, when the barrier of the step
// between has shown that all ranks have copied the results out. All blocks work on
// one step; the barriers are of the grid, then of all ranks.
template <class T>
MSCCLPP_DEVICE void allreduce_switch(const Args& a) {
  const Common& c = a.common;
  if (!agree(c)) return;
  SwitchChannel window;
  static_cast<SwitchChannelHandle&>(window) = a.window;
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint32_t tid = global_thread(), threads = global_threads();
  const uint64_t half = window.bytes / 2 / 64 * 64, each = half / sizeof(T);
  const auto barrier = [&]() MSCCLPP_LAMBDA {
    if (!blocks_sync(c.state, c.control)) return false;
    bool ok = true;
    if (tid == 0) {
      window.signal();
      ok = window.wait(kernel_of(c.signature));
      if (!ok) store_relaxed_device(&c.state->left, 1u);  // for other blocks, and kernels behind this one
    }
    return block_sync_and(ok) && blocks_sync(c.state, c.control);
  };
  uint64_t step = 0;
  for (uint64_t first = 0; first < a.count; first += each, ++step) {
    const uint64_t count = smaller(each, a.count - first), base = (step & 1) * half;
    copy(static_cast<char*>(window.local) + base, in + first * sizeof(T), count * sizeof(T), tid, threads);
    if (!barrier()) return;
    const Slice own = slice_of(count, c.rank, c.ranks, sizeof(T));
    const uint64_t at = base + own.first * sizeof(T);
    char* result = out + (first + own.first) * sizeof(T);
    window.reduceRange<T>(result, at, own.count, reduction_of(a), tid, threads);
    if (!blocks_sync(c.state, c.control)) return;
    window.broadcastRange(at, result, own.count * sizeof(T), tid, threads);
    if (!barrier()) return;
    copy(out + first * sizeof(T), static_cast<char*>(window.local) + base, count * sizeof(T), tid, threads);
  }
  // The next launch starts with the first half again.
  if (step > 0 && !barrier()) return;
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_ALLREDUCE_SWITCH_H_
