// Collectives by LL packets or lines among at most eight ranks, for low latency: arguments are short, the
// compiler knows the numbers of ranks that are frequent, a thread polls the packets of all peers at once,
// and the launch overlaps with the kernel before it.
//
// Epochs are those of packets.h. Two halves are enough for the reason given there, also where launches
// overlap. A rank sends nothing before await_previous has returned, hence not before its previous launch
// has ended. So a rank that sends in epoch e + 2 has ended e + 1 and holds a packet of e + 1 from the
// receiver, which the receiver sent when its launch of e had ended. Input and output belong to earlier
// kernels until then, too. So before await_previous kernels only take their epochs and compute addresses.
//
// A thread handles the same units of input, packets and output from start to end. So buffers may be the
// same, and no block waits for another one of its rank.
//
// Payload must fit into a slot: the host chooses another algorithm where it does not.
#ifndef MSCCLPP_COLLECTIVES_LL_H_
#define MSCCLPP_COLLECTIVES_LL_H_

#include "packets.h"

namespace mscclpp {
namespace collectives {

// Up to 8 bytes at any address; rare, so not in line.
MSCCLPP_OUTLINED_LARGE uint64_t load_odd(const char* p, uint32_t bytes) {
  uint64_t v = 0;
  MSCCLPP_ROLLED
  for (uint32_t i = 0; i < bytes && i < 8; ++i) v |= uint64_t(static_cast<uint8_t>(p[i])) << (8 * i);
  return v;
}
MSCCLPP_OUTLINED_LARGE void store_odd(char* p, uint64_t v, uint32_t bytes) {
  MSCCLPP_ROLLED
  for (uint32_t i = 0; i < bytes && i < 8; ++i) p[i] = static_cast<char>(v >> (8 * i));
}

// The same of whole words and parts of them, for code that is rarely executed.
MSCCLPP_OUTLINED_LARGE uint64_t load_some(const char* p, uint64_t left, bool aligned) {
  return aligned && left >= 8 ? *reinterpret_cast<const uint64_t*>(p) : load_odd(p, static_cast<uint32_t>(smaller(left, 8)));
}
MSCCLPP_OUTLINED_LARGE void store_some(char* p, uint64_t v, uint64_t left, bool aligned) {
  if (aligned && left >= 8) {
    *reinterpret_cast<uint64_t*>(p) = v;
  } else {
    store_odd(p, v, static_cast<uint32_t>(smaller(left, 8)));
  }
}

// Carriers define how a thread's unit of payload is transferred.

// WordCarrier sends 4 bytes, or an element of 8, as LL8 packets.
template <uint32_t kWords>
struct WordCarrier {
  static constexpr Area kArea = kPacketArea;
  static constexpr bool kMeets = false;          // whether kReleaseMet is earlier than the end
  static constexpr uint32_t kGroup = 1;          // units that arrive together
  static constexpr uint32_t kWire = 8 * kWords;  // bytes of a unit in a slot
  struct Data { uint32_t w[kWords]; };

  MSCCLPP_DEVICE static uint32_t units(uint64_t bytes) { return static_cast<uint32_t>(bytes + 4 * kWords - 1) / (4 * kWords); }
  MSCCLPP_DEVICE static uint32_t rounded(uint32_t units) { return units; }
  MSCCLPP_DEVICE static uint64_t at(uint32_t u) { return uint64_t(u) * (4 * kWords); }
  MSCCLPP_DEVICE static bool aligned(const void* p) { return (reinterpret_cast<uintptr_t>(p) & 3) == 0; }
  MSCCLPP_DEVICE static bool full(uint32_t u, uint64_t bytes) { return at(u) + 4 * kWords <= bytes; }

  MSCCLPP_DEVICE static Data load_full(const char* p, uint32_t u) {
    Data d;
    MSCCLPP_UNROLL
    for (uint32_t k = 0; k < kWords; ++k) d.w[k] = reinterpret_cast<const uint32_t*>(p + at(u))[k];
    return d;
  }
  MSCCLPP_DEVICE static Data load(const char* p, uint32_t u, uint64_t bytes, bool aligned) {
    if (aligned && full(u, bytes)) return load_full(p, u);
    Data d;
    p += at(u);
    const uint64_t left = bytes - at(u), v = load_odd(p, static_cast<uint32_t>(smaller(left, 4 * kWords)));
    MSCCLPP_UNROLL
    for (uint32_t k = 0; k < kWords; ++k) d.w[k] = static_cast<uint32_t>(v >> (32 * k));
    return d;
  }
  MSCCLPP_DEVICE static void save(char* p, uint32_t u, uint64_t bytes, bool aligned, const Data& d) {
    p += at(u);
    if (aligned && full(u, bytes)) {
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < kWords; ++k) reinterpret_cast<uint32_t*>(p)[k] = d.w[k];
      return;
    }
    store_odd(p, uint64_t(d.w[kWords - 1]) << 32 | d.w[0], static_cast<uint32_t>(smaller(bytes - at(u), 4 * kWords)));
  }
  MSCCLPP_DEVICE static void send(char* slot, uint32_t u, const Data& d, uint32_t flag) {
    LL8Packet* p = reinterpret_cast<LL8Packet*>(slot) + uint64_t(u) * kWords;
    if (kWords == 2) {
      writePacket(reinterpret_cast<LL16Packet*>(p), uint64_t(d.w[kWords - 1]) << 32 | d.w[0], flag);
    } else {
      writePacket(p, d.w[0], flag);
    }
  }
  MSCCLPP_DEVICE static bool poll(const char* slot, uint32_t u, uint32_t flag, Data& d) {
    const LL8Packet* p = reinterpret_cast<const LL8Packet*>(slot) + uint64_t(u) * kWords;
    if (kWords == 2) {
      uint64_t v = 0;
      const bool ok = pollPacket(reinterpret_cast<const LL16Packet*>(p), flag, v);
      d.w[0] = static_cast<uint32_t>(v);
      d.w[kWords - 1] = static_cast<uint32_t>(v >> 32);
      return ok;
    }
    return pollPacket(p, flag, d.w[0]);
  }
  template <class F>
  MSCCLPP_DEVICE static bool wait(const WaitControl* control, const WaitSite& site, F ready) {
    return wait_brief(control, site, ready);
  }
};

// LineCarrier sends lines.
struct LineCarrier {
  static constexpr Area kArea = kLineArea;
  static constexpr bool kMeets = true;
  static constexpr uint32_t kGroup = kLineUnits;
  static constexpr uint32_t kWire = kLineUnitBytes;
  struct Data { uint32_t w[4]; };

  MSCCLPP_DEVICE static uint32_t units(uint64_t bytes) { return static_cast<uint32_t>(bytes + kLinePayload - 1) / kLinePayload * kLineUnits; }
  // Warps go through units together.
#if MSCCLPP_TARGET_CUDA
  MSCCLPP_DEVICE static uint32_t rounded(uint32_t units) { return (units + 31) & ~31u; }
#else
  MSCCLPP_DEVICE static uint32_t rounded(uint32_t units) { return units; }
#endif
  MSCCLPP_DEVICE static uint64_t at(uint32_t u) { return uint64_t(u / kLineUnits) * kLinePayload + u % kLineUnits * 16; }
  MSCCLPP_DEVICE static bool aligned(const void* p) { return (reinterpret_cast<uintptr_t>(p) & 7) == 0; }
  MSCCLPP_DEVICE static uint32_t odd(uint64_t bytes) { return static_cast<uint32_t>(smaller(bytes, 8)); }
  MSCCLPP_DEVICE static bool last(uint32_t u) { return u % kLineUnits == kLineUnits - 1; }
  MSCCLPP_DEVICE static bool full(uint32_t u, uint64_t bytes) { return at(u) + 16 <= bytes; }
  // Half a unit, of which there may be less. Most messages end with a word of 8 bytes, and copying it byte
  // by byte would take longer than all else.
  MSCCLPP_DEVICE static uint64_t load_part(const char* p, uint64_t left, bool aligned) {
    return aligned && left >= 8 ? *reinterpret_cast<const uint64_t*>(p) : load_odd(p, odd(left));
  }
  MSCCLPP_DEVICE static void store_part(char* p, uint64_t v, uint64_t left, bool aligned) {
    if (aligned && left >= 8) {
      *reinterpret_cast<uint64_t*>(p) = v;
    } else {
      store_odd(p, v, odd(left));
    }
  }

  // A whole unit at an even address.
  MSCCLPP_DEVICE static Data load_full(const char* p, uint32_t u) {
    const uint64_t* words = reinterpret_cast<const uint64_t*>(p + at(u));
    return data(words[0], last(u) ? 0 : words[1]);
  }
  MSCCLPP_DEVICE static void save_full(char* p, uint32_t u, const Data& d) {
    uint64_t* words = reinterpret_cast<uint64_t*>(p + at(u));
    words[0] = uint64_t(d.w[1]) << 32 | d.w[0];
    if (!last(u)) words[1] = uint64_t(d.w[3]) << 32 | d.w[2];
  }

  MSCCLPP_DEVICE static Data load(const char* p, uint32_t u, uint64_t bytes, bool aligned) {
    const uint64_t here = at(u);
    if (aligned && here + 16 <= bytes) return load_full(p, u);
    p += here;
    uint64_t a = 0, b = 0;
    if (here < bytes) a = load_part(p, bytes - here, aligned);
    if (here + 8 < bytes && !last(u)) b = load_part(p + 8, bytes - here - 8, aligned);
    return data(a, b);
  }
  MSCCLPP_DEVICE static void save(char* p, uint32_t u, uint64_t bytes, bool aligned, const Data& d) {
    const uint64_t here = at(u);
    if (aligned && here + 16 <= bytes) return save_full(p, u, d);
    p += here;
    if (here < bytes) store_part(p, uint64_t(d.w[1]) << 32 | d.w[0], bytes - here, aligned);
    if (here + 8 < bytes && !last(u)) store_part(p + 8, uint64_t(d.w[3]) << 32 | d.w[2], bytes - here - 8, aligned);
  }
  // The same for code that is rarely executed: calls are shorter than code in line.
  MSCCLPP_DEVICE static Data load_rare(const char* p, uint32_t u, uint64_t bytes, bool aligned) {
    const uint64_t here = at(u);
    uint64_t a = 0, b = 0;
    if (here < bytes) a = load_some(p + here, bytes - here, aligned);
    if (here + 8 < bytes && !last(u)) b = load_some(p + here + 8, bytes - here - 8, aligned);
    return data(a, b);
  }
  MSCCLPP_DEVICE static void save_rare(char* p, uint32_t u, uint64_t bytes, bool aligned, const Data& d) {
    const uint64_t here = at(u);
    if (here < bytes) store_some(p + here, uint64_t(d.w[1]) << 32 | d.w[0], bytes - here, aligned);
    if (here + 8 < bytes && !last(u)) store_some(p + here + 8, uint64_t(d.w[3]) << 32 | d.w[2], bytes - here - 8, aligned);
  }
  MSCCLPP_DEVICE static Data data(uint64_t a, uint64_t b) {
    return Data{{static_cast<uint32_t>(a), static_cast<uint32_t>(a >> 32), static_cast<uint32_t>(b), static_cast<uint32_t>(b >> 32)}};
  }
  MSCCLPP_DEVICE static void send(char* slot, uint32_t u, const Data& d, uint32_t flag) {
    writeLineUnit(slot, u, Vec16{d.w[0], d.w[1], d.w[2], d.w[3]}, flag);
  }
  MSCCLPP_DEVICE static bool poll(const char* slot, uint32_t u, uint32_t flag, Data& d) {
    Vec16 v;
    const bool ok = pollLineUnit(slot, u, flag, v);
    d = Data{{v.x, v.y, v.z, v.w}};
    return ok;
  }
  template <class F>
  MSCCLPP_DEVICE static bool wait(const WaitControl* control, const WaitSite& site, F ready) {
    return wait_lines(control, site, ready);
  }
};

// clear empties a half of an area of this rank; rarely.
MSCCLPP_OUTLINED_LARGE bool clear_half(State* state, const WaitControl* control, char* half, uint64_t bytes) {
  for (uint64_t i = global_thread(); i < bytes / 16; i += global_threads()) store16_packet(half + i * 16, Vec16{0, 0, 0, 0});
  fence_system();  // before anything that this rank sends
  return blocks_sync(state, control);
}

// LLLaunch is one launch of kRanks ranks. If that is 0, the arguments give the number.
template <class C, uint32_t kRanks>
class LLLaunch {
 public:
  using Data = typename C::Data;
  const LLArgs& a;

  MSCCLPP_DEVICE LLLaunch(const LLArgs& args, uint64_t epoch)
      : a(args), epoch_(epoch), offset_(args.area + (epoch & 1) * args.half), flag_(flag_of(epoch)), here_(slot(args.rank, 0)) {
    if constexpr (kRanks != 0) {
      MSCCLPP_UNROLL
      for (uint32_t k = 1; k < kRanks; ++k) there_[k] = slot(peer(k), a.rank);
    }
  }

  MSCCLPP_DEVICE uint32_t ranks() const { return kRanks != 0 ? kRanks : a.ranks; }
  // The peer to which this block turns as number k.
  MSCCLPP_DEVICE uint32_t peer(uint32_t k) const {
    if (kRanks != 0 && (kRanks & (kRanks - 1)) == 0) return (a.rank + MSCCLPP_TURN(k, ranks())) & (kRanks - 1);
    const uint32_t p = a.rank + MSCCLPP_TURN(k, ranks());
    return p < ranks() ? p : p - ranks();
  }

  // await waits for the launches before. A branch on the addresses of packets stands before it, or the compiler would have them
  // computed behind it: what is computed before is over when the launches before end.
  MSCCLPP_DEVICE void await() const {
    if (known()) return await_previous();
    unmerged();
    await_previous();
  }
  // first awaits them, and loads unit u if this thread has it. Whole units have a branch of their own for the same reason.
  MSCCLPP_DEVICE Data first(bool has, const char* in, uint32_t u, uint64_t bytes, bool aligned) const {
    if (has && aligned && C::full(u, bytes) && known()) {
      await_previous();
      return C::load_full(in, u);
    }
    unmerged();
    await_previous();
    return has ? C::load(in, u, bytes, aligned) : Data{};
  }

  // ready ends the start of a launch. Threads load the first data that they send before they call it,
  // because it reads memory as well and both loads can overlap. Rarely, it clears the half for the next
  // epoch. False: leave.
  MSCCLPP_DEVICE bool ready() const {
    if (!clears(epoch_)) return true;
    char* next = reinterpret_cast<char*>(a.scratch[a.rank]) + a.area + ((epoch_ + 1) & 1) * a.half;
    return clear_half(a.state, a.control, next, a.half);
  }

  // scatter sends each peer p for which wanted(p) holds the data of load(p) as unit u. All loads are under way at once.
  // Between loads and stores it calls ready; false: leave.
  template <class Wanted, class Load, class Ready>
  MSCCLPP_DEVICE bool scatter(uint32_t u, Wanted wanted, Load load, Ready ready) const {
    if constexpr (kRanks != 0) {
      Data d[kRanks];
      MSCCLPP_UNROLL
      for (uint32_t k = 1; k < kRanks; ++k) {
        if (wanted(peer(k))) d[k] = load(peer(k));
      }
      if (!ready()) return false;
      MSCCLPP_UNROLL
      for (uint32_t k = 1; k < kRanks; ++k) {
        if (wanted(peer(k))) C::send(there_[k], u, d[k], flag_);
      }
    } else {
      if (!ready()) return false;
      peers([&](uint32_t p) MSCCLPP_LAMBDA {
        if (wanted(p)) send(p, u, load(p));
      });
    }
    return true;
  }
  // scatter_first is scatter at the start of a launch.
  template <class Wanted, class Load>
  MSCCLPP_DEVICE bool scatter_first(uint32_t u, Wanted wanted, Load load) const {
    return scatter(u, wanted, load, [&]() MSCCLPP_LAMBDA { return ready(); });
  }

  // sent says that this thread has sent all its data. Only now does it publish the signature of the
  // launch, for which no peer waits.
  MSCCLPP_DEVICE void sent() const {
    if (a.release == kReleaseSent || (C::kMeets && a.release == kReleaseMet && block_id() != 0)) release_next();
    if (a.check == kCheckPublish && global_thread() == 0) publish(a);
  }

  // met says that this thread has received from all peers.
  MSCCLPP_DEVICE void met() const {
    if (C::kMeets && a.release == kReleaseMet && global_thread() == 0) release_next();
  }

  // Where packets from `from` lie in the memory of `to`.
  MSCCLPP_DEVICE char* slot(uint32_t to, uint32_t from) const { return reinterpret_cast<char*>(a.scratch[to]) + offset_ + from * a.slot; }

  MSCCLPP_DEVICE void send(uint32_t peer, uint32_t u, const Data& d) const { C::send(slot(peer, a.rank), u, d, flag_); }
  // peers calls body for each peer.
  template <class Body>
  MSCCLPP_DEVICE void peers(Body body) const {
    if constexpr (kRanks != 0) {
      MSCCLPP_UNROLL
      for (uint32_t k = 1; k < kRanks; ++k) body(peer(k));
    } else {
      MSCCLPP_ROLLED
      for (uint32_t k = 1; k < a.ranks; ++k) body(peer(k));
    }
  }
  MSCCLPP_DEVICE void send_all(uint32_t u, const Data& d) const {
    if constexpr (kRanks != 0) {
      MSCCLPP_UNROLL
      for (uint32_t k = 1; k < kRanks; ++k) C::send(there_[k], u, d, flag_);
    } else {
      peers([&](uint32_t p) MSCCLPP_LAMBDA { send(p, u, d); });
    }
  }

  // each waits for unit u of every peer r for which wanted(r) holds, and calls
  // use(r, data) for all ranks in order, with own for this one. All threads of a warp
  // call it together. All loads of a look are under way at once: a branch between them would wait for each. So what is not
  // wanted is loaded as well, where something is.
  template <class Wanted, class Use>
  MSCCLPP_DEVICE bool each(uint32_t u, const Data& own, Wanted wanted, Use use) const {
    if constexpr (kRanks != 0) {
      WaitSite site = packet_site_of();
      Data got[kRanks];
      bool some = false;
      MSCCLPP_UNROLL
      for (uint32_t r = 0; r < kRanks; ++r) some = some || (r != a.rank && wanted(r));
      const bool ok = C::wait(a.control, site, [&]() MSCCLPP_LAMBDA {
        bool here[kRanks], all = true;
        if (!some) return true;
        if constexpr (kRanks == 2) {
          here[0] = here[1] = C::poll(here_ + (a.rank ^ 1) * a.slot, u, flag_, got[0]);
          got[1] = got[0];
        } else {
          MSCCLPP_UNROLL
          for (uint32_t r = 0; r < kRanks; ++r) here[r] = C::poll(here_ + r * a.slot, u, flag_, got[r]);
        }
        MSCCLPP_UNROLL
        for (uint32_t r = 0; r < kRanks; ++r) {
          if (here[r] || r == a.rank || !wanted(r)) continue;
          site.peer = r;
          all = false;
        }
        return all;
      });
      if (!ok) return false;
      MSCCLPP_UNROLL
      for (uint32_t r = 0; r < kRanks; ++r) use(r, r == a.rank ? own : got[r]);
    } else {
      MSCCLPP_ROLLED
      for (uint32_t r = 0; r < a.ranks; ++r) {
        Data got = own;
        if (r != a.rank && !one(u, r, wanted(r), got)) return false;
        use(r, got);
      }
    }
    return true;
  }

  // one waits for unit u of rank `from`, if wanted. All threads of a warp call it together.
  MSCCLPP_DEVICE bool one(uint32_t u, uint32_t from, bool wanted, Data& d) const {
    WaitSite site = packet_site_of();
    site.peer = from;
    const char* const at = slot(a.rank, from);
    return C::wait(a.control, site, [&]() MSCCLPP_LAMBDA { return !wanted || C::poll(at, u, flag_, d); });
  }

  // Where one rank has, or gets, everything, the others still have to receive something from each other in
  // every epoch: see packets.h. send_flags sends an empty first unit to the peers that get no data from this
  // rank, and wait_flags waits for the first unit of every peer.
  template <class Others>
  MSCCLPP_DEVICE void send_flags(Others others) const {
    MSCCLPP_ROLLED
    for (uint32_t u = global_thread(); u < C::kGroup; u += global_threads()) {
      for (uint32_t k = 1; k < ranks(); ++k) {
        if (others(peer(k))) send(peer(k), u, Data{});
      }
    }
  }
  MSCCLPP_DEVICE void wait_flags() const {
    MSCCLPP_ROLLED
    for (uint32_t u = global_thread(); u < C::rounded(C::kGroup); u += global_threads()) {
      const bool active = u < C::kGroup;
      if (!each(u, Data{}, [&](uint32_t) MSCCLPP_LAMBDA { return active; }, [](uint32_t, const Data&) MSCCLPP_LAMBDA {})) return;
      met();
    }
  }

 private:
  MSCCLPP_DEVICE bool known() const {
    bool all = here_ != nullptr;
    if constexpr (kRanks != 0) {
      MSCCLPP_UNROLL
      for (uint32_t k = 1; k < kRanks; ++k) all = all && there_[k] != nullptr;
    }
    return all;
  }
  // unmerged keeps a compiler from making one of two branches until a wait is over.
  MSCCLPP_DEVICE static void unmerged() {
#if MSCCLPP_TARGET_CUDA
    asm volatile("");
#endif
  }
  MSCCLPP_DEVICE WaitSite packet_site_of() const {
    return WaitSite{kernel_of(a.signature), kWordPacket, a.rank, flag_, &a.state->left};
  }

  const uint64_t epoch_, offset_;

 protected:
  const uint32_t flag_;
  char* const here_;                       // where packets from rank 0 come
  char* there_[kRanks != 0 ? kRanks : 1];  // where those of this rank go, by the turn of the peer
};

// begin is the start of a launch of so many epochs, the first of which it returns. False: leave. The launch still has to call
// await_previous, in all its threads. Where signatures are compared, a launch whose peers are in another call takes no epoch.
template <class C>
MSCCLPP_DEVICE bool begin(const LLArgs& a, uint64_t epochs, uint64_t& epoch) {
  const bool compare = a.check == kCheckCompare;
  if (!compare) epoch = take_epochs(a.state, C::kArea, epochs) + 1;
  if (a.release == kReleaseAtOnce && !compare) release_next();
  if (!compare) return true;
  await_previous();
  if (!agree(a)) return false;
  epoch = take_epochs(a.state, C::kArea, epochs) + 1;
  return true;
}

// A call of nothing sends nothing, and no epoch may be silent.
MSCCLPP_DEVICE uint64_t epochs_of(const LLArgs& a) { return a.count != 0; }

template <uint32_t N>
struct Ranks { static constexpr uint32_t kRanks = N; };

// with_ranks calls body with the number of ranks as a type where the gain justifies the code size: on
// NVIDIA from sm_90 on.
template <bool kWorth = true, class Body>
MSCCLPP_DEVICE void with_ranks(uint32_t ranks, Body body) {
#if MSCCLPP_OVERLAPS || MSCCLPP_TARGET_CHECK
  if constexpr (kWorth) {
    if (ranks == 4) return body(Ranks<4>());
    if (ranks == 2) return body(Ranks<2>());
    if (ranks == 8) return body(Ranks<8>());
  }
#endif
  (void)ranks;
  body(Ranks<0>());
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_LL_H_
