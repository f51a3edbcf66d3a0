// A channel whose data threads move themselves, by loads from and stores to the
// peer's memory. put and get order nothing; see semaphore.h for how to signal.
#ifndef MSCCLPP_MEMORY_CHANNEL_H_
#define MSCCLPP_MEMORY_CHANNEL_H_

#include "copy.h"
#include "packet.h"
#include "semaphore.h"

namespace mscclpp {

struct MemoryChannel : MemoryChannelHandle {
  MSCCLPP_DEVICE void signal() const { counters().signal(); }
  MSCCLPP_DEVICE void relaxedSignal() const { counters().relaxedSignal(); }
  MSCCLPP_DEVICE bool wait(uint32_t kernel = 0 MSCCLPP_AT) const { return counters().wait(kernel MSCCLPP_HERE); }
  MSCCLPP_DEVICE bool relaxedWait(uint32_t kernel = 0 MSCCLPP_AT) const {
    return counters().relaxedWait(kernel MSCCLPP_HERE);
  }
  MSCCLPP_DEVICE bool poll() const { return counters().poll(); }

  // Element i of the peer's memory.
  template <class T> MSCCLPP_DEVICE T read(uint64_t i) const { return static_cast<const T*>(dst)[i]; }
  template <class T> MSCCLPP_DEVICE void write(uint64_t i, T v) const { static_cast<T*>(dst)[i] = v; }

  // Own memory to the peer's.
  MSCCLPP_DEVICE void put(uint64_t dstOffset, uint64_t srcOffset, uint64_t bytes, uint32_t tid, uint32_t nthreads) const {
    MSCCLPP_COPY(static_cast<char*>(dst) + dstOffset, static_cast<const char*>(src) + srcOffset, bytes, tid, nthreads);
    MSCCLPP_HAPPENED(semaphore.control, kRecordPut, bytes, semaphore.peer)
  }
  MSCCLPP_DEVICE void put(uint64_t offset, uint64_t bytes, uint32_t tid, uint32_t nthreads) const {
    put(offset, offset, bytes, tid, nthreads);
  }
  // The peer's memory to own.
  MSCCLPP_DEVICE void get(uint64_t localOffset, uint64_t remoteOffset, uint64_t bytes, uint32_t tid, uint32_t nthreads) const {
    MSCCLPP_COPY(static_cast<char*>(src) + localOffset, static_cast<const char*>(dst) + remoteOffset, bytes, tid, nthreads);
    MSCCLPP_HAPPENED(semaphore.control, kRecordGet, bytes, semaphore.peer)
  }
  MSCCLPP_DEVICE void get(uint64_t offset, uint64_t bytes, uint32_t tid, uint32_t nthreads) const {
    get(offset, offset, bytes, tid, nthreads);
  }

  // bytes of payload from own memory become packets in the peer's. dstOffset counts
  // bytes of packets: twice those of payload.
  template <class P = LL16Packet>
  MSCCLPP_DEVICE void putPackets(uint64_t dstOffset, uint64_t srcOffset, uint64_t bytes, uint32_t tid, uint32_t nthreads,
                                 uint32_t flag) const {
    copyToPackets<P>(static_cast<char*>(dst) + dstOffset, static_cast<const char*>(src) + srcOffset, bytes, tid, nthreads, flag);
    MSCCLPP_HAPPENED(semaphore.control, kRecordPackets, bytes, semaphore.peer)
  }
  // Packets that the peer wrote here become payload in own memory.
  template <class P = LL16Packet>
  MSCCLPP_DEVICE bool unpackPackets(uint64_t packetOffset, uint64_t dstOffset, uint64_t bytes, uint32_t tid, uint32_t nthreads,
                                    uint32_t flag, uint32_t kernel = 0 MSCCLPP_AT) const {
    return copyFromPackets<P>(static_cast<char*>(src) + dstOffset, static_cast<const char*>(packets) + packetOffset, bytes, tid,
                              nthreads, flag, semaphore.control, site(kernel, flag) MSCCLPP_HERE);
  }
  template <class P = LL16Packet>
  MSCCLPP_DEVICE bool unpackPacket(uint64_t index, uint32_t flag, typename P::Payload& payload,
                                   uint32_t kernel = 0 MSCCLPP_AT) const {
    return readPacket(static_cast<const P*>(packets) + index, flag, semaphore.control, site(kernel, flag), payload MSCCLPP_HERE);
  }

  // For waits on words of the peer that this channel has no method for.
  MSCCLPP_DEVICE WaitSite site(uint32_t kernel, uint64_t expected) const {
    return WaitSite{kernel, semaphore.id, semaphore.peer, expected};
  }

 private:
  MSCCLPP_DEVICE const Semaphore& counters() const { return static_cast<const Semaphore&>(semaphore); }
};
static_assert(sizeof(MemoryChannel) == sizeof(MemoryChannelHandle), "a view of the handle");

}  // namespace mscclpp
#endif  // MSCCLPP_MEMORY_CHANNEL_H_
