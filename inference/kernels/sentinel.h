// Packets of <mscclpp/sentinel.h>, for elements of up to 4 bytes. On a processor one thread takes many at once.
#ifndef MSCCLPP_INFERENCE_SENTINEL_H_
#define MSCCLPP_INFERENCE_SENTINEL_H_

#include <mscclpp/device.h>
#include <mscclpp/sentinel.h>

namespace mscclpp {
namespace inference {

MSCCLPP_DEVICE uint32_t scrub(uint32_t w) { return Sentinel<float>::scrub(w); }
MSCCLPP_DEVICE Vec16 scrub(Vec16 v) { return Sentinel<float>::scrub(v); }

// Whether all of a packet has arrived.
MSCCLPP_DEVICE bool whole(Vec16 v) { return Sentinel<float>::arrived(v); }

MSCCLPP_DEVICE void clear(void* p) { clear_sentinel(p); }

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
