// All-gather, all-to-all and broadcast of near.h.
#ifndef MSCCLPP_COLLECTIVES_NEAR_MOVE_H_
#define MSCCLPP_COLLECTIVES_NEAR_MOVE_H_

#include "near.h"

namespace mscclpp {
namespace collectives {

template <class C, uint32_t N>
MSCCLPP_DEVICE void near_allgather(const NearArgs& a, uint64_t epoch) {
  using Data = typename C::Data;
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint64_t bytes = a.count * a.element;
  const bool whole = C::aligned(in), whole_out = C::aligned(out) && C::aligned(out + bytes);
  const bool in_place = out + a.rank * bytes == in;
  const uint32_t units = C::units(bytes), first = global_thread(), step = global_threads();
  Near<C, N> near(a, epoch);
  if (units == 0) return;
  const Data mine = first < units ? C::load(in, first, bytes, whole) : Data{};
  if (!near.ready()) return;
  MSCCLPP_ROLLED
  for (uint32_t u = first; u < units; u += step) {
    const Data d = u == first ? mine : C::load(in, u, bytes, whole);
    near.send_all(u, d);
    if (!in_place) C::save(out + a.rank * bytes, u, bytes, whole_out, d);
  }
  near.sent();
  MSCCLPP_ROLLED
  for (uint32_t u = global_thread(); u < C::rounded(units); u += step) {
    const bool active = u < units;
    if (!near.each(u, Data{}, [&](uint32_t) MSCCLPP_LAMBDA { return active; }, [&](uint32_t r, const Data& d) MSCCLPP_LAMBDA {
          if (r != a.rank && active) C::save(out + r * bytes, u, bytes, whole_out, d);
        })) return;
    near.met();
  }
}

template <class C, uint32_t N>
MSCCLPP_DEVICE void near_alltoall(const NearArgs& a, uint64_t epoch) {
  using Data = typename C::Data;
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint64_t bytes = a.count * a.element;
  const bool whole = C::aligned(in) && C::aligned(in + bytes), whole_out = C::aligned(out) && C::aligned(out + bytes);
  const uint32_t units = C::units(bytes), first = global_thread(), step = global_threads();
  Near<C, N> near(a, epoch);
  if (units == 0) return;
  if (!near.scatter_first(first, [&](uint32_t) MSCCLPP_LAMBDA { return first < units; },
                          [&](uint32_t p) MSCCLPP_LAMBDA { return C::load(in + p * bytes, first, bytes, whole); })) return;
  MSCCLPP_ROLLED
  for (uint32_t u = first; u < units; u += step) {
    if (u != first) near.peers([&](uint32_t p) MSCCLPP_LAMBDA { near.send(p, u, C::load(in + p * bytes, u, bytes, whole)); });
    if (in != out) C::save(out + a.rank * bytes, u, bytes, whole_out, C::load(in + a.rank * bytes, u, bytes, whole));
  }
  near.sent();
  MSCCLPP_ROLLED
  for (uint32_t u = global_thread(); u < C::rounded(units); u += step) {
    const bool active = u < units;
    if (!near.each(u, Data{}, [&](uint32_t) MSCCLPP_LAMBDA { return active; }, [&](uint32_t r, const Data& d) MSCCLPP_LAMBDA {
          if (r != a.rank && active) C::save(out + r * bytes, u, bytes, whole_out, d);
        })) return;
    near.met();
  }
}

// The root sends to all; the others have to hear from each other as well. Where that releases the next
// kernel they do so first; else last, when nothing is left to wait for.
template <class C, uint32_t N>
MSCCLPP_DEVICE void near_broadcast(const NearArgs& a, uint64_t epoch) {
  using Data = typename C::Data;
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint64_t bytes = a.count * a.element;
  const bool whole = C::aligned(in), whole_out = C::aligned(out);
  const uint32_t units = C::units(bytes), step = global_threads(), root = a.signature.root;
  Near<C, N> near(a, epoch);
  if (units == 0 || !near.ready()) return;
  if (a.rank == root) {
    MSCCLPP_ROLLED
    for (uint32_t u = global_thread(); u < units; u += step) {
      const Data d = C::load(in, u, bytes, whole);
      near.send_all(u, d);
      if (in != out) C::save(out, u, bytes, whole_out, d);
    }
  } else {
    near.greet([](uint32_t) MSCCLPP_LAMBDA { return true; });
  }
  near.sent();
  if (C::kMeets) near.hear();
  if (a.rank != root) {
    MSCCLPP_ROLLED
    for (uint32_t u = global_thread(); u < C::rounded(units); u += step) {
      const bool active = u < units;
      if (!near.each(u, Data{}, [&](uint32_t r) MSCCLPP_LAMBDA { return active && r == root; }, [&](uint32_t r, const Data& d) MSCCLPP_LAMBDA {
            if (r == root && active) C::save(out, u, bytes, whole_out, d);
          })) return;
    }
  }
  if (!C::kMeets) near.hear();
}

#define MSCCLPP_NEAR_MOVE(function, Carrier, a)        \
  uint64_t epoch = 0;                                  \
  if (!begin<Carrier>(a, epochs_of(a), epoch)) return; \
  with_ranks(a.ranks, [&](auto n) MSCCLPP_LAMBDA { function<Carrier, decltype(n)::kRanks>(a, epoch); });

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_NEAR_MOVE_H_
