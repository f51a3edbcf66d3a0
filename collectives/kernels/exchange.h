// An exchange between hosts: each rank gives as many bytes to each of its counterparts,
// the ranks with its index on the other hosts, over port channels, and gets theirs. Where
// only one host gives, or gets, all hosts still send each other heads without data, as the argument
// about slots needs them.
//
// Two slots a direction are enough, and no message has to say that a slot is free. A rank fills the
// slots of exchange k + 2 when it has ended exchange k + 1. By then it has the message of exchange
// k + 1 from each counterpart. A counterpart sends that, if only a head, when it has ended exchange k
// and so has copied out everything that this rank had sent it.
#ifndef MSCCLPP_COLLECTIVES_EXCHANGE_H_
#define MSCCLPP_COLLECTIVES_EXCHANGE_H_

#include "exchange_args.h"
#include "links.h"

namespace mscclpp {
namespace collectives {

// The peer of waits for blocks of the same launch.
constexpr uint32_t kNobody = 0xffffffffu;

// Where the slots of an exchange begin, from the first of the rank: the one from which it
// sends to a host, and the one that the counterpart there fills.
MSCCLPP_DEVICE uint64_t outgoing(const ExchangeArgs& a, uint64_t turn, uint32_t host) {
  return (2 * static_cast<uint64_t>(a.input_stride == 0 ? 0 : host) + (turn & 1)) * a.slot;
}
MSCCLPP_DEVICE uint64_t incoming(const ExchangeArgs& a, uint64_t turn, uint32_t host) {
  return (2 * (static_cast<uint64_t>(a.hosts) + host) + (turn & 1)) * a.slot;
}

MSCCLPP_DEVICE uint64_t call_of(const Signature& s) {
  return uint64_t(s.collective << 24 | (s.algorithm & 0xffffffu)) << 32 | s.root << 16 | s.op << 8 | s.type;
}

// disagree leaves a note of the first head that differs from the expected one. The launch waits until
// the host has read it and has ended the job: nobody can take back the kernels behind it on the stream.
MSCCLPP_DEVICE bool disagree(const ExchangeArgs& a, uint32_t host, uint32_t peer, const uint64_t* theirs, const uint64_t* ours) {
  ExchangeNote* n = a.note;
  if (compare_exchange_device(&n->found, 0u, 2u) == 0) {
    for (uint32_t i = 0; i < 4; ++i) {
      store_relaxed(&n->theirs[i], theirs[i]);
      store_relaxed(&n->ours[i], ours[i]);
    }
    store_relaxed(&n->host, host);
    store_release(&n->found, 1u);
  }
  const WaitSite site{kernel_of(a.signature), kWordSignature, peer, ours[0]};
  return wait_brief(a.control, site, []() MSCCLPP_LAMBDA { return false; });
}

// meet waits for the counterpart on a host, and looks at what it has sent.
MSCCLPP_DEVICE bool meet(const ExchangeArgs& a, uint64_t turn, uint32_t host) {
  const PortChannel& port = static_cast<const PortChannel&>(a.ports[host]);
  if (!port.wait(a.signature.algorithm)) return false;
  const uint64_t* theirs = reinterpret_cast<const uint64_t*>(a.slots + incoming(a, turn, host));
  const uint64_t ours[4] = {turn + 1, a.signature.count, call_of(a.signature), a.bytes};
  bool same = true;
  for (uint32_t i = 0; i < 4; ++i) same = same && theirs[i] == ours[i];
  return same || disagree(a, host, port.semaphore.peer, theirs, ours);
}

// given is how many bytes one host gives another.
MSCCLPP_DEVICE uint64_t given(const ExchangeArgs& a, uint32_t from, uint32_t to) {
  return (a.giver == 0 || a.giver == from + 1) && (a.taker == 0 || a.taker == to + 1) ? a.bytes : 0;
}

// fill puts what is for a host, or for all, into the slot to send it from.
MSCCLPP_DEVICE void fill(const ExchangeArgs& a, uint64_t turn, uint32_t host) {
  char* out = a.slots + outgoing(a, turn, host);
  const uint32_t to = a.input_stride == 0 && a.taker != 0 ? a.taker - 1 : host;
  const uint64_t bytes = a.taker == a.host + 1 ? 0 : given(a, a.host, to);
  copy(out + sizeof(ExchangeHead), static_cast<const char*>(a.input) + host * a.input_stride, bytes, global_thread(), global_threads());
  if (global_thread() != 0) return;
  ExchangeHead* head = reinterpret_cast<ExchangeHead*>(out);
  head->sequence = turn + 1;
  head->count = a.signature.count;
  head->call = call_of(a.signature);
  head->bytes = a.bytes;
}

// gone reports whether a wait of this rank has been left. Kernels behind it on the stream must not send
// anything then, because their data would be wrong.
MSCCLPP_DEVICE uint32_t gone(const WaitControl* c) { return c == nullptr ? 0 : load_relaxed(&c->abort) | load_relaxed(&c->reported); }

// lead is the part of the first block, in which one thread handles each counterpart. It records how the
// exchange has ended, for the other blocks and for exchanges to come.
MSCCLPP_DEVICE bool lead(const ExchangeArgs& a, uint64_t turn, bool ok) {
  const uint32_t kernel = a.signature.algorithm;  // waits for channels have no Word
  const uint32_t others = grid_dim() - 1;
  if (thread_id() == 0 && ok && others > 0) {
    uint32_t* word = &a.state->grid.arrived;
    const WaitSite site{kernel_of(a.signature), kWordSync, kNobody, others};
    ok = wait_brief(a.control, site, [word, others]() MSCCLPP_LAMBDA { return load_acquire_device(word) == others; });
    store_relaxed_device(word, 0u);
  }
  ok = block_sync_and(ok);
  for (uint32_t h = thread_id(); h < a.hosts && ok; h += block_dim()) {
    if (h == a.host) continue;
    const PortChannel& port = static_cast<const PortChannel&>(a.ports[h]);
    ok = port.putWithSignal(incoming(a, turn, a.host), outgoing(a, turn, h), sizeof(ExchangeHead) + given(a, a.host, h), kernel);
  }
  for (uint32_t h = thread_id(); h < a.hosts && ok; h += block_dim()) {
    if (h != a.host) ok = meet(a, turn, h);
  }
  // The cause for which one thread has left a wait ends the waits of the others too.
  ok = block_sync_and(ok);
  if (thread_id() != 0) return ok;
  if (ok) {
    store_release_device(&a.state->turn, turn + 1);
  } else {
    store_release_device(&a.state->left, 1u);
  }
  return ok;
}

// follow is the part of the other blocks: they have filled their share, and wait until the first block
// has recorded how the exchange ended. Only the first block has a deadline.
MSCCLPP_DEVICE bool follow(const ExchangeArgs& a, uint64_t turn) {
  bool on = true, left = false;
  if (thread_id() == 0) {
    fetch_add_acq_rel_device(&a.state->grid.arrived, 1u);
    const ExchangeState* s = a.state;
    const WaitSite site{kernel_of(a.signature), kNoReport, kNobody, turn + 1};
    const auto ended = [s, turn, &left]() MSCCLPP_LAMBDA {
      left = load_acquire_device(&s->left) != 0;
      return left || load_acquire_device(&s->turn) != turn;
    };
    on = wait_brief(a.control, site, ended);
  }
  return block_sync_and(on && !left);
}

// exchange gives a.bytes from a.input to each counterpart that is to get them, and puts what
// they give behind a.output.
//
// An exchange that was left stays the last one. Its message may still be in flight, or the counterpart
// may be reading it, and would take another one in the same slot, with a head that fits, for it. Nor is
// anything sent behind a wait that an earlier kernel has left, because a counterpart that has not heard
// of the failure would take it for data.
MSCCLPP_DEVICE void exchange(const ExchangeArgs& a) {
  const uint64_t turn = a.state->turn;
  if (!block_sync_and(load_relaxed_device(&a.state->left) == 0)) return;
  uint32_t over = 0;
  if (global_thread() == 0) {
    store_relaxed(&a.note->begun, turn + 1);
    over = gone(a.control) | gone(a.inside);  // memory of the host: these loads overlap with filling the slots
  }
  for (uint32_t h = 0; h < (a.input_stride == 0 ? 1 : a.hosts); ++h) {
    if (a.input_stride == 0 || h != a.host) fill(a, turn, h);
  }
  block_sync();
  if (!(block_id() == 0 ? lead(a, turn, over == 0) : follow(a, turn))) return;
  for (uint32_t h = 0; h < a.hosts; ++h) {
    if (h == a.host) continue;
    copy(static_cast<char*>(a.output) + h * a.stride, a.slots + incoming(a, turn, h) + sizeof(ExchangeHead), given(a, h, a.host),
         global_thread(), global_threads());
  }
  if (global_thread() == 0) store_relaxed(&a.note->ended, turn + 1);
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_EXCHANGE_H_
