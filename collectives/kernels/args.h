// The argument of every collective kernel, and the layout of the memory that it
// works in. Plain data: the host fills it. collectives/internal/kernelargs/args.go is the
// Go twin; a test compares sizes and offsets. Because of the line below a hash of this
// file, without comments, is in the manifest of every image. An image with another hash
// than that of the header which package collectives was built with is refused.
//
// mscclpp:layout
//
// Scratch. Every rank allocates one block of scratch and makes it accessible to all
// others once. It has seven parts, at the same offsets on all ranks:
//
//	mailboxes  [lane][peer], one each: words that the peer writes for this rank
//	packets    two halves of [peer] slots that peers fill with packets
//	lines      the same for lines, on GPUs
//	stages     [lane][slot] buffers that this rank fills and all peers read
//	own pipes  [lane][slot] the same as pipes, of what this rank sends itself
//	pipes      [lane][peer][slot] buffers that one peer fills and this rank reads; none of this rank
//	line pipes the same, which are filled with lines, on GPUs
//
// Lanes. A lane is a share of the work that one block does from start to end, with
// words and buffers of its own. Data is divided among lanes by the arguments alone, so
// all ranks agree whatever grid each of them was launched with. Block b does lanes
// b, b + grid, … in ascending order, so the lowest unfinished lane can always proceed.
#ifndef MSCCLPP_COLLECTIVES_ARGS_H_
#define MSCCLPP_COLLECTIVES_ARGS_H_

#include <mscclpp/layout.h>

namespace mscclpp {
namespace collectives {

constexpr uint32_t kMaxRanks = 72;       // of one memory domain; the largest switch on sale
constexpr uint32_t kMaxLanes = 128;
constexpr uint32_t kMaxBlocks = 256;     // of one launch
constexpr uint32_t kLLRanks = 8;       // of kernels with short arguments
constexpr uint32_t kMaxTransfers = 96;   // of one launch
constexpr uint32_t kLLTransfers = 16;  // of one with short arguments
constexpr uint64_t kOwnPipeSlot = 7 << 10;  // of own pipes, at most

// Steps of copy algorithms.
enum Step : uint32_t {
  kStepOpen = 0,    // outputs may be written
  kStepPushed = 1,  // a piece lies in the peer's scratch
  kStepTaken = 2,   // it was summed
  kStepDone = 3,    // results lie in the peer's output
  kSteps = 4
};

// The signature of a launch, which peers compare.
struct Signature {
  uint64_t sequence;    // of the launch within the communicator, from 1
  uint64_t count;       // elements, as the caller gave them
  uint32_t collective;
  uint32_t algorithm;
  uint32_t type;
  uint32_t op;
  uint32_t root;
  uint32_t reserved;
};
static_assert(sizeof(Signature) == 40, "layout");

// Words that one peer writes for this rank, a cache line each.
struct Mailbox {
  uint64_t pipe_head;   // chunks that the peer has put into its pipe to this rank
  uint8_t pad0[56];
  uint64_t pipe_tail;   // chunks that the peer has taken out of this rank's pipe to it
  uint64_t line_tail;   // the same of its line pipe
  uint64_t offered;        // the number of the chunk, of that pipe, that comes behind the announcement of a long message…
  uint64_t offered_bytes;  // …of so many bytes…
  uint64_t offer;          // …whose buffer is there, as this rank addresses it; 1: beside that pipe; 0: as lines
  uint8_t pad1[24];
  uint64_t stage_head;  // chunks that the peer has staged
  uint8_t pad2[56];
  uint64_t stage_tail;  // chunks of this rank's stage that the peer is done with
  uint8_t pad3[56];
  uint64_t sync;        // barriers that the peer has entered
  uint64_t input;       // with it: where the peer's buffers are in its registered memory
  uint64_t output;
  uint64_t memory;      // which registered memories these are in
  uint8_t pad4[32];
  uint32_t signature[2][8];  // by parity of the sequence, as packets; lane 0 only
  uint32_t meeting[16];      // numbers that the peer sends with a barrier, as packets: see Sync::meet
  uint64_t steps[4];         // of copy algorithms, which the peer has done: see steps.h; lane 0 only
  uint64_t step_offset;      // with kStepOpen: where its output is
  uint64_t step_memory;
  uint8_t pad5[16];
};
static_assert(sizeof(Mailbox) == 512, "layout");

// The counterparts that only this rank sees, in its device memory: they survive a
// launch, and advance when a captured graph is replayed.
struct LaneState {
  uint64_t sync;
  uint64_t staged;
  uint64_t pulled[kMaxRanks];    // by producer
  uint64_t sent[kMaxRanks];      // by destination
  uint64_t received[kMaxRanks];  // by source
  uint64_t line_sent[kMaxRanks];      // the same for line pipes
  uint64_t line_received[kMaxRanks];
  uint8_t pad[48];
};
static_assert(sizeof(LaneState) == 2944, "layout");

struct State {
  uint64_t reserved0;
  uint64_t sequence;   // launches whose signature was published
  uint32_t left;       // not 0: a wait was left, and all behind it are: see WaitSite
  uint32_t mismatch;   // not 0: the last launch moved nothing, or not all: see below
  GridBarrier grid;
  uint32_t elsewhere;  // not 0: 1 + a peer whose buffers are in other registered memory
  uint32_t unreachable;  // not 0: 1 + a peer whose process could not be read…
  uint32_t reason;       // …and the system's error number
  uint8_t pad[4];
  uint64_t sent;         // with kMismatchLength: bytes of the peer's message…
  uint64_t expected;     // …and of the receive that it met
  uint64_t signaled[4];  // steps of copy algorithms that this rank has signaled…
  uint64_t awaited[4];   // …and has waited for
  uint64_t epochs[2][16];  // of packets and of lines, as packets.h counts them: the first word of each
  LaneState lanes[kMaxLanes];
};
static_assert(sizeof(State) == 384 + kMaxLanes * sizeof(LaneState), "layout");

// Private memory behind the state, for data that a pull algorithm has read.
constexpr uint64_t kPullBytes = 512 << 10;

// Values of State.mismatch.
constexpr uint32_t kMismatchSignature = 1;   // a peer launched something else
constexpr uint32_t kMismatchLength = 0x10000;  // plus the peer that sent a message of another length

enum Check : uint32_t {
  kCheckNever = 0,    // publish nothing
  kCheckPublish = 1,  // publish, so that a host that sees a stall can compare
  kCheckCompare = 2   // publish, and compare with all peers before data moves
};

struct Common {
  WaitControl* control;
  State* state;
  State* notes;         // notes for the host, up to State.epochs: host memory, or state itself
  uint32_t rank;
  uint32_t ranks;
  uint32_t lanes;
  uint32_t check;
  uint64_t packets;     // offsets in scratch, and sizes in bytes
  uint64_t packet_half;
  uint64_t stages;
  uint64_t stage_slot;
  uint64_t pipes;
  uint64_t pipe_slot;   // with its 64-byte header
  uint32_t stage_slots;
  uint32_t pipe_slots;
  Signature signature;
  uint64_t scratch[kMaxRanks];  // every rank's, own included, as addressed here
};
static_assert(sizeof(Common) == 136 + 8 * kMaxRanks, "layout");

struct Args {
  Common common;
  const void* input;
  void* output;
  uint64_t count;   // elements; per rank where the collective says so
  uint64_t chunk;   // bytes of a step of chunked algorithms, at most stage_slot; of pipelines, bytes of a slot
  uint32_t type;
  uint32_t op;
  uint32_t root;
  uint32_t element; // bytes of one element
  double scale;     // of kPreMulSum
  uint64_t input_offset;   // of input and output in their registered memory
  uint64_t output_offset;
  uint64_t memory;         // names the two registered memories, alike on all ranks
  SwitchChannelHandle window;         // of the switch algorithm, over scratch of its own
  uint64_t inputs[kMaxRanks];         // registered memory of all ranks that holds input…
  uint64_t outputs[kMaxRanks];        // …and output
  uint64_t processes[kMaxRanks];      // ids of the ranks' processes, for the pull algorithms
};
static_assert(sizeof(Args) == sizeof(Common) + 80 + 64 + 24 * kMaxRanks, "layout");

// Release says when a kernel lets the next one on its stream begin. Blocks of the next kernel occupy the
// device and wait until this one has ended.
enum Release : uint32_t {
  kReleaseSent = 0,    // when all blocks have sent
  kReleaseAtOnce = 1,  // when all have begun
  kReleaseMet = 2,     // when the first block has received from all peers as well, or has ended
};

// The argument of packet kernels for few ranks. It is short, because a launch takes
// longer the more bytes it carries, and the host has already done its divisions.
struct LLArgs {
  WaitControl* control;
  State* state;
  State* notes;
  uint32_t rank;
  uint32_t ranks;
  uint32_t check;
  uint32_t release;     // a Release
  uint64_t area;        // offset in scratch of the packets, or lines, of either half
  uint64_t half;        // and its size in bytes
  uint64_t slot;        // bytes of it for one peer, a multiple of 256; 0: all of it, for the only peer
  const void* input;
  void* output;
  uint64_t count;       // elements; per rank where the collective says so
  uint32_t op;
  uint32_t element;     // bytes of one element
  double scale;
  Signature signature;
  uint64_t scratch[kLLRanks];
};
static_assert(sizeof(LLArgs) == 144 + 8 * kLLRanks, "layout");

// The arguments of the small kernels between the copies of copy algorithms.
struct StepArgs {
  WaitControl* control;
  State* state;
  State* notes;
  uint32_t rank;
  uint32_t ranks;
  uint32_t signal;      // bits of steps to signal to the peers…
  uint32_t wait;        // …and then to wait for
  uint32_t lag;         // of kStepTaken, how many may still be missing
  uint32_t check;
  uint64_t output_offset;
  uint64_t memory;
  const void* input;    // of a sum: this rank's own
  void* output;
  uint64_t inputs;      // data of the peers, one after the other in rank order
  uint64_t stride;      // bytes from one to the next
  uint64_t count;       // elements
  uint32_t op;
  uint32_t reserved;
  double scale;
  Signature signature;
  uint64_t scratch[kLLRanks];
};
static_assert(sizeof(StepArgs) == 160 + 8 * kLLRanks, "layout");

// One message of a group. Messages between two ranks in one direction are matched
// in their order; the host sorts them by direction and peer and keeps that order.
struct Transfer {
  void* buffer;
  uint64_t bytes;
  uint32_t peer;
  uint32_t receive;  // 1: into buffer, 0: out of it
};
static_assert(sizeof(Transfer) == 24, "layout");

// A group that is longer than list goes into memory first, by launches that do
// nothing else: arguments are copied when a launch is enqueued, so the host needs no
// buffer that would have to live until the device has read it, and a captured graph
// fills the memory anew each time.
constexpr uint32_t kTransferWords = 4;  // of 64 bits, for one message in memory

// How line pipes are divided, and how many of their lanes a launch has messages for.
struct LinePipes {
  uint64_t offset;  // in scratch
  uint32_t lanes;
  uint32_t active;  // those from this one on have nothing to do
  uint32_t slots;   // of the pipe from one rank to one other, a power of two
  uint32_t groups;  // of 16 lines, in a slot
};
static_assert(sizeof(LinePipes) == 24, "layout");

struct TransferArgs {
  Common common;
  uint32_t transfers;  // of the group
  uint32_t listed;     // not 0: only put so many of list into memory…
  uint64_t first;      // …as messages from this number on
  uint64_t* memory;    // null: list is the group
  LinePipes lines;
  uint64_t long_bytes;  // from which on a message that goes as lines is long: see transfers_lines.h
  uint32_t beside;        // bytes of it that go beside a chunk; 0: there is no room
  uint32_t beside_slots;  // for so many chunks of a lane, a power of two
  Transfer list[kMaxTransfers];
  uint64_t theirs[kMaxTransfers];  // of what is received, the buffer as the peer addresses it, or 0
};

// The same for few messages of few ranks: short, as LLArgs is.
struct LLTransferArgs {
  WaitControl* control;
  State* state;
  State* notes;
  uint32_t rank;
  uint32_t ranks;
  uint32_t transfers;
  uint32_t release;    // kReleaseAtOnce, or else at its end
  Signature signature;
  LinePipes lines;
  uint64_t scratch[kLLRanks];
  Transfer list[kLLTransfers];
};
static_assert(sizeof(LLTransferArgs) == 104 + 8 * kLLRanks + 24 * kLLTransfers, "layout");
static_assert(sizeof(TransferArgs) <= 4096, "a kernel takes at most 4 KiB of arguments");
static_assert(sizeof(Args) <= 4096, "a kernel takes at most 4 KiB of arguments");

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_ARGS_H_
