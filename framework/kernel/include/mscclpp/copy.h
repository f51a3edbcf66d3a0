// copy() moves bytes with any number of threads, for any alignment and size. It
// orders nothing: synchronize the threads, then signal.
#ifndef MSCCLPP_COPY_H_
#define MSCCLPP_COPY_H_

#include "memory.h"

#if MSCCLPP_TARGET_CPU
#include "copy_cpu.h"
#endif

namespace mscclpp {

#if !MSCCLPP_TARGET_CPU
namespace detail {

template <class W>
MSCCLPP_DEVICE void copy_words(void* dst, const void* src, size_t n, uint32_t tid, uint32_t nthreads) {
  W* d = static_cast<W*>(dst);
  const W* s = static_cast<const W*>(src);
  for (size_t i = tid; i < n; i += nthreads) d[i] = s[i];
}

// Each warp moves a tile of consecutive 16-byte words: the addresses differ by
// constants, which costs fewer registers than a stride over all threads.
MSCCLPP_DEVICE void copy_vec16(void* dst, const void* src, size_t n, uint32_t tid, uint32_t nthreads) {
  Vec16* d = static_cast<Vec16*>(dst);
  const Vec16* s = static_cast<const Vec16*>(src);
  constexpr uint32_t kUnroll = 4, kTile = MSCCLPP_WARP * kUnroll;
  size_t done = 0;
  if (nthreads % MSCCLPP_WARP == 0) {
    const size_t tiles = n / kTile;
    const uint32_t lane = tid % MSCCLPP_WARP, warps = nthreads / MSCCLPP_WARP;
    for (size_t t = tid / MSCCLPP_WARP; t < tiles; t += warps) {
      const size_t base = t * kTile + lane;
      Vec16 v[kUnroll];
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < kUnroll; ++k) v[k] = load16(s + base + k * MSCCLPP_WARP);
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < kUnroll; ++k) store16(d + base + k * MSCCLPP_WARP, v[k]);
    }
    done = tiles * kTile;
  }
  for (size_t i = done + tid; i < n; i += nthreads) store16(d + i, load16(s + i));
}

#if MSCCLPP_TARGET_GPU
// dst is aligned to 16, src is off by something else than dst: aligned 4-byte
// loads, shifted together. Reads up to three bytes around the source, within the
// aligned words that hold it.
MSCCLPP_DEVICE void copy_shifted(void* dst, const void* src, size_t n, uint32_t tid, uint32_t nthreads) {
  Vec16* d = static_cast<Vec16*>(dst);
  const uint32_t off = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(src) & 3u);
  const uint32_t* s = reinterpret_cast<const uint32_t*>(reinterpret_cast<uintptr_t>(src) - off);
  const uint32_t shift = 8 * off;
  for (size_t i = tid; i < n; i += nthreads) {
    const uint32_t a = s[4 * i], b = s[4 * i + 1], c = s[4 * i + 2], e = s[4 * i + 3];
    const uint32_t f = off != 0 ? s[4 * i + 4] : 0;
    const auto join = [shift](uint32_t lo, uint32_t hi) {
      return static_cast<uint32_t>((static_cast<uint64_t>(hi) << 32 | lo) >> shift);
    };
    store16(d + i, Vec16{join(a, b), join(b, c), join(c, e), join(e, f)});
  }
}
#endif

}  // namespace detail

// tid runs over the nthreads threads that take part, in any numbering.
MSCCLPP_DEVICE void copy(void* dst, const void* src, size_t bytes, uint32_t tid, uint32_t nthreads) {
#if MSCCLPP_TARGET_CHECK
  check::point();
#endif
  const uintptr_t d = reinterpret_cast<uintptr_t>(dst), s = reinterpret_cast<uintptr_t>(src);
  const size_t lead = (16 - (d & 15)) & 15;
  const bool together = ((d ^ s) & 15) == 0;
#if MSCCLPP_TARGET_GPU
  constexpr bool shiftable = true;
#else
  const bool shiftable = false;
#endif
  if (bytes < 32 || !(together || shiftable)) {
    if (((d | s | bytes) & 3) == 0) {
      detail::copy_words<uint32_t>(dst, src, bytes / 4, tid, nthreads);
    } else {
      detail::copy_words<uint8_t>(dst, src, bytes, tid, nthreads);
    }
    return;
  }
  char* to = static_cast<char*>(dst);
  const char* from = static_cast<const char*>(src);
  if (lead != 0) detail::copy_words<uint8_t>(to, from, lead, tid, nthreads);
  const size_t body = (bytes - lead) / 16;
  if (together) {
    detail::copy_vec16(to + lead, from + lead, body, tid, nthreads);
  }
#if MSCCLPP_TARGET_GPU
  else {
    detail::copy_shifted(to + lead, from + lead, body, tid, nthreads);
  }
#endif
  const size_t done = lead + body * 16;
  if (done != bytes) detail::copy_words<uint8_t>(to + done, from + done, bytes - done, tid, nthreads);
}
#endif  // !MSCCLPP_TARGET_CPU

}  // namespace mscclpp
#endif  // MSCCLPP_COPY_H_
