// The argument of the kernel that exchanges data between hosts, and the memory that it
// works in. Plain data: the host fills it. collectives/exchange_args.go is the Go twin;
// a test compares sizes and offsets. For the line below see args.h.
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

// What a slot begins with: which exchange of which call the data behind it belongs to.
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

// In memory of the host: what the host is to know.
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
  uint64_t input_stride;  // bytes from what is for one host to what is for the next; 0: the same for all
  void* output;     // what the hosts gave, by host
  uint64_t stride;  // bytes from one host's to the next
  uint64_t bytes;   // at most slot less its head
  uint32_t host;
  uint32_t hosts;
  uint32_t giver;   // 1 + the host that alone gives anything; 0: all do
  uint32_t taker;   // 1 + the host that alone gets anything; 0: all do
  Signature signature;
};
static_assert(sizeof(ExchangeArgs) == 112 + sizeof(Signature), "layout");

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_EXCHANGE_ARGS_H_
