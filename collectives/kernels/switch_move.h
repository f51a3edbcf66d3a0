// Moves through the window of a switch: one store reaches all ranks.
#ifndef MSCCLPP_COLLECTIVES_SWITCH_MOVE_H_
#define MSCCLPP_COLLECTIVES_SWITCH_MOVE_H_

#include "switch_window.h"

namespace mscclpp {
namespace collectives {

// A window_gather is an all-gather: each rank stores its part from where it is, and all copy all parts out.
MSCCLPP_DEVICE void gather_steps(const Args& a, const Window& window) {
  const Common& c = a.common;
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint32_t tid = global_thread(), threads = global_threads();
  const uint64_t total = a.count * a.element, part = window.third() / c.ranks / 64 * 64, steps = ceil_div(total, part);
  if (steps > 0 && !window.barrier()) return;  // others may be copying out what an earlier call has left in their copies
  for (uint64_t k = 0; k < steps; ++k) {
    const uint64_t first = k * part, bytes = smaller(part, total - first);
    window.push(window.at(k) + c.rank * part, in + first, bytes);
    if (!window.barrier()) return;
    for (uint32_t r = 0; r < c.ranks; ++r) {
      char* to = out + r * total + first;
      if (r != c.rank || to != in + first) copy(to, window.own(window.at(k) + r * part), bytes, tid, threads);
    }
  }
}

MSCCLPP_DEVICE void window_gather(const Args& a) {
  if (agree(a.common)) gather_steps(a, Window(a));
}

#if MSCCLPP_MULTIMEM
// registered_gather is an all-gather into outputs that are a part of the window. It is not for calls in place, where a rank
// would read by the one name of the memory what it stores by the other.
MSCCLPP_DEVICE void registered_gather(const Args& a) {
  const Common& c = a.common;
  await_previous();
  if (!agree(c)) return;
  const Window window(a);
  const uint64_t part = a.count * a.element;
  const Place place{0, a.output_offset, ((a.output_offset | part) & 15) == 0};
  const Meeting met = window_meet(a, window, place);
  if (met == Meeting::kLeft) return;
  if (met == Meeting::kElsewhere) return gather_steps(a, window);
  window.push(place.output + c.rank * part, static_cast<const char*>(a.input), part);
  window.barrier();
}
#endif

// A window_broadcast has the root store to all copies, and the others copy out.
MSCCLPP_DEVICE void window_broadcast(const Args& a) {
  const Common& c = a.common;
  if (!agree(c)) return;
  const Window window(a);
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint32_t tid = global_thread(), threads = global_threads();
  const uint64_t total = a.count * a.element, each = window.third(), steps = ceil_div(total, each);
  if (steps > 0 && !window.barrier()) return;
  for (uint64_t k = 0; k < steps; ++k) {
    const uint64_t first = k * each, bytes = smaller(each, total - first);
    if (c.rank == a.root) {
      window.push(window.at(k), in + first, bytes);
      if (out != in) copy(out + first, in + first, bytes, tid, threads);
    }
    if (!window.barrier()) return;
    if (c.rank != a.root) copy(out + first, window.own(window.at(k)), bytes, tid, threads);
  }
}

// A window_barrier moves nothing.
MSCCLPP_DEVICE void window_barrier(const Args& a) {
  const Common& c = a.common;
  if (!agree(c)) return;
  Window(a).barrier();
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_SWITCH_MOVE_H_
