// Requests to a proxy: a ring of 16-byte triggers in memory that the proxy polls.
// Many threads may push; order is the order of their positions.
#ifndef MSCCLPP_FIFO_H_
#define MSCCLPP_FIFO_H_

#include "wait.h"

#if MSCCLPP_TARGET_CPU
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace mscclpp {

constexpr uint64_t kTriggerParity = 1ull << 63;  // of Trigger.snd: belongs to the ring

struct Fifo : FifoHandle {
  // Publishes the earlier stores of this thread, and the trigger, whose place becomes *position. false: the
  // proxy has died, or the host ends the kernel; nothing was pushed, and later pushes fail as well.
  MSCCLPP_DEVICE bool push(Trigger t, uint64_t* position = nullptr, uint32_t kernel = 0 MSCCLPP_AT) const {
    // These three loads overlap. After an error positions do not matter any more.
    const uint64_t at = fetch_add_relaxed_device(head, static_cast<uint64_t>(1)), tail_seen = load_relaxed_device(tail_cache);
    if (load_relaxed(error) != 0) return false;
    const uint64_t slots = static_cast<uint64_t>(mask) + 1;
    if (at >= slots + tail_seen && !waitConsumed(at - slots, kernel MSCCLPP_HERE)) return false;
    Trigger* slot = triggers + (at & mask);
    const uint64_t parity = ((at >> shift) & 1) != 0 ? 0 : kTriggerParity;
    publish(slot, t.fst, (t.snd & ~kTriggerParity) | parity);
    wake();
    if (position != nullptr) *position = at;
    return true;
  }

  // Waits until the proxy has taken the trigger at position. false as in push.
  MSCCLPP_DEVICE bool sync(uint64_t position, uint32_t kernel = 0 MSCCLPP_AT) const {
    return waitConsumed(position, kernel MSCCLPP_HERE);
  }

  MSCCLPP_DEVICE bool poll(uint64_t position) const { return load_acquire(tail) > position; }

 private:
  MSCCLPP_DEVICE bool waitConsumed(uint64_t position, uint32_t kernel MSCCLPP_AT) const {
    const uint64_t* word = tail;
    const uint32_t* failed = error;
    bool dead = false;
    uint64_t last = 0;
    const bool ok = MSCCLPP_ACQUIRED(wait_until(control, WaitSite{kernel, 0, kNoRank, position + 1}, [&](uint64_t& seen) {
      last = seen = MSCCLPP_POLL(word);
      dead = load_relaxed(failed) != 0;
      return seen > position || dead;
    } MSCCLPP_HERE));
    if (!ok || dead) return false;
    // Only a hint: a lower value costs one more look at the ring.
    store_relaxed_device(tail_cache, last);
    return true;
  }

  // GPUs store both words at once: a release of the second would first wait until the
  // first has crossed the bus. 16 aligned bytes arrive there together. (A separate fence, beside the loads
  // in push, takes half a microsecond longer than this release: H200.)
  MSCCLPP_DEVICE static void publish(Trigger* slot, uint64_t fst, uint64_t snd) {
#if MSCCLPP_TARGET_CUDA
    asm volatile("st.release.sys.global.v2.u64 [%0], {%1,%2};" : : "l"(slot), "l"(fst), "l"(snd) : "memory");
#else
    store_relaxed(&slot->fst, fst);
    store_release(&slot->snd, snd);
#endif
  }

  // A proxy without work sleeps on a futex. The fence orders the trigger before the
  // look at the word, as the proxy's own fence orders the word before its last look
  // at the ring: one of the two sees the other.
  MSCCLPP_DEVICE void wake() const {
#if MSCCLPP_TARGET_CPU
    if (parked == nullptr) return;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (load_relaxed(parked) == 0) return;
    store_relaxed(parked, 0u);
    syscall(SYS_futex, parked, FUTEX_WAKE, 1, nullptr, nullptr, 0);
#endif
  }
};
static_assert(sizeof(Fifo) == sizeof(FifoHandle), "a view of the handle");

}  // namespace mscclpp
#endif  // MSCCLPP_FIFO_H_
