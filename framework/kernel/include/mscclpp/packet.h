// Packets carry their own arrival: a flag beside every 4 bytes of payload (LL8: 8-byte
// packets, LL16: two such halves). They need no signal and no fence, and cost
// twice the bytes. Memory has to store 8 bytes atomically.
//
// The flag must differ from any flag that the slot held before, and is never 0. Count
// calls, and use the two halves of a scratch area in turn, so that a fast peer cannot
// overwrite packets that are still being read. Packets are aligned to their size.
#ifndef MSCCLPP_PACKET_H_
#define MSCCLPP_PACKET_H_

#include "wait.h"

#if MSCCLPP_TARGET_CPU
#include "packet_cpu.h"
#endif

namespace mscclpp {

struct alignas(8) LL8Packet {
  uint32_t data, flag;
  using Payload = uint32_t;
};

struct alignas(16) LL16Packet {
  uint32_t data1, flag1, data2, flag2;
  using Payload = uint64_t;
};

MSCCLPP_DEVICE void writePacket(LL8Packet* p, uint32_t payload, uint32_t flag) {
  store8_packet(p, static_cast<uint64_t>(flag) << 32 | payload);
}
MSCCLPP_DEVICE void writePacket(LL16Packet* p, uint64_t payload, uint32_t flag) {
  store16_packet(p, Vec16{static_cast<uint32_t>(payload), flag, static_cast<uint32_t>(payload >> 32), flag});
}

// One look: true iff the packet has arrived.
MSCCLPP_DEVICE bool pollPacket(const LL8Packet* p, uint32_t flag, uint32_t& payload) {
  const uint64_t v = load8_packet(p);
  payload = static_cast<uint32_t>(v);
  return static_cast<uint32_t>(v >> 32) == flag;
}
MSCCLPP_DEVICE bool pollPacket(const LL16Packet* p, uint32_t flag, uint64_t& payload) {
  const Vec16 v = load16_packet(p);
  payload = static_cast<uint64_t>(v.z) << 32 | v.x;
  return v.y == flag && v.w == flag;
}

// Waits for the packet. false: leave the kernel.
template <class P>
MSCCLPP_DEVICE bool readPacket(const P* p, uint32_t flag, const WaitControl* control, const WaitSite& site,
                               typename P::Payload& payload MSCCLPP_AT) {
  typename P::Payload got = 0;
  const bool ok = wait_until(control, site, [p, flag, &got] { return pollPacket(p, flag, got); } MSCCLPP_HERE);
  payload = got;
  return ok;
}

namespace detail {

// Loads up to sizeof(U) bytes as they lie in memory; missing bytes are zero.
template <class U>
MSCCLPP_DEVICE U load_some(const void* p, size_t bytes) {
  if (bytes >= sizeof(U) && (reinterpret_cast<uintptr_t>(p) & (sizeof(U) - 1)) == 0) return *static_cast<const U*>(p);
  const uint8_t* b = static_cast<const uint8_t*>(p);
  const uint32_t n = bytes < sizeof(U) ? static_cast<uint32_t>(bytes) : static_cast<uint32_t>(sizeof(U));
  U v = 0;
  for (uint32_t i = 0; i < n; ++i) v |= static_cast<U>(b[i]) << (8 * i);
  return v;
}
template <class U>
MSCCLPP_DEVICE void store_some(void* p, U v, size_t bytes) {
  if (bytes >= sizeof(U) && (reinterpret_cast<uintptr_t>(p) & (sizeof(U) - 1)) == 0) {
    *static_cast<U*>(p) = v;
    return;
  }
  uint8_t* b = static_cast<uint8_t*>(p);
  const uint32_t n = bytes < sizeof(U) ? static_cast<uint32_t>(bytes) : static_cast<uint32_t>(sizeof(U));
  for (uint32_t i = 0; i < n; ++i) b[i] = static_cast<uint8_t>(v >> (8 * i));
}

}  // namespace detail

// How many packets of type P carry bytes of payload.
template <class P>
MSCCLPP_DEVICE constexpr size_t packetsFor(size_t bytes) {
  return (bytes + sizeof(typename P::Payload) - 1) / sizeof(typename P::Payload);
}

// bytes at src become packets at dst. Any size and alignment of src; the last
// packet is filled up with zeros.
template <class P>
MSCCLPP_DEVICE void copyToPackets(void* dst, const void* src, size_t bytes, uint32_t tid, uint32_t nthreads, uint32_t flag) {
  using U = typename P::Payload;
  P* packets = static_cast<P*>(dst);
  const char* from = static_cast<const char*>(src);
  const size_t n = packetsFor<P>(bytes);
  size_t i = tid;
#if MSCCLPP_TARGET_CPU
  if (nthreads == 1) i = detail::pack<sizeof(P)>(dst, src, bytes, flag) / sizeof(U);
#endif
  for (; i < n; i += nthreads) {
    const size_t at = i * sizeof(U);
    writePacket(packets + i, detail::load_some<U>(from + at, bytes - at), flag);
  }
}

// Packets at src become bytes at dst, each as soon as it has arrived. false: leave
// the kernel. Any size and alignment of dst.
template <class P>
MSCCLPP_DEVICE bool copyFromPackets(void* dst, const void* src, size_t bytes, uint32_t tid, uint32_t nthreads, uint32_t flag,
                                    const WaitControl* control, const WaitSite& site MSCCLPP_AT) {
  using U = typename P::Payload;
  const P* packets = static_cast<const P*>(src);
  char* to = static_cast<char*>(dst);
  const size_t n = packetsFor<P>(bytes);
  size_t i = tid;
  for (;;) {
#if MSCCLPP_TARGET_CPU
    // As many as have arrived, then one with the patience of readPacket, and on.
    if (nthreads == 1) i += detail::unpack<sizeof(P)>(to + i * sizeof(U), packets + i, bytes - i * sizeof(U), flag) / sizeof(U);
#endif
    if (i >= n) return true;
    const size_t at = i * sizeof(U);
    U payload;
    if (!readPacket(packets + i, flag, control, site, payload MSCCLPP_HERE)) return false;
    detail::store_some<U>(to + at, payload, bytes - at);
    i += nthreads;
#if MSCCLPP_TARGET_CPU
    if (i >= n) return true;
#endif
  }
}

}  // namespace mscclpp
#endif  // MSCCLPP_PACKET_H_
