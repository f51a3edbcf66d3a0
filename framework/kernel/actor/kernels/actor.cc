#include <mscclpp/device.h>

#include "actor.h"

namespace mscclpp {
namespace actor {

// Steps that move data are done by all threads.
MSCCLPP_DEVICE bool move(const Args& a, const Step& s) {
  const uint32_t tid = global_thread(), n = global_threads();
  const MemoryChannel& memory = static_cast<const MemoryChannel&>(a.memory[s.channel]);
  switch (s.op) {
    case kCopy: copy(reinterpret_cast<void*>(s.dst), reinterpret_cast<const void*>(s.src), s.bytes, tid, n); return true;
    case kPut: memory.put(s.dst, s.src, s.bytes, tid, n); return true;
    case kGet: memory.get(s.dst, s.src, s.bytes, tid, n); return true;
    case kPutLL8: memory.putPackets<LL8Packet>(s.dst, s.src, s.bytes, tid, n, s.flag); return true;
    case kPutLL16: memory.putPackets<LL16Packet>(s.dst, s.src, s.bytes, tid, n, s.flag); return true;
    case kUnpackLL8: return memory.unpackPackets<LL8Packet>(s.src, s.dst, s.bytes, tid, n, s.flag, a.kernel);
    case kUnpackLL16: return memory.unpackPackets<LL16Packet>(s.src, s.dst, s.bytes, tid, n, s.flag, a.kernel);
    case kSwitchReduce: {
      const SwitchChannel& window = static_cast<const SwitchChannel&>(a.switches[s.channel]);
      window.reduceRange<float>(reinterpret_cast<void*>(s.dst), s.src, s.bytes / sizeof(float), reduction(kSum), tid, n);
      return true;
    }
    case kSwitchBroadcast: {
      const SwitchChannel& window = static_cast<const SwitchChannel&>(a.switches[s.channel]);
      window.broadcastRange(s.dst, reinterpret_cast<const void*>(s.src), s.bytes, tid, n);
      return true;
    }
    default: return true;
  }
}

MSCCLPP_DEVICE bool moves(uint32_t op) {
  return op == kCopy || op == kPut || op == kGet || (op >= kPutLL8 && op <= kUnpackLL16) || op == kSwitchReduce ||
         op == kSwitchBroadcast;
}

// Steps of a single thread.
MSCCLPP_DEVICE bool act(const Args& a, Step& s) {
  const MemoryChannel& memory = static_cast<const MemoryChannel&>(a.memory[s.channel]);
  const PortChannel& port = static_cast<const PortChannel&>(a.port[s.channel]);
  const SwitchChannel& window = static_cast<const SwitchChannel&>(a.switches[s.channel]);
  const Fifo& ring = static_cast<const Fifo&>(a.rings[s.channel]);
  switch (s.op) {
    case kSignal: memory.signal(); return true;
    case kRelaxedSignal: memory.relaxedSignal(); return true;
    case kWait: return memory.wait(a.kernel);
    case kRelaxedWait: return memory.relaxedWait(a.kernel);
    case kPoll: s.result = memory.poll() ? 1 : 0; return true;
    case kPortPut: return port.put(s.dst, s.src, s.bytes, a.kernel);
    case kPortSignal: return port.signal(a.kernel);
    case kPortPutWithSignal: return port.putWithSignal(s.dst, s.src, s.bytes, a.kernel);
    case kPortPutWithSignalAndFlush: return port.putWithSignalAndFlush(s.dst, s.src, s.bytes, a.kernel);
    case kPortFlush: return port.flush(a.kernel);
    case kPortWait: return port.wait(a.kernel);
    case kPortPoll: s.result = port.poll() ? 1 : 0; return true;
    case kPush: {
      Trigger t;
      t.fst = s.dst;
      t.snd = s.src;
      uint64_t at = 0;
      const bool ok = ring.push(t, &at, a.kernel);
      s.result = at;
      return ok;
    }
    case kSync: return ring.sync(s.bytes, a.kernel);
    case kSwitchSignal: window.signal(); return true;
    case kSwitchWait: return window.wait(a.kernel);
    default: return true;
  }
}

// A step is over for all threads before the next begins: the barrier after it also
// carries what one thread acquired to the others.
MSCCLPP_DEVICE void perform(const Args& a) {
  for (uint32_t i = 0; i < a.count; ++i) {
    Step& s = a.steps[i];
    bool ok = true;
    if (moves(s.op)) {
      ok = move(a, s);
    } else if (global_thread() == 0) {
      ok = act(a, s);
    }
    if (!ok) store_relaxed_device(a.failed, 1u);
    if (!grid_sync(a.grid, a.control, a.kernel) || load_relaxed_device(a.failed) != 0) return;
    if (global_thread() == 0) store_relaxed(a.done, static_cast<uint64_t>(i + 1));
  }
}

}  // namespace actor
}  // namespace mscclpp

MSCCLPP_KERNEL(mscclpp_actor, mscclpp::actor::Args, args) { mscclpp::actor::perform(args); }
