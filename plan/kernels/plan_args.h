// The argument of the kernel that runs execution plans, and the tables that it reads. Plain data: the host fills it.
// plan/exec/layout.go is the Go twin; a test compares sizes and offsets. Because of the line below a hash of this file,
// without comments, is in the manifest of every image.
//
// mscclpp:layout
#ifndef MSCCLPP_PLAN_ARGS_H_
#define MSCCLPP_PLAN_ARGS_H_

#include <mscclpp/layout.h>

namespace mscclpp {
namespace plans {

// The operations. The host has taken those of files apart: a reduction over a switch is one over the memory of all members,
// and beside it through the window, where there is one.
enum Kind : uint16_t {
  kNop = 0, kBarrier = 1, kSignal = 2, kWait = 3, kFlush = 4, kAcquire = 5, kRelease = 6, kPipeline = 7,
  kMove = 8,           // source i to destination i, or the one source to all destinations
  kReduce = 9,         // of all sources, to all destinations
  kPack = 10,          // payload to packets: source i to destination i
  kUnpack = 11,        // packets to payload
  kForward = 12,       // packets to all destinations, with the flag of this launch
  kReducePackets = 13, // source 0 is payload, the others are packets; destination 0 is payload, the others are packets
  kAwait = 14,         // the packets of source 0
  kPut = 15            // over a port: source i to destination i by channel i
};

// Flags of operations.
enum Flag : uint16_t {
  kOverPort = 1,
  kRelaxed = 2,      // a signal or wait that orders execution only
  kThenSignal = 4,   // of puts
  kOfPackets = 8,    // operands know no turns of pipelines
  kInPipeline = 16,
  kMet = 32,         // says no more than that a rank has begun its launch: with windows ranks tell each other so before
  kTotal = 64,       // a reduction whose results have the inputs of all ranks: averages are divided here
  kLoadsWindow = 128, // behind the destinations is the source as the window of a switch has it…
  kStoresWindow = 256, // …and the destination
  kAliased = 512       // of joins: memory is reached through the window of a switch and by its own address
};

struct Op {
  uint16_t kind;
  uint16_t flags;
  uint16_t sources;
  uint16_t destinations;
  uint32_t operands;      // the first in the table: sources, then destinations
  uint32_t ids;           // the first of its channels or semaphores in the table
  uint16_t id_count;
  uint16_t slice;         // of every operand
  uint16_t slices;
  uint16_t reduction;     // 0: that of the call; else 1 + ReduceOp
  uint32_t blocks;        // barrier: how many take part; its number is ids
  uint32_t inner;         // pipeline: how many operations follow that belong to it
  uint32_t chunks;        // pipeline
  uint32_t number;        // in the block's list, as in the file
  uint64_t unit;          // pipeline: bytes of a turn
  uint64_t from;          // the bytes of an operand that the block does, as GPUs note them at the start of a launch
  uint64_t bytes;
};
static_assert(sizeof(Op) == 64, "layout");

// Slots are buffers of ranks: 3 * rank + 0 for input, 1 for output, 2 for scratch memory. Behind those of the ranks are the windows of switches.
enum Packed : uint32_t {
  kOfPacket = 1,
  kInHalf = 2,    // GPUs note here what they add to base at the start of a launch: where the half of scratch memory begins…
  kAtTold = 4     // …or the buffer of another rank
};

struct Operand {
  uint64_t base;   // where its buffer begins, if that is the same in all launches: scratch memory; else 0
  uint32_t slot;
  uint32_t index;  // in chunks
  uint32_t size;
  uint32_t packet; // Packed
};
static_assert(sizeof(Operand) == 24, "layout");

struct Slot {
  uint64_t address;  // here, or 0: it is not mapped
  uint64_t offset;   // in the memory that ports of its rank open
};
static_assert(sizeof(Slot) == 16, "layout");

// The rank's program exchanged memory in which the buffers of a call lie. A rank that reaches those of another one, or is
// reached by it, waits for its notice, which says where in that memory they are.
struct Window {
  uint64_t input;   // where the other rank's memory begins here
  uint64_t output;
  uint32_t mate;    // 1: wait for the rank
  uint32_t pad;
};
static_assert(sizeof(Window) == 24, "layout");

// Places in the room of a block, on GPUs.
constexpr uint32_t kRoomOps = 64, kRoomOperands = 128, kRoomIDs = 64, kRoomSlots = 96;

struct Block {
  uint32_t first;  // of its operations
  uint32_t count;
  uint32_t operands;  // the first of its operands
  uint32_t operand_count;
  uint32_t ids;       // the first of its channels and semaphores
  uint32_t id_count;
  uint32_t met;       // operations before its first one that is not left out with windows, nor joins threads that have done nothing
};
static_assert(sizeof(Block) == 28, "layout");

// Where a block is. On the host blocks take turns on one thread, so that it is kept in memory.
struct Cursor {
  uint32_t op;
  uint32_t part;      // of the operation that are done: channels, semaphores
  uint32_t entered;   // it is counted already: by a barrier, or a wait
  uint32_t pipe;      // 1 + the pipeline that the block is in
  uint64_t turn;
  uint64_t at;        // bytes of the operation that are done
  uint64_t want;      // of the counter that is waited for
  uint32_t peer;      // the rank that the block waits for
  uint32_t ended;
  uint64_t launches;  // on GPUs: that the block has ended
  uint64_t pad[1];
};
static_assert(sizeof(Cursor) == 64, "layout");

struct Meeting {
  uint32_t arrived;
  uint32_t generation;
};
static_assert(sizeof(Meeting) == 8, "layout");

// In device memory, private to the rank: replays of a graph go on where the last launch ended.
struct State {
  uint64_t launches;  // that have ended, on the host
  uint32_t unused;
  uint32_t left;      // not 0: a launch was left before its end
  uint32_t apart;     // 1 + a rank that is in another call
  uint32_t pad[11];
};
static_assert(sizeof(State) == 64, "layout");

// A rank tells the others of its calls, by turns. Threads of GPUs send it as packets, which need no fence.
struct Notice {
  struct {
    uint64_t launch;
    uint64_t signature;
    uint64_t input;   // where its buffers begin in memory that was exchanged
    uint64_t output;
  } of[2];
  uint32_t packets[2][4][4];  // signature, input, output
};
static_assert(sizeof(Notice) == 192, "layout");

struct PlanArgs {
  WaitControl* control;
  State* state;
  Cursor* cursors;
  Meeting* meetings;
  uint32_t* semaphores;
  const Block* blocks;
  const Op* ops;
  const Operand* operands;
  const uint32_t* ids;
  const Slot* slots;
  const SemaphoreHandle* memory;
  const PortChannelHandle* ports;
  const Notice* notice;         // that this rank gets, by rank
  Notice* const* peers;         // where it puts its own, by rank; null: not mapped
  const Window* windows;        // by rank; null: input and output of other ranks are where the slots say
  Slot* resolved;               // with windows: slots of each block, the addresses of this launch
  char* input;
  char* output;
  uint64_t input_offset;        // with windows: where they begin in exchanged memory
  uint64_t output_offset;
  uint64_t chunk;
  uint64_t scratch_chunk;
  uint64_t half;                // of scratch memory; 0: it is used whole
  uint64_t signature;           // of the call
  uint32_t block_count;
  uint32_t alignment;
  uint32_t rank;
  uint32_t ranks;
  uint32_t packet;              // bytes of one: 8 or 16
  uint32_t op;                  // ReduceOp
  uint32_t kernel;              // for reports
  uint32_t pad;
};
static_assert(sizeof(PlanArgs) == 224, "layout");

}  // namespace plans
}  // namespace mscclpp
#endif  // MSCCLPP_PLAN_ARGS_H_
