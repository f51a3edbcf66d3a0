// Counters between two ranks: 64 bits, monotonic, never reset. Data that a thread wrote
// before signal() is visible to the thread that returned from the matching wait().
// The relaxed forms order execution only.
//
// One thread signals or waits. For a whole block: block_sync, then signal by one
// thread; wait by one thread, then block_sync_and.
#ifndef MSCCLPP_SEMAPHORE_H_
#define MSCCLPP_SEMAPHORE_H_

#include "wait.h"

namespace mscclpp {
namespace detail {

// Raises a counter of this rank's own threads and returns the new value. On the
// CPU one thread runs a kernel, so no locked instruction is needed.
MSCCLPP_DEVICE uint64_t advance(uint64_t* counter, uint64_t by) {
#if MSCCLPP_TARGET_CPU
  return *counter += by;
#else
  return fetch_add_relaxed_device(counter, by) + by;
#endif
}

}  // namespace detail

struct Semaphore : SemaphoreHandle {
  MSCCLPP_DEVICE void signal() const {
    add_release(outbound, static_cast<uint64_t>(1));
    MSCCLPP_HAPPENED(control, kRecordSignal, 0, peer)
  }
  MSCCLPP_DEVICE void relaxedSignal() const {
    add_relaxed(outbound, static_cast<uint64_t>(1));
    MSCCLPP_HAPPENED(control, kRecordSignal, 0, peer)
  }

  // Consumes one signal. false: leave the kernel.
  MSCCLPP_DEVICE bool wait(uint32_t kernel = 0 MSCCLPP_AT) const {
    const uint64_t want = detail::advance(expected, 1);
    const uint64_t* word = inbound;
    return MSCCLPP_ACQUIRED(wait_until(control, WaitSite{kernel, id, peer, want}, [word, want](uint64_t& seen) {
      seen = MSCCLPP_POLL(word);
      return seen >= want;
    } MSCCLPP_HERE));
  }
  MSCCLPP_DEVICE bool relaxedWait(uint32_t kernel = 0 MSCCLPP_AT) const {
    const uint64_t want = detail::advance(expected, 1);
    const uint64_t* word = inbound;
    return wait_until(control, WaitSite{kernel, id, peer, want}, [word, want](uint64_t& seen) {
      seen = load_relaxed(word);
      return seen >= want;
    } MSCCLPP_HERE);
  }

  // Consumes a signal if one is there. One thread at a time.
  MSCCLPP_DEVICE bool poll() const {
    if (load_acquire(inbound) <= load_relaxed_device(expected)) return false;
    detail::advance(expected, 1);
    return true;
  }
};
static_assert(sizeof(Semaphore) == sizeof(SemaphoreHandle), "a view of the handle");

}  // namespace mscclpp
#endif  // MSCCLPP_SEMAPHORE_H_
