// Reductions among at most eight ranks by packets without a flag: see <mscclpp/sentinel.h>. They are the collectives of
// ll_reduce.h with half of its words on the wire, and twice the payload of a thread.
//
// Packets go to an area of their own, whose two halves launches use by turns; a word of its own counts them. The host has
// filled the area with the sentinel before a peer could reach it. A thread that has taken a packet puts the sentinel back before
// its launch ends; every packet of a launch is taken in the same launch, and each rank waits for one of every other rank.
//
// Payload must fit into a slot: the host chooses another algorithm where it does not.
#ifndef MSCCLPP_COLLECTIVES_LAMPORT_H_
#define MSCCLPP_COLLECTIVES_LAMPORT_H_

#include <mscclpp/sentinel.h>

#include "ll_reduce.h"

namespace mscclpp {
namespace collectives {

// Data that ends within a unit, or does not begin where one may: rare, so not in line.
MSCCLPP_OUTLINED_LARGE uint64_t load_within(const char* p, uint64_t at, uint64_t bytes) {
  return at < bytes ? load_odd(p + at, static_cast<uint32_t>(smaller(bytes - at, 8))) : 0;
}
MSCCLPP_OUTLINED_LARGE void store_within(char* p, uint64_t at, uint64_t bytes, uint64_t low, uint64_t high) {
  store_odd(p + at, low, static_cast<uint32_t>(smaller(bytes - at, 8)));
  if (at + 8 < bytes) store_odd(p + at + 8, high, static_cast<uint32_t>(smaller(bytes - at - 8, 8)));
}

// LamportCarrier sends 16 bytes of elements of type T. Sums take the data of this rank as peers get it, so that all ranks
// have the same bits.
template <class T>
struct LamportCarrier {
  using Packet = Sentinel<T>;
  static constexpr bool kMeets = true;
  static constexpr uint32_t kUnit = 16;
  struct Data { uint32_t w[4]; };

  MSCCLPP_DEVICE static uint32_t units(uint64_t bytes) { return static_cast<uint32_t>((bytes + kUnit - 1) / kUnit); }
  MSCCLPP_DEVICE static uint64_t at(uint32_t u) { return uint64_t(u) * kUnit; }
  MSCCLPP_DEVICE static bool aligned(const void* p) { return (reinterpret_cast<uintptr_t>(p) & (kUnit - 1)) == 0; }
  MSCCLPP_DEVICE static Data scrubbed(Vec16 v) {
    v = Packet::scrub(v);
    return Data{{v.x, v.y, v.z, v.w}};
  }
  MSCCLPP_DEVICE static Data scrubbed(const Data& d) { return scrubbed(Vec16{d.w[0], d.w[1], d.w[2], d.w[3]}); }

  // Behind the end of the data a unit has zeros.
  MSCCLPP_DEVICE static Data load(const char* p, uint32_t u, uint64_t bytes, bool aligned) {
    const uint64_t here = at(u);
    if (aligned && here + kUnit <= bytes) return scrubbed(load16(p + here));
    const uint64_t low = load_within(p, here, bytes), high = load_within(p, here + 8, bytes);
    return scrubbed(Vec16{static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32)});
  }
  MSCCLPP_DEVICE static void save(char* p, uint32_t u, uint64_t bytes, bool aligned, const Data& d) {
    const uint64_t here = at(u);
    if (aligned && here + kUnit <= bytes) return store16(p + here, Vec16{d.w[0], d.w[1], d.w[2], d.w[3]});
    store_within(p, here, bytes, uint64_t(d.w[1]) << 32 | d.w[0], uint64_t(d.w[3]) << 32 | d.w[2]);
  }
  MSCCLPP_DEVICE static void send(char* slot, uint32_t u, const Data& d, uint32_t) {
    store16_packet(slot + at(u), Vec16{d.w[0], d.w[1], d.w[2], d.w[3]});
  }
  MSCCLPP_DEVICE static bool poll(const char* slot, uint32_t u, uint32_t, Data& d) {
    const Vec16 v = load16_packet(slot + at(u));
    d = Data{{v.x, v.y, v.z, v.w}};
    return Packet::arrived(v);
  }
  template <class F>
  MSCCLPP_DEVICE static bool wait(const WaitControl* control, const WaitSite& site, F ready) {
    return wait_brief(control, site, ready);
  }
};

// LamportSum is a Sum of packets. The frequent ones have no NaN but the one that additions make, so pairs are rounded at once.
template <class T, ReduceOp Op>
struct LamportSum : Sum<T, Op, typename LamportCarrier<T>::Data> {
  using Data = typename LamportCarrier<T>::Data;

#if MSCCLPP_TARGET_CUDA
  MSCCLPP_DEVICE Data result(const mscclpp::detail::Scalars<Accumulator<T>>& s) {
    if constexpr (Op == kSum && pair_of(T())) {
      Data d;
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < 4; ++k) d.w[k] = pair(T(), this->acc[2 * k], this->acc[2 * k + 1]);
      return d;
    } else {
      return Sum<T, Op, Data>::result(s);
    }
  }

 private:
  template <class E> MSCCLPP_DEVICE static constexpr bool pair_of(E) { return false; }
  MSCCLPP_DEVICE static constexpr bool pair_of(f16) { return true; }
  MSCCLPP_DEVICE static constexpr bool pair_of(bf16) { return true; }
  MSCCLPP_DEVICE static uint32_t pair(f16, float low, float high) {
    uint32_t w;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(high), "f"(low));
    return w;
  }
  MSCCLPP_DEVICE static uint32_t pair(bf16, float low, float high) {
    uint32_t w;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(high), "f"(low));
    return w;
  }
#endif
};

// LamportLaunch is LLLaunch without what flags need. It knows all addresses before await_previous.
template <class T, uint32_t kRanks>
class LamportLaunch : public LLLaunch<LamportCarrier<T>, kRanks> {
 public:
  using Base = LLLaunch<LamportCarrier<T>, kRanks>;
  using Carrier = LamportCarrier<T>;
  using Data = typename Carrier::Data;
  using Base::a;

  MSCCLPP_DEVICE LamportLaunch(const LLArgs& args, uint64_t epoch) : Base(args, epoch), expected_(flag_of(epoch)), here_(this->slot(a.rank, 0)) {
    if constexpr (kRanks != 0) {
      MSCCLPP_UNROLL
      for (uint32_t k = 1; k < kRanks; ++k) {
        there_[k] = this->slot(this->peer(k), a.rank);
      }
    }
  }

  // first awaits the launches before, and loads unit u. Branches on all that a whole unit needs stand before that, so
  // that the compiler has the addresses computed there, too.
  MSCCLPP_DEVICE Data first(const char* in, uint32_t u, uint64_t bytes, bool aligned) const {
    bool whole = aligned && Carrier::at(u) + Carrier::kUnit <= bytes;
    if constexpr (kRanks != 0) {
      MSCCLPP_UNROLL
      for (uint32_t k = 1; k < kRanks; ++k) whole = whole && there_[k] != nullptr;
    }
    if (whole) {
      await_previous();
      return Carrier::scrubbed(load16(in + Carrier::at(u)));
    }
#if MSCCLPP_TARGET_CUDA
    asm volatile("");  // or both branches are one until the wait is over
#endif
    await_previous();
    return Carrier::load(in, u, bytes, aligned);
  }

  // scatter sends each peer p for which wanted(p) holds the data of load(p) as unit u. All loads are under way at once.
  template <class Wanted, class Load>
  MSCCLPP_DEVICE void scatter(uint32_t u, Wanted wanted, Load load) const {
    if constexpr (kRanks != 0) {
      Data d[kRanks];
      MSCCLPP_UNROLL
      for (uint32_t k = 1; k < kRanks; ++k) {
        if (wanted(this->peer(k))) d[k] = load(this->peer(k));
      }
      MSCCLPP_UNROLL
      for (uint32_t k = 1; k < kRanks; ++k) {
        if (wanted(this->peer(k))) Carrier::send(there_[k], u, d[k], 0);
      }
    } else {
      this->peers([&](uint32_t p) MSCCLPP_LAMBDA {
        if (wanted(p)) this->send(p, u, load(p));
      });
    }
  }
  MSCCLPP_DEVICE void send_all(uint32_t u, const Data& d) const {
    if constexpr (kRanks != 0) {
      MSCCLPP_UNROLL
      for (uint32_t k = 1; k < kRanks; ++k) Carrier::send(there_[k], u, d, 0);
    } else {
      Base::send_all(u, d);
    }
  }

  // take waits for unit u of every peer, and calls use(r, data) for all ranks in order, with own for this one.
  // All loads of a look are under way at once: a branch between them would wait for each.
  template <class Use>
  MSCCLPP_DEVICE bool take(uint32_t u, const Data& own, Use use) const {
    if constexpr (kRanks != 0) {
      Vec16 got[kRanks];
      WaitSite site{kernel_of(a.signature), kWordPacket, this->peer(1), expected_, &a.state->left};
      const char* first = packet(0, u);
      const bool ok = wait_brief(a.control, site, [&]() MSCCLPP_LAMBDA {
        if constexpr (kRanks == 2) {
          got[0] = got[1] = load16_packet(first + (a.rank ^ 1) * a.slot);
          return Carrier::Packet::arrived(got[0]);
        } else {
          MSCCLPP_UNROLL
          for (uint32_t r = 0; r < kRanks; ++r) got[r] = load16_packet(first + r * a.slot);  // nothing comes to the slot of this rank
          bool all = true;
          MSCCLPP_UNROLL
          for (uint32_t r = 0; r < kRanks; ++r) {
            const bool here = r == a.rank || Carrier::Packet::arrived(got[r]);
            if (!here) site.peer = r;
            all = all && here;
          }
          return all;
        }
      });
      if (!ok) return false;
      MSCCLPP_UNROLL
      for (uint32_t r = 0; r < kRanks; ++r) use(r, r == a.rank ? own : Data{{got[r].x, got[r].y, got[r].z, got[r].w}});
      return true;
    } else {
      return this->each(u, own, [](uint32_t) MSCCLPP_LAMBDA { return true; }, use);
    }
  }

  // put_back puts the sentinel back where unit u of every peer was taken. It may follow the result: only the next launch but one
  // needs it.
  MSCCLPP_DEVICE void put_back(uint32_t u) const {
    this->peers([&](uint32_t p) MSCCLPP_LAMBDA { clear_sentinel(packet(p, u)); });
  }

 private:
  // Where unit u of a rank lies here.
  MSCCLPP_DEVICE char* packet(uint32_t from, uint32_t u) const { return here_ + from * a.slot + Carrier::at(u); }

  const uint32_t expected_;
  char* here_;
  char* there_[kRanks != 0 ? kRanks : 1];  // where packets go, by the distance of the peer
};

// lamport_begin is the begin of ll.h for a launch that has one epoch, of this area. False: leave. Else the launch calls
// await_previous as soon as it knows what it will load and where to send that: what this takes is over when the launches before end.
MSCCLPP_DEVICE bool lamport_begin(const LLArgs& a, uint64_t& epoch) {
  if (a.check == kCheckCompare) {
    await_previous();
    if (!agree(a)) return false;
  }
  if (a.count != 0) {
    constexpr uint32_t kOwnWord = 8;  // of the line of lines
    const uint64_t others = grid_dim() - 1;
    uint64_t word = 0;
    if (thread_id() == 0) word = fetch_add_relaxed_device(&a.state->epochs[kLineArea][kOwnWord], block_id() < others ? 1 : kEpoch - others);
    epoch = block_share(word) / kEpoch + 1;
  }
  if (a.release == kReleaseAtOnce && a.check != kCheckCompare) release_next();
  return true;
}

// Every rank sends everything to every other rank, and reduces all of it.
template <class T, ReduceOp Op, uint32_t N>
MSCCLPP_DEVICE void lamport_allreduce(const LLArgs& a, uint64_t epoch) {
  using C = LamportCarrier<T>;
  using Data = typename C::Data;
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint64_t bytes = a.count * sizeof(T);
  const bool whole = C::aligned(in), whole_out = C::aligned(out);
  const uint32_t units = C::units(bytes), first = global_thread(), step = global_threads();
  const LamportLaunch<T, N> ll(a, epoch);
  if (first >= units) return await_previous();
  const Data mine = ll.first(in, first, bytes, whole);
  MSCCLPP_ROLLED
  for (uint32_t u = first; u < units; u += step) ll.send_all(u, u == first ? mine : C::load(in, u, bytes, whole));
  ll.sent();
  const auto s = scalars_of<T>(a);
  MSCCLPP_ROLLED
  for (uint32_t u = first; u < units; u += step) {
    const Data own = u == first ? mine : C::load(in, u, bytes, whole);
    LamportSum<T, Op> sum;
    if (!ll.take(u, own, [&](uint32_t r, const Data& d) MSCCLPP_LAMBDA { sum.add(r, d, s); })) return;
    ll.met();
    C::save(out, u, bytes, whole_out, sum.result(s));
    ll.put_back(u);
  }
}

// Every rank sends each rank its slice, and reduces its own.
template <class T, ReduceOp Op, uint32_t N>
MSCCLPP_DEVICE void lamport_reducescatter(const LLArgs& a, uint64_t epoch) {
  using C = LamportCarrier<T>;
  using Data = typename C::Data;
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint64_t bytes = a.count * sizeof(T);
  const bool whole = C::aligned(in) && C::aligned(in + bytes), whole_out = C::aligned(out);
  const uint32_t units = C::units(bytes), first = global_thread(), step = global_threads();
  const LamportLaunch<T, N> ll(a, epoch);
  await_previous();
  if (units == 0) return;
  MSCCLPP_ROLLED
  for (uint32_t u = first; u < units; u += step) {
    ll.scatter(u, [](uint32_t) MSCCLPP_LAMBDA { return true; }, [&](uint32_t p) MSCCLPP_LAMBDA { return C::load(in + p * bytes, u, bytes, whole); });
  }
  ll.sent();
  const auto s = scalars_of<T>(a);
  MSCCLPP_ROLLED
  for (uint32_t u = first; u < units; u += step) {
    LamportSum<T, Op> sum;
    if (!ll.take(u, C::load(in + a.rank * bytes, u, bytes, whole), [&](uint32_t r, const Data& d) MSCCLPP_LAMBDA { sum.add(r, d, s); })) return;
    ll.met();
    C::save(out, u, bytes, whole_out, sum.result(s));
    ll.put_back(u);
  }
}

// All others send to the root. Among each other, and to them, ranks send a unit of zeros: in each epoch every rank has to
// receive something from every other one.
template <class T, ReduceOp Op, uint32_t N>
MSCCLPP_DEVICE void lamport_reduce(const LLArgs& a, uint64_t epoch) {
  using C = LamportCarrier<T>;
  using Data = typename C::Data;
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint64_t bytes = a.count * sizeof(T);
  const bool whole = C::aligned(in), whole_out = C::aligned(out);
  const uint32_t units = C::units(bytes), step = global_threads(), root = a.signature.root;
  const LamportLaunch<T, N> ll(a, epoch);
  await_previous();
  if (units == 0) return;
  if (a.rank != root) {
    MSCCLPP_ROLLED
    for (uint32_t u = global_thread(); u < units; u += step) ll.send(root, u, C::load(in, u, bytes, whole));
  }
  if (global_thread() == 0) {
    ll.scatter(0, [&](uint32_t p) MSCCLPP_LAMBDA { return p != root; }, [](uint32_t) MSCCLPP_LAMBDA { return Data{}; });
  }
  ll.sent();
  const auto s = scalars_of<T>(a);
  MSCCLPP_ROLLED
  for (uint32_t u = global_thread(); u < (a.rank == root ? units : 1); u += step) {
    LamportSum<T, Op> sum;
    const Data own = a.rank == root ? C::load(in, u, bytes, whole) : Data{};
    if (!ll.take(u, own, [&](uint32_t r, const Data& d) MSCCLPP_LAMBDA { sum.add(r, d, s); })) return;
    ll.met();
    if (a.rank == root) C::save(out, u, bytes, whole_out, sum.result(s));
    ll.put_back(u);
  }
}

// The code of a launch: for one operation and number of ranks, or for any.
template <ReduceOp Op, uint32_t N>
struct LamportCode {
  static constexpr ReduceOp kOp = Op;
  static constexpr uint32_t kRanks = N;
};

// with_code calls body with the code for a launch. Sums of frequent types have code for each frequent number of ranks.
template <class T, class Body>
MSCCLPP_DEVICE void with_code(const LLArgs& a, Body body) {
#if MSCCLPP_OVERLAPS || MSCCLPP_TARGET_CHECK
  if constexpr (Frequent<T>::kYes) {
    if (a.op == kSum) {
      if (a.ranks == 2) return body(LamportCode<kSum, 2>());
      if (a.ranks == 4) return body(LamportCode<kSum, 4>());
      if (a.ranks == 8) return body(LamportCode<kSum, 8>());
    }
  }
#endif
  body(LamportCode<mscclpp::detail::kAnyOp, 0>());
}

// MSCCLPP_LAMPORT is the body of a kernel.
#define MSCCLPP_LAMPORT(function, T, a) \
  uint64_t epoch = 0;                   \
  if (!lamport_begin(a, epoch)) return; \
  with_code<T>(a, [&](auto code) MSCCLPP_LAMBDA { function<T, decltype(code)::kOp, decltype(code)::kRanks>(a, epoch); });

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_LAMPORT_H_
