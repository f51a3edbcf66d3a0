// Kernels between the copies of algorithms that copy engines carry out. One is a warp that
// signals the steps of this rank to the peers and waits for theirs. Others sum the data that
// was copied into this rank's scratch.
//
// Steps are counted on both sides for as long as the communicator lives, in memory of
// the device, so that replays of a graph go on where the last one ended. A copy is
// over, and visible to its target, before a kernel behind it on the stream begins.
#ifndef MSCCLPP_COLLECTIVES_STEPS_H_
#define MSCCLPP_COLLECTIVES_STEPS_H_

#include "ll_reduce.h"
#include "unrolled.h"

namespace mscclpp {
namespace collectives {

// step_signal signals the steps in a.signal and waits for those in a.wait. One block.
//
// With kStepOpen ranks compare the places of their outputs, because copies need the same
// place on all. When they differ the launch waits until the host has read the note and has
// ended the job: nobody can take back the copies behind it.
MSCCLPP_DEVICE void step_signal(const StepArgs& a) {
  if (block_id() != 0) return;
  if (a.check == kCheckPublish && a.signal == 1u << kStepOpen && thread_id() == 0) publish(a);
  bool ok = true;
  block_sync();
  for (uint32_t peer = thread_id(); peer < a.ranks; peer += block_dim()) {
    if (peer == a.rank) continue;
    Mailbox* theirs = mailbox(a, peer, a.rank, 0);
    if (a.signal >> kStepOpen & 1) {
      theirs->step_offset = a.output_offset;
      theirs->step_memory = a.memory;
    }
    for (uint32_t s = 0; s < kSteps; ++s) {
      if (a.signal >> s & 1) store_release(&theirs->steps[s], a.state->signaled[s] + 1);
    }
  }
  for (uint32_t peer = thread_id(); peer < a.ranks && ok; peer += block_dim()) {
    if (peer == a.rank) continue;
    const Mailbox* own = mailbox(a, a.rank, peer, 0);
    for (uint32_t s = 0; s < kSteps && ok; ++s) {
      const uint64_t awaited = a.state->awaited[s] + 1, missing = s == kStepTaken ? a.lag : 0;
      if ((a.wait >> s & 1) == 0 || awaited <= missing) continue;
      const uint64_t want = awaited - missing;
      const WaitSite site{kernel_of(a.signature), kWordStep, peer, want, &a.state->left};
      ok = MSCCLPP_ACQUIRED(wait_brief(a.control, site, [&]() MSCCLPP_LAMBDA { return MSCCLPP_POLL(&own->steps[s]) >= want; }));
    }
    if (ok && (a.wait >> kStepOpen & 1) && (own->step_offset != a.output_offset || own->step_memory != a.memory)) {
      store_relaxed(&a.notes->elsewhere, peer + 1);
      const WaitSite site{kernel_of(a.signature), kWordStep, peer, a.output_offset, &a.state->left};
      ok = wait_brief(a.control, site, []() MSCCLPP_LAMBDA { return false; });
    }
  }
  if (!block_sync_and(ok) || thread_id() != 0) return;
  for (uint32_t s = 0; s < kSteps; ++s) {
    if (a.signal >> s & 1) a.state->signaled[s] += 1;
    if (a.wait >> s & 1) a.state->awaited[s] += 1;
  }
}

// step_move copies count elements of one byte. A kernel does it because copies within a GPU
// delay those to peers when both go through copy engines.
MSCCLPP_DEVICE void step_move(const StepArgs& a) { copy(a.output, a.input, a.count, global_thread(), global_threads()); }

// step_sum reduces the data in this rank's scratch with its own input, in the same order in all
// runs: see sum_words.
template <class T>
MSCCLPP_DEVICE void step_sum(const StepArgs& a) {
  const auto inputs = [&](uint32_t r) MSCCLPP_LAMBDA -> const char* {
    return r == a.rank ? static_cast<const char*>(a.input) : reinterpret_cast<const char*>(a.inputs) + r * a.stride;
  };
  const Reduction r = reduction(ReduceOp(a.op), a.scale);
#if MSCCLPP_OVERLAPS || MSCCLPP_TARGET_CHECK
  if constexpr (Frequent<T>::kYes) {
    const uint64_t low = reinterpret_cast<uint64_t>(a.input) | reinterpret_cast<uint64_t>(a.output) | a.inputs | a.stride | a.count * sizeof(T);
    if (a.op == kSum && (low & 15) == 0) {
      const auto out = [&](uint32_t) MSCCLPP_LAMBDA { return static_cast<char*>(a.output); };
      const uint64_t words = a.count * sizeof(T) / 16;
      if (a.ranks == 4) return sum_words<T, 4>(words, block_id(), grid_dim(), a.rank, false, inputs, out);
      if (a.ranks == 2) return sum_words<T, 2>(words, block_id(), grid_dim(), a.rank, false, inputs, out);
      if (a.ranks == 8) return sum_words<T, 8>(words, block_id(), grid_dim(), a.rank, false, inputs, out);
    }
  }
#endif
  reduce_n<T>(a.output, inputs, a.ranks, a.count, r, global_thread(), global_threads());
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_STEPS_H_
