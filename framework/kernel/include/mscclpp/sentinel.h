// Packets without a flag, for reductions of floating-point numbers (the Lamport protocol): 16 bytes, all of them payload.
// Memory holds the sentinel in every word until a packet arrives. Its reader polls until no word is the sentinel, and then
// puts the sentinel back. Words may arrive one by one, because every word is looked at.
//
// The sentinel is a word of ones: one NaN, or several. A sender replaces a word of its input, or of its sums, that
// happens to be the sentinel by another NaN. So the protocol is for types that have a NaN to spare, and for values alone:
// data movement has to keep every bit, and integers, e4m3b15 and packed or quantized payload need each pattern.
//
// Two halves of memory that kernels use by turns are enough, if in every launch each rank waits for something that every
// other rank has sent in it, at least in effect. A rank S that sends to rank R in launch e + 2 has ended launch e + 1. For that
// R had to send in e + 1, and R sends nothing before its launch e has ended: await_previous returns then. When a launch ends its
// stores are performed, those of the sentinel too, in R's own memory. So S finds the half of e as R has left it:
// empty. Launches that overlap change nothing: before await_previous they touch no packet.
//
// After an abort a half may hold packets that nobody takes. The communicator is at its end then, and its memory
// is not used again.
#ifndef MSCCLPP_SENTINEL_H_
#define MSCCLPP_SENTINEL_H_

#include "memory.h"
#include "types.h"

namespace mscclpp {

constexpr uint32_t kSentinel = 0xffffffffu;
constexpr uint32_t kOtherNaN = 0x7fff7fffu;  // NaNs of every type below

// Sentinel<T> is the protocol for elements of type T. An element is no larger than a word: of f64 words have 64 bits, since half
// of an ordinary number may look like the sentinel. Memory keeps 8 bytes whole, as for other packets.
template <class T> struct Sentinel;

namespace detail {

struct SentinelOf32 {
  static MSCCLPP_DEVICE uint32_t scrub(uint32_t w) { return w == kSentinel ? kOtherNaN : w; }
  static MSCCLPP_DEVICE Vec16 scrub(Vec16 v) { return Vec16{scrub(v.x), scrub(v.y), scrub(v.z), scrub(v.w)}; }
  static MSCCLPP_DEVICE bool arrived(Vec16 v) { return v.x != kSentinel && v.y != kSentinel && v.z != kSentinel && v.w != kSentinel; }
};

struct SentinelOf64 {
  static MSCCLPP_DEVICE bool empty(uint32_t low, uint32_t high) { return (low & high) == kSentinel; }
  static MSCCLPP_DEVICE Vec16 scrub(Vec16 v) {
    if (empty(v.x, v.y)) v.x = v.y = kOtherNaN;
    if (empty(v.z, v.w)) v.z = v.w = kOtherNaN;
    return v;
  }
  static MSCCLPP_DEVICE bool arrived(Vec16 v) { return !empty(v.x, v.y) && !empty(v.z, v.w); }
};

}  // namespace detail

// scrub makes what a packet may carry, and leaves everything but the sentinel as it is. arrived says whether all of a packet is there.
template <> struct Sentinel<float> : detail::SentinelOf32 {};
template <> struct Sentinel<f16> : detail::SentinelOf32 {};
template <> struct Sentinel<bf16> : detail::SentinelOf32 {};
template <> struct Sentinel<e4m3> : detail::SentinelOf32 {};
template <> struct Sentinel<e5m2> : detail::SentinelOf32 {};
template <> struct Sentinel<double> : detail::SentinelOf64 {};

// Puts the sentinel back, in place of a packet that was taken.
MSCCLPP_DEVICE void clear_sentinel(void* packet) { store16_packet(packet, Vec16{kSentinel, kSentinel, kSentinel, kSentinel}); }

}  // namespace mscclpp
#endif  // MSCCLPP_SENTINEL_H_
