// A barrier over all blocks of a launch. All blocks have to be resident at once;
// the host checks that before it launches.
#ifndef MSCCLPP_GRID_H_
#define MSCCLPP_GRID_H_

#include "wait.h"

namespace mscclpp {

// Called by every thread of every block. Data that any of them wrote before is visible
// to all of them after. All threads of a block get the same answer; false: leave
// the kernel. left is that of a WaitSite.
MSCCLPP_DEVICE bool grid_sync(GridBarrier* barrier, const WaitControl* control, uint32_t kernel = 0, uint32_t* left = nullptr MSCCLPP_AT) {
#if MSCCLPP_TARGET_CPU
  (void)barrier;
  (void)control;
  (void)kernel;
  (void)left;
  return true;
#else
  const uint32_t blocks = grid_dim();
  if (blocks == 1) {
    block_sync(MSCCLPP_HERE_ONLY);
    return true;
  }
  block_sync(MSCCLPP_HERE_ONLY);
  bool ok = true;
  if (thread_id() == 0) {
    const uint32_t* word = &barrier->generation;
    const uint32_t generation = load_relaxed_device(word);
    if (fetch_add_acq_rel_device(&barrier->arrived, 1u) == blocks - 1) {
      store_relaxed_device(&barrier->arrived, 0u);
      store_release_device(&barrier->generation, generation + 1);
    } else {
      ok = MSCCLPP_ACQUIRED_DEVICE(wait_until(control, WaitSite{kernel, kNoReport, 0, generation + 1u, left}, [word, generation](uint64_t& seen) {
        const uint32_t now = MSCCLPP_POLL_DEVICE(word);
        seen = now;
        return now != generation;
      } MSCCLPP_HERE));
    }
  }
  return block_sync_and(ok MSCCLPP_HERE);
#endif
}

}  // namespace mscclpp
#endif  // MSCCLPP_GRID_H_
