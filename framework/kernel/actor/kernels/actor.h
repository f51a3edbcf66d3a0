// A kernel that does what a list of steps says: every operation that channels offer,
// for tests of transports and devices. actor.go is the Go twin.
#ifndef MSCCLPP_ACTOR_H_
#define MSCCLPP_ACTOR_H_

#include <mscclpp/layout.h>

namespace mscclpp {
namespace actor {

enum Op : uint32_t {
  kBarrier = 0,  // of the grid
  kCopy,         // bytes from address src to address dst
  // Memory channels. dst, src: offsets.
  kPut, kGet, kSignal, kRelaxedSignal, kWait, kRelaxedWait, kPoll,
  kPutLL8, kPutLL16, kUnpackLL8, kUnpackLL16,
  // Port channels.
  kPortPut, kPortSignal, kPortPutWithSignal, kPortPutWithSignalAndFlush, kPortFlush, kPortWait, kPortPoll,
  // Rings. dst: Trigger.fst, src: Trigger.snd; kSync waits for the position that bytes says.
  kPush, kSync,
  // Switch channels. kSwitchReduce sums float32 from window offset src to address
  // dst, kSwitchBroadcast copies from address src to window offset dst.
  kSwitchSignal, kSwitchWait, kSwitchReduce, kSwitchBroadcast,
  kOps
};

struct Step {
  uint32_t op;
  uint32_t channel;  // index among the channels of its kind
  uint32_t flag;     // of packets
  uint32_t reserved;
  uint64_t dst;
  uint64_t src;
  uint64_t bytes;
  uint64_t result;   // written: 1 or 0 of a poll, position of a push
};
static_assert(sizeof(Step) == 48, "layout");

struct Args {
  WaitControl* control;
  GridBarrier* grid;
  const MemoryChannelHandle* memory;
  const PortChannelHandle* port;
  const SwitchChannelHandle* switches;
  const FifoHandle* rings;
  Step* steps;
  uint64_t* done;   // steps that were completed; less than count: a wait was left
  uint32_t* failed; // 0 at launch
  uint32_t count;
  uint32_t kernel;  // id for reports
};
static_assert(sizeof(Args) == 80, "layout");

enum Source : uint32_t { kPlain = 0, kFromLL8 = 1, kFromLL16 = 2 };

// The argument of mscclpp_actor_reduce, which is compiled for each type.
struct ReduceArgs {
  WaitControl* control;
  const void* const* inputs;  // n addresses
  void* out;
  uint64_t count;             // elements
  double scale;
  uint32_t n;
  uint32_t op;
  uint32_t divisor;
  uint32_t partial;
  uint32_t source;
  uint32_t self;              // the input that is no row of packets
  uint32_t flag;
  uint32_t kernel;
  uint32_t* failed;           // set to 1 when a wait was left
};
static_assert(sizeof(ReduceArgs) == 80, "layout");

}  // namespace actor
}  // namespace mscclpp
#endif  // MSCCLPP_ACTOR_H_
