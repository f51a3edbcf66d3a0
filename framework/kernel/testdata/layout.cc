// Prints sizes and offsets of everything that C++ and Go share, as JSON.
// layout_test.go compiles and runs it, and compares with layout.json.
#include <cstdio>

#include "../actor/kernels/actor.h"
#include "../include/mscclpp/layout.h"
#include "../include/mscclpp/records.h"

using namespace mscclpp;

static const char* separator = "";

#define BEGIN(name, type)                                                                        \
  {                                                                                              \
    using S = type;                                                                              \
    std::printf("%s  \"%s\": {\n    \"size\": %zu,\n    \"offsets\": {", separator, name, sizeof(S)); \
    separator = ",\n";                                                                           \
    const char* comma = "";
#define FIELD(f)                                                          \
  std::printf("%s\n      \"%s\": %zu", comma, #f, offsetof(S, f)); \
  comma = ",";
#define FIELD_AS(f, name)                                                    \
  std::printf("%s\n      \"%s\": %zu", comma, #name, offsetof(S, f)); \
  comma = ",";
#define END()                    \
  std::printf("\n    }\n  }"); \
  }

int main() {
  std::printf("{\n");
  BEGIN("WaitControl", WaitControl)
  FIELD(abort) FIELD(reported) FIELD(kernel) FIELD(channel) FIELD(peer) FIELD(expected) FIELD(seen) FIELD(deadline) FIELD(spin_ns) FIELD(waiting)
  FIELD_AS(reserved0, waited) FIELD_AS(reserved1, records)
  END()
  BEGIN("RecordRing", RecordRing)
  FIELD(next) FIELD(records) FIELD(calls) FIELD(communicator) FIELD(mask) FIELD(clock) FIELD(signed_at) FIELD(signed_to)
  END()
  BEGIN("RecordClock", RecordClock)
  FIELD(turn) FIELD(tsc) FIELD(ns) FIELD(mult) FIELD(most)
  END()
  BEGIN("SemaphoreHandle", SemaphoreHandle)
  FIELD(inbound) FIELD(expected) FIELD(outbound) FIELD(control) FIELD(peer) FIELD(id)
  END()
  BEGIN("MemoryChannelHandle", MemoryChannelHandle)
  FIELD(semaphore) FIELD(dst) FIELD(src) FIELD(packets)
  END()
  BEGIN("Trigger", Trigger)
  FIELD(fst) FIELD(snd)
  END()
  BEGIN("RingHeader", RingHeader)
  FIELD(magic) FIELD(version) FIELD(slots) FIELD(tail) FIELD(error) FIELD(parked) FIELD(head) FIELD(tail_cache)
  END()
  BEGIN("FifoHandle", FifoHandle)
  FIELD(triggers) FIELD(head) FIELD(tail) FIELD(tail_cache) FIELD(error) FIELD(parked) FIELD(control) FIELD(mask) FIELD(shift)
  END()
  BEGIN("PortChannelHandle", PortChannelHandle)
  FIELD(semaphore) FIELD(fifo) FIELD(flush_done) FIELD(dst_memory) FIELD(src_memory) FIELD(semaphore_slot)
  END()
  BEGIN("SwitchChannelHandle", SwitchChannelHandle)
  FIELD(local) FIELD(window) FIELD(bytes) FIELD(stride) FIELD(flag) FIELD(expected) FIELD(control) FIELD(rank) FIELD(ranks)
  END()
  BEGIN("GridBarrier", GridBarrier)
  FIELD(arrived) FIELD(generation)
  END()
  BEGIN("LaunchShape", LaunchShape)
  FIELD(grid) FIELD(block) FIELD(shared)
  END()
  BEGIN("actor.Step", actor::Step)
  FIELD(op) FIELD(channel) FIELD(flag) FIELD(dst) FIELD(src) FIELD(bytes) FIELD(result)
  END()
  BEGIN("actor.Args", actor::Args)
  FIELD(control) FIELD(grid) FIELD(memory) FIELD(port) FIELD(switches) FIELD(rings) FIELD(steps) FIELD(done) FIELD(failed)
  FIELD(count) FIELD(kernel)
  END()
  BEGIN("actor.ReduceArgs", actor::ReduceArgs)
  FIELD(control) FIELD(inputs) FIELD(out) FIELD(count) FIELD(scale) FIELD(n) FIELD(op) FIELD(divisor) FIELD(partial)
  FIELD(source) FIELD(self) FIELD(flag) FIELD(kernel) FIELD(failed)
  END()
  std::printf("\n}\n");
}
