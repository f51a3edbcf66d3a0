// All-reduce, residual and norm of rows: one image for each element type.
//
// On a GPU a block has a row at a time. The last block has none: it sends the signature of the call to the other ranks, receives theirs, and
// compares. No other block waits for it, so that the comparison costs no time.
#ifndef MSCCLPP_INFERENCE_NORM_FAMILY_H_
#define MSCCLPP_INFERENCE_NORM_FAMILY_H_

#include "norm_host.h"
#include "norm_rows.h"

namespace mscclpp {
namespace inference {

#if !MSCCLPP_TARGET_CPU

// compare ends the launch if a rank has begun another call.
MSCCLPP_DEVICE bool compare(const NormArgs& a, uint32_t number, uint64_t launch) {
  const auto turn = (launch % 2) * a.ranks;
  for (uint32_t r = thread_id(); r < a.ranks; r += block_dim()) {
    auto* theirs = reinterpret_cast<NormNotice*>(a.peers[r]) + turn + a.rank;
    store8_packet(theirs, static_cast<uint64_t>(number) << 32 | a.signature);
  }
  bool ok = true;
  for (uint32_t r = thread_id(); r < a.ranks; r += block_dim()) {
    const auto* word = reinterpret_cast<const uint64_t*>(reinterpret_cast<NormNotice*>(a.peers[a.rank]) + turn + r);
    uint64_t got = 0;
    const WaitSite site{a.kernel, 1, r, number, &a.state->left};
    if (!wait_brief(a.control, site, [word, number, &got] {
          got = load8_packet(word);
          return static_cast<uint32_t>(got >> 32) == number;
        })) {
      ok = false;
      continue;
    }
    if (static_cast<uint32_t>(got) == a.signature) continue;
    ok = false;
    store_relaxed_device(&a.state->apart, r + 1);
    detail::report(a.control, WaitSite{a.kernel, kApart, r, a.signature}, static_cast<uint32_t>(got));
    store_relaxed_device(&a.state->left, 1u);
  }
  return ok;
}

template <class T>
MSCCLPP_DEVICE bool rows_of_block(const NormArgs& a, uint64_t launch, bool ok) {
  Rows<T> rows(a, launch);
  rows.ok = ok;
  const uint32_t first = block_id(), blocks = grid_dim() - 1;
  for (uint32_t t = first; t < a.tokens; t += blocks) rows.send_input(t);
  release_next();
  if (!rows.at.two()) {
    for (uint32_t t = first; t < a.tokens; t += blocks) rows.finish(t, rows.collect(t));
    return rows.ok;
  }
  // Rows that this rank owns come first: others wait for them.
  for (uint32_t turn = 0; turn < 2; ++turn) {
    for (uint32_t t = first; t < a.tokens; t += blocks) {
      if ((rows.at.owner(t) == a.rank) == (turn == 0)) rows.finish(t, rows.collect(t));
    }
  }
  return rows.ok;
}

template <class T>
MSCCLPP_DEVICE void all_reduce_norm(const NormArgs& a) {
  await_previous();
  NormState* s = a.state;
  const uint64_t launch = load_relaxed_device(&s->launches) + 1;
  bool ok = load_relaxed_device(&s->left) == 0;  // threads of a block that differ meet at the same barriers
  if (block_id() + 1 < grid_dim()) {
    ok = rows_of_block<T>(a, launch, ok);
  } else {
    ok = ok && compare(a, number_of(launch), launch);
  }
  ok = block_sync_and(ok);
  if (thread_id() != 0) return;
  if (!ok) store_release_device(&s->left, 1u);
  if (fetch_add_acq_rel_device(&s->finished, 1u) != grid_dim() - 1) return;
  store_relaxed_device(&s->finished, 0u);
  store_release_device(&s->launches, launch);
}
#endif

MSCCLPP_KERNEL(mscclpp_inference_allreduce_norm, NormArgs, args) { all_reduce_norm<Element>(args); }

}  // namespace inference
}  // namespace mscclpp
#endif  // MSCCLPP_INFERENCE_NORM_FAMILY_H_
