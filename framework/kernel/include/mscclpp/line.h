// Lines: packets of 128 bytes that eight neighboring threads of a warp store, and
// load, together. The last 8 bytes are the flag, so 120 carry payload: 94 % of the
// bytes, where LL8 and LL16 packets have 50 %.
//
// A line is whole or absent only where the link keeps the stores of one warp to one
// line of 128 bytes together. NVLink does; PCIe does not, so do not use lines over
// it. Other targets store two LL16 packets for each 16 bytes, which assumes nothing.
//
// A unit is the 16 bytes of one thread; unit u belongs to line u / 8. In CUDA the
// threads of a warp have to send and receive units 32 * k to 32 * k + 31 together:
// blocks of whole warps. Otherwise any thread may take any unit.
#ifndef MSCCLPP_LINE_H_
#define MSCCLPP_LINE_H_

#include "packet.h"

namespace mscclpp {

constexpr uint32_t kLineUnits = 8;
constexpr uint32_t kLinePayload = 120;  // bytes
#if MSCCLPP_TARGET_CUDA
constexpr uint32_t kLineUnitBytes = 16;  // as it lies in memory
#else
constexpr uint32_t kLineUnitBytes = 32;
#endif

namespace detail {

#if MSCCLPP_TARGET_CUDA
MSCCLPP_DEVICE bool warp_all(bool ok) {
#if defined(__clang__)
  return __nvvm_vote_all_sync(0xffffffffu, ok);
#else
  return __all_sync(0xffffffffu, ok) != 0;
#endif
}
#endif

}  // namespace detail

// Stores unit u of a line at base. The last unit of a line has room for two words.
MSCCLPP_DEVICE void writeLineUnit(void* base, uint64_t u, Vec16 v, uint32_t flag) {
  const bool last = u % kLineUnits == kLineUnits - 1;
  char* to = static_cast<char*>(base) + u * kLineUnitBytes;
#if MSCCLPP_TARGET_CUDA
  store16_packet(to, last ? Vec16{v.x, v.y, flag, flag} : v);
#else
  store16_packet(to, Vec16{v.x, flag, v.y, flag});
  if (!last) store16_packet(to + 16, Vec16{v.z, flag, v.w, flag});
#endif
}

// Polls unit u once: false if it is missing. The unit has arrived when the threads of all
// units of its line return true.
MSCCLPP_DEVICE bool pollLineUnit(const void* base, uint64_t u, uint32_t flag, Vec16& v) {
  const bool last = u % kLineUnits == kLineUnits - 1;
  const char* from = static_cast<const char*>(base) + u * kLineUnitBytes;
#if MSCCLPP_TARGET_CUDA
  v = load16_packet(from);
  return !last || (v.z == flag && v.w == flag);
#else
  const Vec16 a = load16_packet(from), b = last ? Vec16{0, flag, 0, flag} : load16_packet(from + 16);
  v = Vec16{a.x, a.z, b.x, b.z};
  return a.y == flag && a.w == flag && b.y == flag && b.w == flag;
#endif
}

// Whether ok holds in all threads that poll lines together: those of a warp in CUDA, each
// thread for itself elsewhere.
MSCCLPP_DEVICE bool line_threads_all(bool ok) {
#if MSCCLPP_TARGET_CUDA
  return detail::warp_all(ok);
#else
  return ok;
#endif
}

#if MSCCLPP_TARGET_CUDA
// wait_until for lines, which the threads of a warp poll together: it ends for all of
// them at once. ready() has no votes of its own.
template <class F>
MSCCLPP_DEVICE bool wait_lines(const WaitControl* control, const WaitSite& site, F ready) {
  uint64_t start = 0;
  for (uint32_t polls = 1;; ++polls) {
    if (detail::warp_all(ready())) return true;
    if (polls % detail::kPollsPerCall != 0) continue;
    start = detail::look(const_cast<WaitControl*>(control), start, polls, site.kernel, site.channel, site.peer, site.expected, site.left);
    if (!detail::warp_all(start != detail::kLeave)) return false;
  }
}
#else
template <class F>
MSCCLPP_DEVICE bool wait_lines(const WaitControl* control, const WaitSite& site, F ready MSCCLPP_AT) {
  return wait_brief(control, site, ready MSCCLPP_HERE);
}
#endif

}  // namespace mscclpp
#endif  // MSCCLPP_LINE_H_
