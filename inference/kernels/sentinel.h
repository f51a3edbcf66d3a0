// Packets without a flag: 16 bytes, all of them payload. Memory holds the sentinel in every word until a packet arrives, and
// its reader puts the sentinel back. That takes elements with a NaN to spare: the sentinel is two (or one) of
// them, which no sum produces, and a NaN of that payload in the input becomes another one before it is sent.
//
// Two halves by turns suffice. A rank that sends into a half for the second time has ended the launch between, for which
// it needed packets of every other rank; each sent those after its launch before had ended, which had put the
// sentinel back. Words may arrive one by one, as every word is looked at.
#ifndef MSCCLPP_INFERENCE_SENTINEL_H_
#define MSCCLPP_INFERENCE_SENTINEL_H_

#include <mscclpp/device.h>

namespace mscclpp {
namespace inference {

constexpr uint32_t kSentinel = 0xffffffffu;
constexpr uint32_t kOtherNaN = 0x7fff7fffu;  // a NaN of f32, and two of f16 or bf16

MSCCLPP_DEVICE uint32_t scrub(uint32_t w) { return w == kSentinel ? kOtherNaN : w; }
MSCCLPP_DEVICE Vec16 scrub(Vec16 v) { return Vec16{scrub(v.x), scrub(v.y), scrub(v.z), scrub(v.w)}; }

// Whether all of a packet has arrived.
MSCCLPP_DEVICE bool whole(Vec16 v) { return v.x != kSentinel && v.y != kSentinel && v.z != kSentinel && v.w != kSentinel; }

MSCCLPP_DEVICE void clear(void* p) { store16_packet(p, Vec16{kSentinel, kSentinel, kSentinel, kSentinel}); }

#if MSCCLPP_TARGET_CPU
// take copies packets that have arrived, and puts the sentinel back. It returns false, and does nothing, if one is missing.
inline bool take(void* to, void* packets, size_t bytes) {
  asm volatile("" : : : "memory");  // memory may have changed since the last look
  __builtin_memcpy(to, packets, bytes);
  asm volatile("" : : : "memory");  // the copy is checked, and used
  const uint32_t* w = static_cast<const uint32_t*>(to);
  uint32_t missing = 0;
  for (size_t i = 0; i < bytes / 4; ++i) missing |= w[i] == kSentinel ? 1u : 0u;
  if (missing != 0) return false;
  __builtin_memset(packets, 0xff, bytes);
  return true;
}

// send makes packets of bytes.
inline void send(void* packets, const void* from, size_t bytes) {
  uint32_t* to = static_cast<uint32_t*>(packets);
  const uint32_t* w = static_cast<const uint32_t*>(from);
  MSCCLPP_INDEPENDENT
  for (size_t i = 0; i < bytes / 4; ++i) to[i] = scrub(w[i]);
  asm volatile("" : : : "memory");
}
#endif

}  // namespace inference
}  // namespace mscclpp
#endif  // MSCCLPP_INFERENCE_SENTINEL_H_
