// A window over the memory of all members: a store reaches everyone's copy, a load
// reduces over the copies. Where hardware fans out (stride 0) these are multimem
// instructions; an emulated window is a row of mappings, one a member.
//
// Accesses through the window are relaxed: put signal() and wait() between them and
// ordinary accesses to the same memory. Both have a fence between the two names of that memory, for all that a
// block_sync or grid_sync has ordered before signal() or orders behind wait(). Where neither lies between, a thread
// calls fence().
#ifndef MSCCLPP_SWITCH_CHANNEL_H_
#define MSCCLPP_SWITCH_CHANNEL_H_

#include "copy.h"
#include "reduce.h"
#include "semaphore.h"

// Needs PTX 8.2: a family asks for it in its spec, and mscclpp-kernels says here what
// it compiles for.
#if MSCCLPP_TARGET_CUDA && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && (!defined(MSCCLPP_PTX) || MSCCLPP_PTX >= 82)
#define MSCCLPP_MULTIMEM 1
#include "multimem.h"
#endif

namespace mscclpp {

struct SwitchChannel : SwitchChannelHandle {
  // Signals all members, this one included. As with semaphores one thread calls it, after
  // the stores that it publishes.
  MSCCLPP_DEVICE void signal() const {
    raise(true);
    MSCCLPP_HAPPENED(control, kRecordSignal, 0, kNoRank)
  }
  MSCCLPP_DEVICE void relaxedSignal() const {
    raise(false);
    MSCCLPP_HAPPENED(control, kRecordSignal, 0, kNoRank)
  }

  // Waits for one signal of every member.
  MSCCLPP_DEVICE bool wait(uint32_t kernel = 0 MSCCLPP_AT) const {
    const uint64_t want = detail::advance(expected, ranks);
    const uint64_t* word = counter();
    const bool ok = MSCCLPP_ACQUIRED(wait_until(control, WaitSite{kernel, 0, rank, want}, [word, want](uint64_t& seen) {
      seen = MSCCLPP_POLL(word);
      return seen >= want;
    } MSCCLPP_HERE));
    fence();
    return ok;
  }
  MSCCLPP_DEVICE bool relaxedWait(uint32_t kernel = 0 MSCCLPP_AT) const {
    const uint64_t want = detail::advance(expected, ranks);
    const uint64_t* word = counter();
    return wait_until(control, WaitSite{kernel, 0, rank, want}, [word, want](uint64_t& seen) {
      seen = load_relaxed(word);
      return seen >= want;
    } MSCCLPP_HERE);
  }

  // Orders accesses of this thread through the window and by its own address.
  MSCCLPP_DEVICE void fence() const {
#if MSCCLPP_MULTIMEM
    if (stride == 0) detail::alias_fence();
#endif
  }

  // The sum over all members of element i of the window.
  template <class T>
  MSCCLPP_DEVICE T reduce(uint64_t i) const {
    T out;
#if MSCCLPP_MULTIMEM
    if (stride == 0) return detail::multimem_sum<T>(static_cast<const T*>(window) + i);
#endif
    const SwitchChannel& self = *this;
    const auto inputs = [&self, i](uint32_t r) { return static_cast<const void*>(self.copyOf(r) + i * sizeof(T)); };
    detail::reduce_op<T, kSum>(&out, inputs, ranks, 1, reduction(kSum), 0, 1);
    return out;
  }

  // Stores v to element i of every member.
  template <class T>
  MSCCLPP_DEVICE void broadcast(uint64_t i, T v) const {
#if MSCCLPP_MULTIMEM
    if (stride == 0) {
      detail::multimem_store(static_cast<T*>(window) + i, v);
      return;
    }
#endif
    for (uint32_t r = 0; r < ranks; ++r) reinterpret_cast<T*>(copyOf(r))[i] = v;
  }

  // Many elements: count of them, from byte offset of the window into out, which may
  // be ordinary memory only. Ranks are taken in order where the window is emulated;
  // hardware has an order of its own, the same for all members. op: hardware knows
  // kSum, and kAvg and kPreMulSum through it.
  template <class T>
  MSCCLPP_DEVICE void reduceRange(void* out, uint64_t offset, size_t count, const Reduction& r, uint32_t tid,
                                  uint32_t nthreads) const {
#if MSCCLPP_MULTIMEM
    if (stride == 0) {
      detail::multimem_reduce<T>(out, static_cast<const char*>(window) + offset, count, r, ranks, tid, nthreads);
      return;
    }
#endif
    const SwitchChannel& self = *this;
    reduce_n<T>(out, [&self, offset](uint32_t m) { return static_cast<const void*>(self.copyOf(m) + offset); }, ranks, count, r,
                tid, nthreads);
  }

  // bytes of ordinary memory to byte offset of every member's copy.
  MSCCLPP_DEVICE void broadcastRange(uint64_t offset, const void* src, size_t bytes, uint32_t tid, uint32_t nthreads) const {
#if MSCCLPP_MULTIMEM
    if (stride == 0) {
      detail::multimem_copy(static_cast<char*>(window) + offset, src, bytes, tid, nthreads);
      return;
    }
#endif
    for (uint32_t k = 0; k < ranks; ++k) {
      const uint32_t r = rank + k < ranks ? rank + k : rank + k - ranks;  // not everyone into the same memory at once
      copy(copyOf(r) + offset, src, bytes, tid, nthreads);
    }
  }

  // Member r's copy of the window; emulated windows only.
  MSCCLPP_DEVICE char* copyOf(uint32_t r) const { return static_cast<char*>(window) + r * stride; }

 private:
  MSCCLPP_DEVICE const uint64_t* counter() const {
    return reinterpret_cast<const uint64_t*>(static_cast<const char*>(local) + flag);
  }
  MSCCLPP_DEVICE void raise(bool release) const {
#if MSCCLPP_MULTIMEM
    if (stride == 0) {
      if (release) detail::alias_fence();
      detail::multimem_add(reinterpret_cast<uint64_t*>(static_cast<char*>(window) + flag), 1, release);
      return;
    }
#endif
    for (uint32_t r = 0; r < ranks; ++r) {
      uint64_t* word = reinterpret_cast<uint64_t*>(copyOf(r) + flag);
      if (release) {
        add_release(word, static_cast<uint64_t>(1));
      } else {
        add_relaxed(word, static_cast<uint64_t>(1));
      }
    }
  }
};
static_assert(sizeof(SwitchChannel) == sizeof(SwitchChannelHandle), "a view of the handle");

}  // namespace mscclpp
#endif  // MSCCLPP_SWITCH_CHANNEL_H_
