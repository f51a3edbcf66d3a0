// The kernels on a processor: one thread has all rows.
#ifndef MSCCLPP_INFERENCE_MOE_HOST_H_
#define MSCCLPP_INFERENCE_MOE_HOST_H_

#include "moe_places.h"

namespace mscclpp {
namespace inference {

#if MSCCLPP_TARGET_CPU
constexpr uint32_t kMoePiece = 2048;
constexpr uint32_t kMoePlacesOfExperts = 1024 + 64;  // of all ranks: those that do not divide the experts have up to one more each

// Dispatch and combine have this in common. Functions that return bool return false where the launch has to be left.
struct MoeHost {
  const MoeArgs& a;
  MoePlaces at;
  uint32_t kind;

  MoeHost(const MoeArgs& args, uint32_t which, uint64_t launch) : a(args), at(args, launch), kind(which) {}

  template <class F>
  bool wait(uint32_t channel, uint32_t peer, F ready) const { return wait_until(a.control, at.site(channel, peer, at.launch), ready); }

  bool flagged(uint32_t& value, const LL8Packet* p, uint32_t channel, uint32_t peer) const {
    return wait(channel, peer, [&value, p, this] { return pollPacket(p, at.number, value); });
  }
  bool flagged(uint64_t& value, const LL16Packet* p, uint32_t peer) const {
    return wait(kMoeRows, peer, [&value, p, this] { return pollPacket(p, at.number, value); });
  }
  bool receive(void* to, char* from, uint64_t bytes, uint32_t peer) const {
    for (uint64_t done = 0; done < bytes; done += kMoePiece) {
      const uint64_t n = bytes - done < kMoePiece ? bytes - done : kMoePiece;
      if (!wait(kMoeRows, peer, [&] { return take(static_cast<char*>(to) + done, from + done, n); })) return false;
    }
    return true;
  }

  // begin waits until all ranks have read what is in this launch's half, and says what the call is.
  bool begin() const {
    const uint64_t before = at.launch_before();
    for (uint32_t r = 0; r < a.ranks; ++r) {
      const uint64_t* word = at.ack(kind, r, a.rank);
      if (r != a.rank && !wait_until(a.control, at.site(kMoeAcks, r, before), [word, before] { return load_acquire(word) >= before; })) return false;
    }
    fence_system();  // the last launch has cleared packets before this one sends
    for (uint32_t i = 0; i < a.ranks; ++i) {
      const uint32_t r = (a.rank + i) % a.ranks;
      store8_packet(at.notice(kind, a.rank, r), moe_pair(a.signature, at.number));
    }
    return true;
  }
  // compare looks at what calls the other ranks have begun.
  bool compare() const {
    for (uint32_t r = 0; r < a.ranks; ++r) {
      uint64_t got = 0;
      const uint64_t* word = at.notice(kind, r, a.rank);
      if (!wait(kMoeNotices, r, [&got, word, this] { return static_cast<uint32_t>((got = load8_packet(word)) >> 32) == at.number; })) return false;
      if (static_cast<uint32_t>(got) == a.signature) continue;
      a.state->apart = r + 1;
      return false;
    }
    return true;
  }
  void end() const {
    for (uint32_t r = 0; r < a.ranks; ++r) store_release(at.ack(kind, a.rank, r), at.launch);
  }
};

template <class T>
struct HostDispatch : MoeHost {
  using MoeHost::a;
  using MoeHost::at;
  uint32_t element;  // bytes of one that is sent

  HostDispatch(const MoeArgs& args, uint64_t launch)
      : MoeHost(args, kDispatch, launch), element((args.flags & (kMoeCast | kMoeBytes)) != 0 ? 1u : static_cast<uint32_t>(sizeof(T))) {}

  uint64_t bytes() const { return static_cast<uint64_t>(a.hidden) * element; }

  // cast makes packets of a row, and of its scales.
  void cast(uint64_t ranks, uint32_t t) const {
    const T* x = reinterpret_cast<const T*>(a.input) + static_cast<uint64_t>(t) * a.hidden;
    for (uint32_t g = 0; g < a.hidden / kMoeGroup; ++g) {
      float v[kMoeGroup];
      uint32_t largest = 0;
      for (uint32_t i = 0; i < kMoeGroup; ++i) {
        v[i] = widen_element(x[g * kMoeGroup + i]);
        largest = moe_larger(largest, moe_magnitude(v[i]));
      }
      const MoeScale s = moe_scale(largest, at.has(kMoeRoundScale));
      alignas(16) e4m3 q[kMoeGroup];
      for (uint32_t i = 0; i < kMoeGroup; ++i) q[i] = narrow_element<e4m3>(v[i] * s.by);
      for (uint32_t r = 0; r < a.ranks; ++r) {
        if ((ranks >> r & 1) == 0) continue;
        char* to = at.row(a.rank, r, t);
        send(to + g * kMoeGroup, q, kMoeGroup);
        send(to + bytes() + 4 * g, &s.scale, 4);
      }
    }
  }
  void rows(uint64_t ranks, uint32_t t) const {
    if (at.has(kMoeCast)) return cast(ranks, t);
    for (uint32_t i = 0; i < a.ranks; ++i) {
      const uint32_t r = (a.rank + i) % a.ranks;
      if ((ranks >> r & 1) == 0) continue;
      char* to = at.row(a.rank, r, t);
      send(to, a.input + t * bytes(), bytes());
      if (a.row_scales != 0) send(to + bytes(), a.scales + static_cast<uint64_t>(t) * a.row_scales, 4ull * a.row_scales);
    }
  }

  // Headers name the rows of a token's experts: this rank counts its own.
  bool give() const {
    if (!begin()) return false;
    uint32_t counts[kMoePlacesOfExperts] = {};
    for (uint32_t t = 0; t < a.tokens; ++t) {
      const uint64_t ranks = at.ranks_of(t);
      rows(ranks, t);
      uint32_t entries[64] = {};
      for (uint32_t k = 0; k < a.top_k; ++k) {
        const uint64_t i = static_cast<uint64_t>(t) * a.top_k + k;
        const int64_t e = at.index(i);
        if (e == -1) continue;
        if (!at.real(e)) {
          at.trouble(kMoeNoExpert, t, static_cast<uint32_t>(e), kMoeWrongExpert, a.experts);
          return false;
        }
        const uint32_t expert = static_cast<uint32_t>(e), r = at.rank_of(expert);
        const uint32_t entry = moe_entry(expert - r * a.local, k, counts[expert]++);
        writePacket(at.header(a.rank, r, t) + 1 + entries[r]++, moe_pair(entry, a.factors != nullptr ? moe_bits(a.factors[i]) : 0), at.number);
      }
      for (uint32_t r = 0; r < a.ranks; ++r) writePacket(at.header(a.rank, r, t), moe_pair(entries[r], 0), at.number);
    }
    for (uint32_t r = 0; r < a.ranks; ++r) {
      for (uint32_t e = 0; e < a.local; ++e) writePacket(at.count(a.rank, r, e), counts[r * a.local + e], at.number);
      writePacket(at.tokens(a.rank, r), a.tokens, at.number);
    }
    return true;
  }

  // A row that has come is copied to all of its experts.
  bool expand(uint32_t from, uint32_t t, const uint32_t* first) const {
    uint64_t head = 0;
    if (!flagged(head, at.header(from, a.rank, t), from)) return false;
    const uint32_t n = static_cast<uint32_t>(head);
    uint32_t* record = reinterpret_cast<uint32_t*>(at.record(from, t));
    record[0] = n;
    char* written = nullptr;
    for (uint32_t j = 0; j < n; ++j) {
      uint64_t got = 0;
      if (!flagged(got, at.header(from, a.rank, t) + 1 + j, from)) return false;
      const uint32_t entry = static_cast<uint32_t>(got), e = moe_expert(entry), row = first[e] + moe_row(entry);
      const uint32_t about[4] = {e | moe_k(entry) << 16, row, static_cast<uint32_t>(got >> 32), 0};
      __builtin_memcpy(record + 4 * (j + 1), about, sizeof about);
      const uint64_t place = static_cast<uint64_t>(e) * a.slots + row;
      a.sources[place] = static_cast<int32_t>(t);
      char* to = a.output + place * bytes();
      if (written == nullptr) {
        if (!receive(to, at.row(from, a.rank, t), bytes(), from)) return false;
        written = to;
      } else {
        __builtin_memcpy(to, written, bytes());
      }
    }
    return n == 0 || a.row_scales == 0 || expand_scales(from, t, n, record);
  }
  bool expand_scales(uint32_t from, uint32_t t, uint32_t n, const uint32_t* record) const {
    for (uint32_t s = 0; s < a.row_scales; ++s) {
      float scale = 0;
      if (!receive(&scale, at.row(from, a.rank, t) + bytes() + 4 * s, 4, from)) return false;
      for (uint32_t j = 0; j < n; ++j) moe_give_scale(a, record[4 * (j + 1)] & 0xffffu, record[4 * (j + 1) + 1], s, scale);
    }
    return true;
  }

  bool get() const {
    if (!compare()) return false;
    uint32_t first[1024] = {}, counted[1024];
    for (uint32_t r = 0; r < a.ranks; ++r) {
      for (uint32_t e = 0; e < a.local; ++e) {
        if (!flagged(counted[e], at.count(r, a.rank, e), kMoeCounts, r)) return false;
        a.ranges[static_cast<uint64_t>(e) * a.ranks + r] = static_cast<int64_t>(moe_pair(counted[e], first[e]));
        if (first[e] + counted[e] <= a.slots) continue;
        at.trouble(kMoeOverflow, a.rank * a.local + e, first[e] + counted[e], kMoeFull, a.slots);
        return false;
      }
      uint32_t tokens = 0;
      if (!flagged(tokens, at.tokens(r, a.rank), kMoeCounts, r)) return false;
      *reinterpret_cast<uint32_t*>(at.record(r)) = tokens;
      for (uint32_t t = 0; t < tokens; ++t) {
        if (!expand(r, t, first)) return false;
      }
      for (uint32_t e = 0; e < a.local; ++e) first[e] += counted[e];
    }
    for (uint32_t e = 0; e < a.local; ++e) {
      a.received[e] = static_cast<int32_t>(first[e]);
      if (a.statistics != nullptr) a.statistics[e] += static_cast<int32_t>(first[e]);
    }
    end();
    return true;
  }
};

template <class T>
struct HostCombine : MoeHost {
  using MoeHost::a;
  using MoeHost::at;
  static constexpr uint32_t kElements = kMoePiece / sizeof(T);

  HostCombine(const MoeArgs& args, uint64_t launch) : MoeHost(args, kCombine, launch) {}

  bool give() const {
    if (!begin()) return false;
    for (uint64_t i = 0; !at.has(kMoeWeighted) && i < static_cast<uint64_t>(a.tokens) * a.top_k; ++i) {
      const int64_t e = at.index(i);
      if (!at.real(e)) continue;
      const uint32_t t = static_cast<uint32_t>(i / a.top_k), k = static_cast<uint32_t>(i % a.top_k);
      writePacket(at.weight(a.rank, at.rank_of(static_cast<uint32_t>(e)), t) + k, moe_bits(a.factors[i]), at.number);
    }
    for (uint32_t i = 0; i < a.ranks; ++i) {
      const uint32_t r = (a.rank + i) % a.ranks, tokens = *reinterpret_cast<const uint32_t*>(at.record(r));
      for (uint32_t t = 0; t < tokens; ++t) {
        if (!add(r, t)) return false;
      }
    }
    return true;
  }

  // The sum over this rank's experts of a token of another rank.
  bool add(uint32_t to, uint32_t t) const {
    const uint32_t* record = reinterpret_cast<const uint32_t*>(at.record(to, t));
    const uint32_t n = record[0];
    float weights[kMoeMostTopK];
    const T* rows[kMoeMostTopK];
    for (uint32_t j = 0; j < n; ++j) {
      const uint32_t* entry = record + 4 * (j + 1);
      uint32_t bits = entry[2];
      if (!at.has(kMoeWeighted) && !flagged(bits, at.weight(to, a.rank, t) + (entry[0] >> 16), kMoeWeights, to)) return false;
      weights[j] = moe_float(bits);
      rows[j] = reinterpret_cast<const T*>(a.input) + (static_cast<uint64_t>(entry[0] & 0xffffu) * a.slots + entry[1]) * a.hidden;
    }
    char* packets = at.partial(a.rank, to, t);
    for (uint32_t from = 0; n != 0 && from < a.hidden; from += kElements) {
      const uint32_t count = a.hidden - from < kElements ? a.hidden - from : kElements;
      alignas(64) float acc[kElements] = {};
      alignas(64) T sum[kElements];
      for (uint32_t j = 0; j < n; ++j) {
        for (uint32_t i = 0; i < count; ++i) acc[i] += weights[j] * widen_element(rows[j][from + i]);
      }
      for (uint32_t i = 0; i < count; ++i) sum[i] = narrow_element<T>(acc[i]);
      send(packets + from * sizeof(T), sum, count * sizeof(T));
    }
    return true;
  }

  bool get() const {
    if (!compare()) return false;
    for (uint32_t t = 0; t < a.tokens; ++t) {
      const uint64_t ranks = at.ranks_of(t);
      T* out = reinterpret_cast<T*>(a.output) + static_cast<uint64_t>(t) * a.hidden;
      for (uint32_t from = 0; from < a.hidden; from += kElements) {
        const uint32_t count = a.hidden - from < kElements ? a.hidden - from : kElements;
        alignas(64) float acc[kElements] = {};
        alignas(64) T got[kElements];
        for (uint32_t r = 0; r < a.ranks; ++r) {
          if ((ranks >> r & 1) == 0) continue;
          if (!receive(got, at.partial(r, a.rank, t) + from * sizeof(T), count * sizeof(T), r)) return false;
          for (uint32_t i = 0; i < count; ++i) acc[i] += widen_element(got[i]);
        }
        for (uint32_t i = 0; i < count; ++i) out[from + i] = narrow_element<T>(acc[i]);
      }
    }
    end();
    return true;
  }
};

template <class Form>
inline void moe_on_host(const MoeArgs& a, uint32_t kind) {
  MoeState* s = a.state;
  const bool sends = (a.flags & kMoeSend) != 0;
  const Form form(a, sends ? s->sent[kind] + 1 : s->sent[kind] - a.behind);
  bool ok = s->left == 0;
  if (sends) {
    ok = ok && form.give();
    ++s->sent[kind];
  }
  if ((a.flags & kMoeReceive) != 0) ok = ok && form.get();
  if (!ok) s->left = 1;
}
#endif

}  // namespace inference
}  // namespace mscclpp
#endif  // MSCCLPP_INFERENCE_MOE_HOST_H_
