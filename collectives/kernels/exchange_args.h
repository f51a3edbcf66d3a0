// The arguments of the kernels between hosts, and the memory that they work in. Plain
// data: the host fills it. collectives/internal/kernelargs/exchange.go is the Go twin; a
// test compares sizes and offsets. For the line below see args.h.
//
// mscclpp:layout
//
// Slots. A rank has slots in one block of device memory, which adapters of the network
// reach: first two for each host that it sends from, used by turns, then two for each that
// the counterpart there fills by turns. Those that belong to the own host stay empty, and
// what is the same for all hosts is sent from those of the first. Each begins with a head.
// Memory and order are the same on all ranks.
#ifndef MSCCLPP_COLLECTIVES_EXCHANGE_ARGS_H_
#define MSCCLPP_COLLECTIVES_EXCHANGE_ARGS_H_

#include "args.h"

namespace mscclpp {
namespace collectives {

// The head of a slot says to which exchange of which call the data behind it belongs.
struct ExchangeHead {
  uint64_t sequence;  // of the exchange, from 1
  uint64_t count;     // elements of the call
  uint64_t call;      // type, operation, root, collective and algorithm: see signature_part
  uint64_t bytes;     // of the exchange: they follow, unless this rank gives its counterpart nothing
  uint8_t pad[32];
};
static_assert(sizeof(ExchangeHead) == 64, "layout");

// In device memory, private to the rank: replays of a graph go on where the last
// launch ended.
struct ExchangeState {
  uint64_t turn;  // exchanges so far
  GridBarrier grid;
  uint32_t left;  // not 0: one was left before its end, and there are no more
  uint8_t pad[44];
};
static_assert(sizeof(ExchangeState) == 64, "layout");

// In memory of the host: the note that kernels leave for it.
struct ExchangeNote {
  uint64_t begun;  // exchanges that a kernel has begun…
  uint64_t ended;  // …and ended
  uint32_t found;  // 1: the counterpart on a host is in another exchange; 2 while that is written
  uint32_t host;   // which
  uint64_t theirs[4];  // its head, and what was expected
  uint64_t ours[4];
  uint8_t pad[40];
};
static_assert(sizeof(ExchangeNote) == 128, "layout");

struct ExchangeArgs {
  WaitControl* control;
  const WaitControl* inside;  // of the kernels inside the host, or null
  ExchangeState* state;
  ExchangeNote* note;
  const PortChannelHandle* ports;  // by host; that of the own host is not used
  char* slots;      // of this rank
  uint64_t slot;    // bytes of one
  const void* input;
  uint64_t input_stride;  // bytes from the input for one host to that for the next; 0: the same for all
  void* output;     // the data that the hosts gave, by host
  uint64_t stride;  // bytes from one host's to the next
  uint64_t bytes;   // at most slot less its head
  uint32_t host;
  uint32_t hosts;
  uint32_t giver;   // 1 + the host that alone gives anything; 0: all do
  uint32_t taker;   // 1 + the host that alone gets anything; 0: all do
  Signature signature;
};
static_assert(sizeof(ExchangeArgs) == 112 + sizeof(Signature), "layout");

// Send and receive between ranks of different hosts. Slots lie in one block of device memory of each
// rank, which network adapters reach: first the slots from which the rank sends, then those that its
// peers fill, kSendRecvSlots for each rank of the job. Slots for ranks of the same host stay empty.
// Memory and order are the same on all ranks.
constexpr uint32_t kSendRecvSlots = 8;
constexpr uint32_t kSendRecvCredit = kSendRecvSlots / 2;  // pieces whose slots one signal returns
constexpr uint32_t kSendRecvPeers = 64;               // on other hosts, at most
constexpr uint32_t kSendRecvBlocks = 8;               // of one launch, at most

// The head of a slot.
struct SendRecvHead {
  uint64_t sequence;  // of the piece, among those from one rank to the other, from 1
  uint64_t total;     // bytes of its message
  uint8_t pad[48];
};
static_assert(sizeof(SendRecvHead) == 64, "layout");

// In device memory, private to the rank: replays of a graph go on where the last launch
// ended.
struct SendRecvState {
  uint64_t waits[kSendRecvBlocks];  // so far, of each block
  uint32_t left;                // not 0: a launch was left, and there are no more
  uint8_t pad[60];
};
static_assert(sizeof(SendRecvState) == 128, "layout");

// Behind it, one for each rank of the job.
struct SendRecvPeer {
  uint64_t sent;      // pieces, to that rank
  uint64_t received;  // pieces, from it
  uint64_t given;     // credits returned for them
  uint64_t pad;
};
static_assert(sizeof(SendRecvPeer) == 32, "layout");

// In memory of the host: the note that kernels leave for it.
struct SendRecvNote {
  uint64_t waits[kSendRecvBlocks];  // of each block: 0, or which wait it is in and, in the low 16 bits, 1 + a rank that it waits for
  uint32_t found;               // 1: a rank sends a message of another length; 2 while that is written
  uint32_t peer;                // which
  uint64_t sent;
  uint64_t expected;
  uint8_t pad[40];
};
static_assert(sizeof(SendRecvNote) == 128, "layout");

// The messages of one direction between two ranks are a queue. In the list the word receive of a
// message is 2 q, and 1 more if the rank receives it, where q numbers the queues from 0.
struct SendRecvArgs {
  WaitControl* control;
  const WaitControl* inside;  // of the kernels inside the host, or null
  SendRecvState* state;
  SendRecvPeer* peers;        // by rank
  SendRecvNote* note;
  const uint32_t* departed;   // by rank, in memory of the host: not 0: the rank has left the job
  const PortChannelHandle* data;    // by rank: carries pieces…
  const PortChannelHandle* credit;  // …and returns credits for them
  char* slots;                // of this rank
  uint64_t slot;              // bytes of one
  uint64_t* memory;           // null: list is the group; see kTransferWords
  uint64_t first;             // with listed, as in TransferArgs
  uint32_t listed;
  uint32_t transfers;         // of the group, queue by queue
  uint32_t rank;
  uint32_t ranks;             // of the job
  Signature signature;
  Transfer list[kMaxTransfers];
};
static_assert(sizeof(SendRecvArgs) == 112 + sizeof(Signature) + 24 * kMaxTransfers, "layout");

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_EXCHANGE_ARGS_H_
