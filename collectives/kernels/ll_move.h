// All-gather, all-to-all and broadcast of ll.h.
#ifndef MSCCLPP_COLLECTIVES_LL_MOVE_H_
#define MSCCLPP_COLLECTIVES_LL_MOVE_H_

#include "ll.h"

namespace mscclpp {
namespace collectives {

template <class C, uint32_t N>
MSCCLPP_DEVICE void ll_allgather(const LLArgs& a, uint64_t epoch) {
  using Data = typename C::Data;
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint64_t bytes = a.count * a.element;
  const bool whole = C::aligned(in), whole_out = C::aligned(out) && C::aligned(out + bytes);
  const bool in_place = out + a.rank * bytes == in;
  const uint32_t units = C::units(bytes), first = global_thread(), step = global_threads();
  LLLaunch<C, N> ll(a, epoch);
  const Data mine = ll.first(first < units, in, first, bytes, whole);
  if (units == 0 || !ll.ready()) return;
  MSCCLPP_ROLLED
  for (uint32_t u = first; u < units; u += step) {
    const Data d = u == first ? mine : C::load(in, u, bytes, whole);
    ll.send_all(u, d);
    if (!in_place) C::save(out + a.rank * bytes, u, bytes, whole_out, d);
  }
  ll.sent();
  MSCCLPP_ROLLED
  for (uint32_t u = global_thread(); u < C::rounded(units); u += step) {
    const bool active = u < units;
    if (!ll.each(u, Data{}, [&](uint32_t) MSCCLPP_LAMBDA { return active; }, [&](uint32_t r, const Data& d) MSCCLPP_LAMBDA {
          if (r != a.rank && active) C::save(out + r * bytes, u, bytes, whole_out, d);
        })) return;
    ll.met();
  }
}

template <class C, uint32_t N>
MSCCLPP_DEVICE void ll_alltoall(const LLArgs& a, uint64_t epoch) {
  using Data = typename C::Data;
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint64_t bytes = a.count * a.element;
  const bool whole = C::aligned(in) && C::aligned(in + bytes), whole_out = C::aligned(out) && C::aligned(out + bytes);
  const uint32_t units = C::units(bytes), first = global_thread(), step = global_threads();
  LLLaunch<C, N> ll(a, epoch);
  ll.await();
  if (units == 0) return;
  if (!ll.scatter_first(first, [&](uint32_t) MSCCLPP_LAMBDA { return first < units; },
                          [&](uint32_t p) MSCCLPP_LAMBDA { return C::load(in + p * bytes, first, bytes, whole); })) return;
  MSCCLPP_ROLLED
  for (uint32_t u = first; u < units; u += step) {
    if (u != first) ll.peers([&](uint32_t p) MSCCLPP_LAMBDA { ll.send(p, u, C::load(in + p * bytes, u, bytes, whole)); });
    if (in != out) C::save(out + a.rank * bytes, u, bytes, whole_out, C::load(in + a.rank * bytes, u, bytes, whole));
  }
  ll.sent();
  MSCCLPP_ROLLED
  for (uint32_t u = global_thread(); u < C::rounded(units); u += step) {
    const bool active = u < units;
    if (!ll.each(u, Data{}, [&](uint32_t) MSCCLPP_LAMBDA { return active; }, [&](uint32_t r, const Data& d) MSCCLPP_LAMBDA {
          if (r != a.rank && active) C::save(out + r * bytes, u, bytes, whole_out, d);
        })) return;
    ll.met();
  }
}

// The root sends to all, and the others send each other flags, which packets.h requires. Where the arrival
// of these flags releases the next kernel, a rank waits for them first. Else it does so last, when they
// have arrived by then.
template <class C, uint32_t N>
MSCCLPP_DEVICE void ll_broadcast(const LLArgs& a, uint64_t epoch) {
  using Data = typename C::Data;
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint64_t bytes = a.count * a.element;
  const bool whole = C::aligned(in), whole_out = C::aligned(out);
  const uint32_t units = C::units(bytes), step = global_threads(), root = a.signature.root;
  LLLaunch<C, N> ll(a, epoch);
  ll.await();
  if (units == 0 || !ll.ready()) return;
  if (a.rank == root) {
    MSCCLPP_ROLLED
    for (uint32_t u = global_thread(); u < units; u += step) {
      const Data d = C::load(in, u, bytes, whole);
      ll.send_all(u, d);
      if (in != out) C::save(out, u, bytes, whole_out, d);
    }
  } else {
    ll.send_flags([](uint32_t) MSCCLPP_LAMBDA { return true; });
  }
  ll.sent();
  if (C::kMeets) ll.wait_flags();
  if (a.rank != root) {
    MSCCLPP_ROLLED
    for (uint32_t u = global_thread(); u < C::rounded(units); u += step) {
      const bool active = u < units;
      Data d{};
      if (!ll.one(u, root, active, d)) return;
      if (active) C::save(out, u, bytes, whole_out, d);
    }
  }
  if (!C::kMeets) ll.wait_flags();
}

#define MSCCLPP_LL_MOVE(function, Carrier, a)        \
  uint64_t epoch = 0;                                  \
  if (!begin<Carrier>(a, epochs_of(a), epoch)) return; \
  with_ranks(a.ranks, [&](auto n) MSCCLPP_LAMBDA { function<Carrier, decltype(n)::kRanks>(a, epoch); });

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_LL_MOVE_H_
