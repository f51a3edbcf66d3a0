// A channel whose data a proxy moves. One thread makes each call. A put returns
// before its source may be reused; flush waits until it may.
#ifndef MSCCLPP_PORT_CHANNEL_H_
#define MSCCLPP_PORT_CHANNEL_H_

#include "fifo.h"
#include "semaphore.h"
#include "trigger.h"

namespace mscclpp {

struct PortChannel : PortChannelHandle {
  // Offsets and sizes are below 4 GiB: the trigger has 32 bits for each.
  MSCCLPP_DEVICE bool put(uint64_t dstOffset, uint64_t srcOffset, uint64_t bytes, uint32_t kernel = 0 MSCCLPP_AT) const {
    return push(kTriggerData, dst_memory, dstOffset, src_memory, srcOffset, bytes, nullptr, kernel MSCCLPP_HERE);
  }
  MSCCLPP_DEVICE bool putMemory(uint32_t dst, uint64_t dstOffset, uint32_t src, uint64_t srcOffset, uint64_t bytes,
                                uint32_t kernel = 0 MSCCLPP_AT) const {
    return push(kTriggerData, dst, dstOffset, src, srcOffset, bytes, nullptr, kernel MSCCLPP_HERE);
  }

  // Raises the peer's counter after everything put on this connection before.
  MSCCLPP_DEVICE bool signal(uint32_t kernel = 0 MSCCLPP_AT) const {
    return push(kTriggerSignal, 0, 0, 0, 0, 0, nullptr, kernel MSCCLPP_HERE);
  }
  MSCCLPP_DEVICE bool putWithSignal(uint64_t dstOffset, uint64_t srcOffset, uint64_t bytes,
                                    uint32_t kernel = 0 MSCCLPP_AT) const {
    return push(kTriggerData | kTriggerSignal, dst_memory, dstOffset, src_memory, srcOffset, bytes, nullptr,
                kernel MSCCLPP_HERE);
  }
  MSCCLPP_DEVICE bool putWithSignalAndFlush(uint64_t dstOffset, uint64_t srcOffset, uint64_t bytes,
                                            uint32_t kernel = 0 MSCCLPP_AT) const {
    uint64_t at = 0;
    return push(kTriggerData | kTriggerSignal | kTriggerFlush, dst_memory, dstOffset, src_memory, srcOffset, bytes, &at,
                kernel MSCCLPP_HERE) &&
           waitFlushed(at, kernel MSCCLPP_HERE);
  }

  // Waits until the sources of all puts on this connection may be reused.
  MSCCLPP_DEVICE bool flush(uint32_t kernel = 0 MSCCLPP_AT) const {
    uint64_t at = 0;
    return push(kTriggerFlush, 0, 0, 0, 0, 0, &at, kernel MSCCLPP_HERE) && waitFlushed(at, kernel MSCCLPP_HERE);
  }

  MSCCLPP_DEVICE bool wait(uint32_t kernel = 0 MSCCLPP_AT) const { return incoming().wait(kernel MSCCLPP_HERE); }
  MSCCLPP_DEVICE bool relaxedWait(uint32_t kernel = 0 MSCCLPP_AT) const {
    return incoming().relaxedWait(kernel MSCCLPP_HERE);
  }
  MSCCLPP_DEVICE bool poll() const { return incoming().poll(); }

 private:
  MSCCLPP_DEVICE const Semaphore& incoming() const { return static_cast<const Semaphore&>(semaphore); }
  MSCCLPP_DEVICE const Fifo& ring() const { return static_cast<const Fifo&>(fifo); }

  MSCCLPP_DEVICE bool push(uint32_t type, uint32_t dst, uint64_t dstOffset, uint32_t src, uint64_t srcOffset, uint64_t bytes,
                           uint64_t* at, uint32_t kernel MSCCLPP_AT) const {
    Trigger t;
    t.fst = mscclpp_trigger_pack_bytes(bytes) | mscclpp_trigger_pack_from(srcOffset);
    t.snd = mscclpp_trigger_pack_to(dstOffset) | mscclpp_trigger_pack_src(src) | mscclpp_trigger_pack_dst(dst) |
            mscclpp_trigger_pack_kind(type) | mscclpp_trigger_pack_slot(semaphore_slot);
    MSCCLPP_HAPPENED(semaphore.control, (type & kTriggerSignal) != 0 ? kRecordSignal : bytes != 0 ? kRecordPut : kRecordFlush, bytes, semaphore.peer)
    return ring().push(t, at, kernel MSCCLPP_HERE);
  }

  // The word counts triggers of the ring: past position at, the flush is done.
  MSCCLPP_DEVICE bool waitFlushed(uint64_t at, uint32_t kernel MSCCLPP_AT) const {
    const uint64_t* word = flush_done;
    const uint32_t* failed = fifo.error;
    bool dead = false;
    const bool ok = MSCCLPP_ACQUIRED(wait_until(fifo.control, WaitSite{kernel, semaphore.id, semaphore.peer, at + 1}, [&](uint64_t& seen) {
      seen = MSCCLPP_POLL(word);
      if (seen > at) return true;
      dead = load_relaxed(failed) != 0;
      return dead;
    } MSCCLPP_HERE));
    return ok && !dead;
  }
};
static_assert(sizeof(PortChannel) == sizeof(PortChannelHandle), "a view of the handle");

}  // namespace mscclpp
#endif  // MSCCLPP_PORT_CHANNEL_H_
