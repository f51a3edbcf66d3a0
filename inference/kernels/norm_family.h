// All-reduce, residual and norm of rows: one image for each element type.
//
// On a GPU a team of blocks has a row at a time. The last team has none: it sends the signature of the call to the other ranks, receives
// theirs, and compares. No other team waits for it, so that the comparison costs no time.
//
// Nothing at the end of a launch costs time either. No counter tells which block is the last: each block counts launches
// itself, by a store that nobody waits for before the launch has ended.
#ifndef MSCCLPP_INFERENCE_NORM_FAMILY_H_
#define MSCCLPP_INFERENCE_NORM_FAMILY_H_

#include "norm_host.h"
#include "norm_rows.h"

namespace mscclpp {
namespace inference {

#if !MSCCLPP_TARGET_CPU

// compare ends the launch if a rank has begun another call.
MSCCLPP_DEVICE void compare(const NormArgs& a, const Team& team, uint32_t launch) {
  const auto turn = (launch % 2) * a.ranks;
  for (uint32_t r = thread_id(); r < a.ranks; r += block_dim()) {
    auto* theirs = reinterpret_cast<NormNotice*>(team.peer(r)) + turn + a.rank;
    store8_packet(theirs, static_cast<uint64_t>(launch) << 32 | a.signature);
  }
  for (uint32_t r = thread_id(); r < a.ranks; r += block_dim()) {
    const auto* word = reinterpret_cast<const uint64_t*>(reinterpret_cast<NormNotice*>(team.peer(a.rank)) + turn + r);
    uint64_t got = 0;
    const WaitSite site{a.kernel, 1, r, launch, &a.state->left};
    if (!wait_brief(a.control, site, [word, launch, &got] {
          got = load8_packet(word);
          return static_cast<uint32_t>(got >> 32) == launch;
        })) {
      continue;
    }
    if (static_cast<uint32_t>(got) == a.signature) continue;
    store_relaxed_device(&a.state->apart, r + 1);
    detail::report(a.control, WaitSite{a.kernel, kApart, r, a.signature}, static_cast<uint32_t>(got));
    store_relaxed_device(&a.state->left, 1u);
  }
}

template <class T, uint32_t E, uint32_t kFlags>
MSCCLPP_DEVICE uint32_t rows_of(const NormArgs& a, Team& team, const uint32_t* count) {
  Rows<T, E, kFlags> rows(a, team);
  const uint32_t before = load_relaxed_device(count), first = team.index, teams = team.count - 1, works = rows.at.works();
  Row r;
  if (first < works && rows.at.work(first, &r)) rows.fetch(r);
  rows.start(before + 1);
  for (uint32_t w = first; w < works; w += teams) {
    if (rows.at.work(w, &r)) rows.send_input(r);
  }
  rows.load_weights();
  // Rows that this rank owns come first: others wait for them.
  for (uint32_t turn = 0; turn < (rows.at.two() ? 2u : 1u); ++turn) {
    for (uint32_t w = first; w < works; w += teams) {
      if (!rows.at.work(w, &r) || (r.owner == a.rank) != (turn == 0)) continue;
      if (turn == 0 || !rows.at.outputs()) rows.finish(r);
      else if (!rows.at.has(kOwnOutput)) rows.accept(r);
    }
  }
  return before + 1;
}

// The team without rows compares calls, and counts the launch for the blocks that it lacks.
MSCCLPP_DEVICE uint32_t keep_books(const NormArgs& a, const Team& team, const uint32_t* count) {
  const uint32_t with_rows = grid_dim() - team.size, launch = load_relaxed_device(count) + 1;
  for (uint32_t b = with_rows + thread_id(); b < kMostBlocks; b += block_dim()) a.state->counts[1 + b] = launch;
  compare(a, team, launch);
  return launch;
}

// Frequent calls have code of their own: their threads take fewer registers and instructions.
template <class T, uint32_t E>
MSCCLPP_DEVICE uint32_t rows_of(const NormArgs& a, Team& team, const uint32_t* count) {
  const uint32_t flags = a.flags & ~(kPairs | kQuads);
  if (a.quantized == kNotQuantized && (flags & ~kWholeRows) == 0) return rows_of<T, E, kWholeRows>(a, team, count);
  if (a.quantized == kE4M3PerToken && (flags & ~kE4M3Rows) == 0 && a.bias == nullptr) return rows_of<T, E, kE4M3Rows>(a, team, count);
  return rows_of<T, E, kAllFlags>(a, team, count);
}

template <class T>
MSCCLPP_DEVICE void all_reduce_norm(const NormArgs& a) {
  Team team(a);
  await_previous();
  release_next();
  const bool last = team.index + 1 == team.count;
  if (last && team.rank != 0) return;
  uint32_t* count = &a.state->counts[last ? 0 : 1 + block_id()];
  uint32_t launch;
  if (last) launch = keep_books(a, team, count);
#if MSCCLPP_CLUSTERS
  else if ((a.flags & kQuads) != 0) launch = rows_of<T, 4>(a, team, count);
#endif
  else if ((a.flags & kPairs) != 0) launch = rows_of<T, 2>(a, team, count);
  else launch = rows_of<T, 1>(a, team, count);
  block_sync();  // all of the block know the launch
  if (thread_id() == 0) store_relaxed_device(count, launch);
}
#endif

// Several blocks share a multiprocessor, so that all rows of a few hundred tokens are under way at once: 128 registers a thread.
#if MSCCLPP_TARGET_CUDA
extern "C" MSCCLPP_GLOBAL void __attribute__((launch_bounds(MSCCLPP_MAX_THREADS, 512 / MSCCLPP_MAX_THREADS)))
mscclpp_inference_allreduce_norm(const NormArgs args) {
  all_reduce_norm<Element>(args);
}
#else
MSCCLPP_KERNEL(mscclpp_inference_allreduce_norm, NormArgs, args) { all_reduce_norm<Element>(args); }
#endif

}  // namespace inference
}  // namespace mscclpp
#endif  // MSCCLPP_INFERENCE_NORM_FAMILY_H_
