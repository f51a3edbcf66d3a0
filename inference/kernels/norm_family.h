// All-reduce, residual and norm of rows: one image for each element type.
//
// On a GPU a team of blocks has a row at a time. The last team has none: it sends the signature of the call to the other ranks, receives
// theirs, and compares. No other team waits for it, so that the comparison costs no time.
//
// A launch learns its number when it begins, while those before it still run, and nothing at its end but its results takes time.
#ifndef MSCCLPP_INFERENCE_NORM_FAMILY_H_
#define MSCCLPP_INFERENCE_NORM_FAMILY_H_

#include "norm_host.h"
#include "norm_rms.h"
#include "norm_rows.h"

namespace mscclpp {
namespace inference {

#if !MSCCLPP_TARGET_CPU

// compare ends the launch if a rank has begun another call.
MSCCLPP_DEVICE void compare(const NormArgs& a, const Team& team) {
  const uint32_t launch = team.launch;
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
MSCCLPP_DEVICE void rows_of(const NormArgs& a, Team& team) {
  Rows<T, E, kFlags> rows(a, team);
  const uint32_t first = team.index, teams = team.count - 1, works = rows.at.works();
  Row r;
  if (first < works && rows.at.work(first, &r)) rows.fetch(r);
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
}

// Frequent calls have code of their own: their threads take fewer registers and instructions.
template <class T, uint32_t E>
MSCCLPP_DEVICE void rows_of(const NormArgs& a, Team& team) {
  const uint32_t flags = a.flags & ~(kPairs | kQuads | kEarly);
  if (a.quantized == kNotQuantized && (flags & ~kWholeRows) == 0) return rows_of<T, E, kWholeRows>(a, team);
  if (a.quantized == kE4M3PerToken && (flags & ~kE4M3Rows) == 0 && a.bias == nullptr) return rows_of<T, E, kE4M3Rows>(a, team);
  return rows_of<T, E, kAllFlags>(a, team);
}

// begin waits for the launches before, and lets the next one begin. Until then the next one cannot overtake, as it waits for this one to end.
MSCCLPP_DEVICE void begin(const NormArgs& a) {
  const bool early = (a.flags & kEarly) != 0;
  if (early) release_next();
  await_previous();
  if (!early) release_next();
}

// The last team has no rows: its first block compares calls.
MSCCLPP_DEVICE bool compares(const NormArgs& a, const Team& team) {
  if (team.index + 1 < team.count) return false;
  begin(a);
  if (team.rank == 0) compare(a, team);
  return true;
}

template <class T>
MSCCLPP_DEVICE void all_reduce_norm(const NormArgs& a) {
  Team team(a);
  if (compares(a, team)) return;
  begin(a);
#if MSCCLPP_CLUSTERS
  if ((a.flags & kQuads) != 0) return rows_of<T, 4>(a, team);
#endif
  (a.flags & kPairs) != 0 ? rows_of<T, 2>(a, team) : rows_of<T, 1>(a, team);
}

template <class T, uint32_t E, bool kBytes, bool kTwo>
MSCCLPP_DEVICE void rms_norm(const NormArgs& a, Team& team) {
  RmsRows<T, E, kBytes, kTwo> rows(a, team);
  begin(a);
  rows.run();
}
template <class T, uint32_t E>
MSCCLPP_DEVICE void rms_norm(const NormArgs& a, Team& team) {
  if (a.quantized != kNotQuantized) return a.ranks > 1 ? rms_norm<T, E, true, true>(a, team) : rms_norm<T, E, true, false>(a, team);
  a.ranks > 1 ? rms_norm<T, E, false, true>(a, team) : rms_norm<T, E, false, false>(a, team);
}
template <class T>
MSCCLPP_DEVICE void rms_norm(const NormArgs& a) {
  Team team(a);
  if (compares(a, team)) return;
#if MSCCLPP_CLUSTERS
  if ((a.flags & kQuads) != 0) return rms_norm<T, 4>(a, team);
#endif
  (a.flags & kPairs) != 0 ? rms_norm<T, 2>(a, team) : rms_norm<T, 1>(a, team);
}
#endif

// Several blocks share a multiprocessor, so that all rows of a few hundred tokens are under way at once: 128 registers a thread.
#if MSCCLPP_TARGET_CUDA
#define MSCCLPP_NORM_KERNEL(name, f)                                                                                                    \
  extern "C" MSCCLPP_GLOBAL void __attribute__((launch_bounds(MSCCLPP_MAX_THREADS, 512 / MSCCLPP_MAX_THREADS))) name(const NormArgs args) { \
    f<Element>(args);                                                                                                                  \
  }
MSCCLPP_NORM_KERNEL(mscclpp_inference_allreduce_norm, all_reduce_norm)
MSCCLPP_NORM_KERNEL(mscclpp_inference_rms_norm, rms_norm)
#undef MSCCLPP_NORM_KERNEL
#else
MSCCLPP_KERNEL(mscclpp_inference_allreduce_norm, NormArgs, args) { all_reduce_norm<Element>(args); }
#if MSCCLPP_TARGET_CPU
// A host has one code for all calls.
template <class T>
inline void rms_norm(const NormArgs& a) {
  all_reduce_norm<T>(a);
}
#endif
MSCCLPP_KERNEL(mscclpp_inference_rms_norm, NormArgs, args) { rms_norm<Element>(args); }
#endif

}  // namespace inference
}  // namespace mscclpp
#endif  // MSCCLPP_INFERENCE_NORM_FAMILY_H_
