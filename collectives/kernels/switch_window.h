// Common parts of kernels over the window of a switch: its division, a barrier, and words at the ends of buffers.
//
// The window has room for data, window.bytes of it, and behind that for packets, up to the counter of the channel. Data
// lies in thirds, which steps use in turn. Between the last access of a step to a third and the first of the step that uses it
// again there is the barrier of a step between.
//
// At the end of a kernel no other rank reads this rank's copy, though this rank may. So a kernel may begin by writing
// its own copy, and has to begin with a barrier if it writes the copies of others.
#ifndef MSCCLPP_COLLECTIVES_SWITCH_WINDOW_H_
#define MSCCLPP_COLLECTIVES_SWITCH_WINDOW_H_

#include "links.h"

#if MSCCLPP_MULTIMEM
#include <mscclpp/multimem_wide.h>
#endif

namespace mscclpp {
namespace collectives {

class Window : public SwitchChannel {
 public:
  MSCCLPP_DEVICE explicit Window(const Args& a) : c_(a.common) { static_cast<SwitchChannelHandle&>(*this) = a.window; }

  MSCCLPP_DEVICE uint64_t third() const { return bytes / 3 / 64 * 64; }
  MSCCLPP_DEVICE uint64_t at(uint64_t step) const { return step % 3 * third(); }
  MSCCLPP_DEVICE char* own(uint64_t offset) const { return static_cast<char*>(local) + offset; }

  // barrier is one of all threads of all ranks, and has a fence between the two names of the memory on either side.
  MSCCLPP_DEVICE bool barrier() const {
    fence();
    if (!blocks_sync(c_.state, c_.control)) return false;
    bool ok = true;
    if (global_thread() == 0) {
      signal();
      ok = wait(kernel_of(c_.signature));
      if (!ok) store_relaxed_device(&c_.state->left, 1u);  // for other blocks, and kernels behind this one
    }
    ok = block_sync_and(ok) && blocks_sync(c_.state, c_.control);
    fence();
    return ok;
  }

  // push stores bytes of ordinary memory, at any address, to all copies. Hardware fills the last word up with zeros.
  MSCCLPP_DEVICE void push(uint64_t offset, const char* src, uint64_t bytes) const {
#if MSCCLPP_MULTIMEM
    char* to = static_cast<char*>(window) + offset;
    const bool aligned = (reinterpret_cast<uintptr_t>(src) & 15) == 0;
    for (uint64_t i = 16 * uint64_t(global_thread()); i < bytes; i += 16 * uint64_t(global_threads())) {
      mscclpp::detail::multimem_store16(to + i, aligned && i + 16 <= bytes ? load16(src + i) : some(src + i, bytes - i));
    }
#else
    broadcastRange(offset, src, bytes, global_thread(), global_threads());
#endif
  }

  // pull reduces count elements over all copies into ordinary memory, at any address. Hardware reads the last word whole.
  template <class T, ReduceOp Op>
  MSCCLPP_DEVICE void pull(char* out, uint64_t offset, uint64_t count, const Reduction& r) const {
#if MSCCLPP_MULTIMEM
    const char* from = static_cast<const char*>(window) + offset;
    const bool aligned = (reinterpret_cast<uintptr_t>(out) & 15) == 0;
    const uint64_t all = count * sizeof(T);
    for (uint64_t i = 16 * uint64_t(global_thread()); i < all; i += 16 * uint64_t(global_threads())) {
      const Vec16 v = word<T, Op>(from + i, r);
      if (aligned && i + 16 <= all) {
        store16(out + i, v);
      } else {
        save<T>(out + i, v, all - i);
      }
    }
#else
    reduceRange<T>(out, offset, count, r, global_thread(), global_threads());
#endif
  }

#if MSCCLPP_MULTIMEM
  // reduce_words reduces words of all copies, and stores the results to all copies. A thread has several on their way.
  template <class T, ReduceOp Op>
  MSCCLPP_DEVICE void reduce_words(uint64_t from, uint64_t to, uint64_t count, const Reduction& r) const {
    constexpr uint32_t kDepth = 4;
    const char* in = static_cast<const char*>(window) + from;
    char* out = static_cast<char*>(window) + to;
    const uint64_t words = ceil_div(count * sizeof(T), 16), threads = global_threads();
    uint64_t w = global_thread();
    for (; w + (kDepth - 1) * threads < words; w += kDepth * threads) {
      Vec16 v[kDepth];
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < kDepth; ++k) v[k] = mscclpp::detail::WindowWord<T, Op>::load(in + 16 * (w + k * threads));
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < kDepth; ++k) mscclpp::detail::multimem_store16(out + 16 * (w + k * threads), finish<T, Op>(v[k], r));
    }
    for (; w < words; w += threads) mscclpp::detail::multimem_store16(out + 16 * w, word<T, Op>(in + 16 * w, r));
  }

  // word is one, reduced. save has its first bytes in ordinary memory.
  template <class T, ReduceOp Op>
  MSCCLPP_DEVICE Vec16 word(const char* p, const Reduction& r) const {
    return finish<T, Op>(mscclpp::detail::WindowWord<T, Op>::load(p), r);
  }
  template <class T>
  MSCCLPP_DEVICE static void save(char* out, Vec16 v, uint64_t left) {
    constexpr uint32_t kLanes = 16 / sizeof(T);
    struct Lanes16 { T lane[kLanes]; } l = __builtin_bit_cast(Lanes16, v);
    MSCCLPP_UNROLL
    for (uint32_t k = 0; k < kLanes; ++k) {
      if (k * sizeof(T) < left) reinterpret_cast<T*>(out)[k] = l.lane[k];
    }
  }
#endif

 private:
#if MSCCLPP_MULTIMEM
  template <class T, ReduceOp Op>
  MSCCLPP_DEVICE Vec16 finish(Vec16 v, const Reduction& r) const {
    if constexpr (Op == kSum) return mscclpp::detail::multimem_finish<T>(v, r, ranks);
    return v;
  }
  MSCCLPP_DEVICE static Vec16 some(const char* p, uint64_t left) {
    const uint64_t a = mscclpp::detail::load_some<uint64_t>(p, left), b = left > 8 ? mscclpp::detail::load_some<uint64_t>(p + 8, left - 8) : 0;
    return Vec16{static_cast<uint32_t>(a), static_cast<uint32_t>(a >> 32), static_cast<uint32_t>(b), static_cast<uint32_t>(b >> 32)};
  }
#endif

  const Common& c_;
};

#if MSCCLPP_MULTIMEM
// Where in the window the buffers of a call are, and whether the window reaches them there.
struct Place {
  uint64_t input, output;
  bool reached;
};

enum class Meeting : uint32_t { kLeft, kElsewhere, kMet };

// window_meet begins a call on memory that is a part of the window: it is a barrier of all ranks, which tell each other where
// their buffers are. All have the same answer. kElsewhere: some are at other places, or where words do not begin, so that one
// address does not mean the same on all, and data has to be copied.
MSCCLPP_DEVICE Meeting window_meet(const Args& a, const Window& window, const Place& place) {
  constexpr uint64_t kUnreached = uint64_t(1) << 63;
  const Common& c = a.common;
  window.fence();
  if (!blocks_sync(c.state, c.control)) return Meeting::kLeft;
  bool ok = true;
  if (block_id() == 0) {
    Sync sync(c, 0);
    const uint64_t input = place.input | (place.reached ? 0 : kUnreached);
    ok = sync.meet(input, place.output, a.memory);
    if (ok) sync.close();
    if (thread_id() == 0) {
      bool same = place.reached;
      for (uint32_t r = 0; r < c.ranks && ok; ++r) {
        if (r == c.rank) continue;
        const Mailbox* m = mailbox(c, c.rank, r, 0);
        same = same && m->input == input && m->output == place.output && m->memory == a.memory;
      }
      c.state->elsewhere = same ? 0 : 1;
      if (!ok) store_relaxed_device(&c.state->left, 1u);
    }
  }
  ok = block_sync_and(ok) && blocks_sync(c.state, c.control);
  window.fence();
  return !ok ? Meeting::kLeft : c.state->elsewhere != 0 ? Meeting::kElsewhere : Meeting::kMet;
}
#endif

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_SWITCH_WINDOW_H_
