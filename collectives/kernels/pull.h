// Collectives on the CPU over buffers that are not registered: every rank reads
// its peers' memory where it is, through the kernel (process_vm_readv). Data is
// copied once, and data that a program has not changed since the last call is still
// in the reader's cache, where staging would have to move it again.
//
// A call to the kernel costs about as much as copying two pages, so small messages
// are staged all the same.
#ifndef MSCCLPP_COLLECTIVES_PULL_H_
#define MSCCLPP_COLLECTIVES_PULL_H_

#include "links.h"

#if MSCCLPP_TARGET_CPU
#include <errno.h>
#include <sys/uio.h>

namespace mscclpp {
namespace collectives {

// pull copies from an address of a peer's process. When that fails the launch goes
// on, so that no peer waits for this rank, and the host reports it.
inline void pull(const Args& a, uint32_t peer, void* to, uint64_t from, uint64_t bytes) {
  State* state = a.common.state;
  const uint64_t all = bytes;
  while (bytes > 0 && state->unreachable == 0) {
    iovec local = {to, bytes}, remote = {reinterpret_cast<void*>(from), bytes};
    const ssize_t n = process_vm_readv(pid_t(a.processes[peer]), &local, 1, &remote, 1, 0);
    if (n <= 0) {
      state->unreachable = peer + 1;
      state->reason = uint32_t(n < 0 ? errno : EFAULT);
      return;
    }
    to = static_cast<char*>(to) + n;
    from += uint64_t(n);
    bytes -= uint64_t(n);
  }
  MSCCLPP_DID(kRecordGet, all)
}

inline void nothing() {}

inline uint64_t their_input(const Args& a, uint32_t peer) { return mailbox(a.common, a.common.rank, peer, 0)->input; }
inline uint64_t their_output(const Args& a, uint32_t peer) { return mailbox(a.common, a.common.rank, peer, 0)->output; }

// pulling sends all ranks the places of the buffers, calls meanwhile, which needs no
// peer, and runs body(sync) when it has the places of all. They are valid until sync's
// last barrier, which follows the body: only then may buffers change again.
template <class Meanwhile, class Body>
inline void pulling(const Args& a, Meanwhile meanwhile, Body body) {
  if (!agree(a.common)) return;
  a.common.state->unreachable = 0;
  Sync sync(a.common, 0);
  sync.enter_with(reinterpret_cast<uint64_t>(a.input), reinterpret_cast<uint64_t>(a.output), 0);
  meanwhile();
  if (!sync.wait() || !body(sync) || !sync.barrier()) return;
  sync.close();
}

// reduce_pulled reduces count elements that lie `at` bytes into everybody's input.
template <class T>
inline void reduce_pulled(const Args& a, char* out, uint64_t at, uint64_t count) {
  const Common& c = a.common;
  char* const read = reinterpret_cast<char*>(c.state + 1);
  const uint64_t room = smaller(kPullBytes / c.ranks, 128 << 10) / 64 * 64;
  const Steps steps{count, room / sizeof(T), 0, 1};
  for (uint64_t k = 0; k < steps.size(); ++k) {
    const uint64_t from = at + steps.first(k) * sizeof(T);
    for (uint32_t i = 1; i < c.ranks; ++i) {
      const uint32_t peer = (c.rank + i) % c.ranks;
      pull(a, peer, read + peer * room, their_input(a, peer) + from, steps.count(k) * sizeof(T));
    }
    const auto inputs = [&](uint32_t r) { return r == c.rank ? static_cast<const char*>(a.input) + from : read + r * room; };
    reduce_n<T>(out + steps.first(k) * sizeof(T), inputs, c.ranks, steps.count(k), reduction_of(a), 0, 1);
  }
}

// Every rank reduces its slice and reads the others'. In place too: a rank reads
// from a peer's input only the slice that it owns itself.
template <class T>
inline void allreduce_pull(const Args& a) {
  const Common& c = a.common;
  char* const out = static_cast<char*>(a.output);
  pulling(a, nothing, [&](Sync& sync) {
    const Slice own = slice_of(a.count, c.rank, c.ranks, sizeof(T));
    reduce_pulled<T>(a, out + own.first * sizeof(T), own.first * sizeof(T), own.count);
    if (!sync.barrier()) return false;
    for (uint32_t i = 1; i < c.ranks; ++i) {
      const uint32_t peer = (c.rank + i) % c.ranks;
      const Slice s = slice_of(a.count, peer, c.ranks, sizeof(T));
      pull(a, peer, out + s.first * sizeof(T), their_output(a, peer) + s.first * sizeof(T), s.count * sizeof(T));
    }
    return true;
  });
}

// In place too: the output is the part of the input that nobody else reads.
template <class T>
inline void reducescatter_pull(const Args& a) {
  pulling(a, nothing, [&](Sync&) {
    reduce_pulled<T>(a, static_cast<char*>(a.output), a.common.rank * a.count * sizeof(T), a.count);
    return true;
  });
}

inline void allgather_pull(const Args& a) {
  const Common& c = a.common;
  const uint64_t total = a.count * a.element;
  char* const out = static_cast<char*>(a.output);
  const auto own = [&] { copy(out + c.rank * total, a.input, total, 0, 1); };
  pulling(a, own, [&](Sync&) {
    for (uint32_t i = 1; i < c.ranks; ++i) {
      const uint32_t peer = (c.rank + i) % c.ranks;
      pull(a, peer, out + peer * total, their_input(a, peer), total);
    }
    return true;
  });
}

// Not in place: a rank would overwrite data that a peer has yet to read.
inline void alltoall_pull(const Args& a) {
  const Common& c = a.common;
  const uint64_t total = a.count * a.element;
  char* const out = static_cast<char*>(a.output);
  const auto own = [&] { copy(out + c.rank * total, static_cast<const char*>(a.input) + c.rank * total, total, 0, 1); };
  pulling(a, own, [&](Sync&) {
    for (uint32_t i = 1; i < c.ranks; ++i) {
      const uint32_t peer = (c.rank + i) % c.ranks;
      pull(a, peer, out + peer * total, their_input(a, peer) + c.rank * total, total);
    }
    return true;
  });
}

inline void broadcast_pull(const Args& a) {
  const uint64_t bytes = a.count * a.element;
  const auto own = [&] { if (a.common.rank == a.root) copy(a.output, a.input, bytes, 0, 1); };
  pulling(a, own, [&](Sync&) {
    if (a.common.rank != a.root) pull(a, a.root, a.output, their_input(a, a.root), bytes);
    return true;
  });
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_TARGET_CPU
#endif  // MSCCLPP_COLLECTIVES_PULL_H_
