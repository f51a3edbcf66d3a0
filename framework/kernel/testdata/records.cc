// A put, a signal and a wait: records_test.go counts their instructions.
#include <mscclpp/device.h>

using namespace mscclpp;

#if MSCCLPP_TARGET_CPU
#define ENTRY extern "C"
#else
#define ENTRY MSCCLPP_DEVICE
#endif

ENTRY void put(const MemoryChannel& c) { c.put(0, 16, 0, 1); }
ENTRY void get(const MemoryChannel& c) { c.get(0, 16, 0, 1); }
ENTRY void signal(const MemoryChannel& c) { c.signal(); }
ENTRY void relaxed_signal(const MemoryChannel& c) { c.relaxedSignal(); }
ENTRY bool wait(const MemoryChannel& c) { return c.wait(); }
ENTRY bool relaxed_wait(const MemoryChannel& c) { return c.relaxedWait(); }

// Without a kernel the compiler knows that nothing is recorded.
struct Args {
  WaitControl* control;
  const MemoryChannel* channel;
};
MSCCLPP_KERNEL(kernel, Args, args) { args.channel->signal(); }
