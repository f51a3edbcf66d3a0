// Dispatch on GPUs: a row goes once to each rank that has experts of its token, and is copied to their rows there.
#ifndef MSCCLPP_INFERENCE_MOE_DISPATCH_H_
#define MSCCLPP_INFERENCE_MOE_DISPATCH_H_

#include "moe_block.h"

namespace mscclpp {
namespace inference {

#if !MSCCLPP_TARGET_CPU
template <class T>
struct Dispatch : MoeBlock {
  using MoeBlock::a;
  using MoeBlock::at;

  MSCCLPP_DEVICE explicit Dispatch(const MoeArgs& args)
      : MoeBlock(args, kDispatch, (args.flags & (kMoeCast | kMoeBytes)) != 0 ? 1u : static_cast<uint32_t>(sizeof(T))) {}

  struct Unit {
    Vec16 row;
    uint32_t scale;
  };
  MSCCLPP_DEVICE bool scaled(uint32_t v) const { return v < a.row_scales; }

  // The largest magnitude of a group of which this thread has 16 elements.
  MSCCLPP_DEVICE uint32_t group(uint32_t largest, uint32_t t, uint32_t v) const {
#if MSCCLPP_TARGET_CUDA
    (void)t;
    (void)v;
    MSCCLPP_UNROLL
    for (int i = 4; i > 0; i /= 2) {
      uint32_t other;
      asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, -1;" : "=r"(other) : "r"(largest), "r"(i));
      largest = moe_larger(largest, other);
    }
#else
    constexpr uint32_t kUnits = kMoeGroup / 16;
    const T* x = reinterpret_cast<const T*>(a.input) + static_cast<uint64_t>(t) * a.hidden + v / kUnits * kMoeGroup;
    for (uint32_t i = 0; v < units && i < kMoeGroup; ++i) largest = moe_larger(largest, moe_magnitude(widen_element(x[i])));
#endif
    return largest;
  }

  // All threads of a warp call it.
  MSCCLPP_DEVICE Unit cast(uint32_t t, uint32_t v) const {
    struct Half { T e[8]; };
    struct Bytes { e4m3 b[16]; };
    Half h[2] = {};
    if (v < units) {
      const char* x = a.input + (static_cast<uint64_t>(t) * a.hidden + 16ull * v) * sizeof(T);
      h[0] = __builtin_bit_cast(Half, load16(x));
      h[1] = __builtin_bit_cast(Half, load16(x + 16));
    }
    uint32_t largest = 0;
    MSCCLPP_UNROLL
    for (uint32_t i = 0; i < 16; ++i) largest = moe_larger(largest, moe_magnitude(widen_element(h[i / 8].e[i % 8])));
    const MoeScale s = moe_scale(group(largest, t, v), at.has(kMoeRoundScale));
    Bytes q;
    MSCCLPP_UNROLL
    for (uint32_t i = 0; i < 16; ++i) q.b[i] = narrow_element<e4m3>(widen_element(h[i / 8].e[i % 8]) * s.by);
    return Unit{scrub(__builtin_bit_cast(Vec16, q)), scrub(moe_bits(s.scale))};
  }
  MSCCLPP_DEVICE Unit fetch(uint32_t t, uint32_t v) const {
    if (at.has(kMoeCast)) return cast(t, v);
    Unit u{};
    if (v < units) u.row = scrub(load16(a.input + (static_cast<uint64_t>(t) * units + v) * 16));
    if (scaled(v)) u.scale = scrub(moe_bits(a.scales[static_cast<uint64_t>(t) * a.row_scales + v]));
    return u;
  }

  MSCCLPP_DEVICE void send(uint32_t first) {
    for (uint32_t i = first; i < a.tokens * parts; i += a.senders) {
      const uint32_t t = i / parts, v = i % parts * nthreads + tid;
      const Unit u = fetch(t, v);
      const uint64_t set = at.ranks_of(t);
      if (i == first && !begin()) return;
      for (uint32_t k = 1; k <= a.ranks; ++k) {
        const uint32_t r = a.rank + k < a.ranks ? a.rank + k : a.rank + k - a.ranks;
        if ((set >> r & 1) == 0 || v >= units || (r == a.rank && at.whole_call())) continue;
        char* row = at.row(a.rank, r, t);
        store16_packet(row + 16ull * v, u.row);
        uint32_t place;
        if (scale_of(v, &place)) store_relaxed(reinterpret_cast<uint32_t*>(row + 16ull * units) + place, u.scale);
      }
    }
  }
  // Whether a thread has a scale of its token: of those that the kernel makes one of eight threads has the scale of all.
  MSCCLPP_DEVICE bool scale_of(uint32_t v, uint32_t* place) const {
    constexpr uint32_t kUnits = kMoeGroup / 16;
    *place = at.has(kMoeCast) ? v / kUnits : v;
    return at.has(kMoeCast) ? v < units && v % kUnits == 0 : scaled(v);
  }

  // Headers name the rows of a token's experts among those of this rank, which counts them.
  MSCCLPP_DEVICE void headers(uint32_t first) {
    const uint32_t wanted = a.top_k <= kMoeMostTopK / 2 ? kMoeMostTopK / 2 : kMoeMostTopK, width = nthreads < wanted ? nthreads : wanted, lane = tid % width, slice = tid / width;
    uint32_t* chosen = words + kMoeChoices;
    for (uint32_t t = first; t < a.tokens; t += a.headers_by) {
      for (uint32_t k = tid; k < a.top_k; k += nthreads) chosen[k] = static_cast<uint32_t>(at.index(t * a.top_k + k));
      for (uint32_t k0 = 0; k0 < a.top_k; k0 += width) {
        const uint32_t k = k0 + lane, i = t * a.top_k + k;
        const int64_t e = k < a.top_k ? at.index(i) : -1;
        const uint32_t weight = slice == 0 && k < a.top_k && a.factors != nullptr ? moe_bits(a.factors[i]) : 0;
        // Choices before the token, and here those of the token itself.
        uint32_t row = matches(t * a.top_k, width, e, at.real(e));
        if (t == first && k0 == 0 && !begin()) return;
        if (slice == 0 && at.real(e)) entry(t, k, static_cast<uint32_t>(e), row, weight);
        if (slice == 0 && !at.real(e) && e != -1) {
          ok = false;
          at.trouble(kMoeNoExpert, t, static_cast<uint32_t>(e), kMoeWrongExpert, a.experts);
        }
        block_sync();
      }
      for (uint32_t r = tid; r < a.ranks; r += nthreads) {
        uint32_t n = 0;
        for (uint32_t k = 0; k < a.top_k; ++k) n += goes(k, r) ? 1u : 0u;
        writePacket(at.header(a.rank, r, t), n, at.number);
      }
      block_sync();
    }
  }
  // Whether the k-th choice of the token that the block has is an expert of rank r.
  MSCCLPP_DEVICE bool goes(uint32_t k, uint32_t r) const {
    const uint32_t e = words[kMoeChoices + k];
    return e < a.experts && at.rank_of(e) == r;
  }
  MSCCLPP_DEVICE void entry(uint32_t t, uint32_t k, uint32_t e, uint32_t row, uint32_t weight) const {
    const uint32_t r = at.rank_of(e);
    uint32_t place = 1;
    for (uint32_t q = 0; q < k; ++q) {
      place += goes(q, r) ? 1u : 0u;
      row += words[kMoeChoices + q] == e ? 1u : 0u;
    }
    writePacket(at.header(a.rank, r, t) + place, moe_pair(moe_entry(e - r * a.local, k, row), weight), at.number);
  }

  // Rows of each expert, for the rank that has it.
  MSCCLPP_DEVICE void count(uint32_t first) {
    const uint32_t width = nthreads < kMoeExpertsOfBlock ? nthreads : kMoeExpertsOfBlock, lane = tid % width, slice = tid / width, all = a.local * a.ranks;
    if (first == 0) {
      if (!begin()) return;
      for (uint32_t r = tid; r < a.ranks; r += nthreads) writePacket(at.tokens(a.rank, r), a.tokens, at.number);
    }
    for (uint32_t e0 = first * width; e0 < all; e0 += a.counters * width) {
      const uint32_t e = e0 + lane, n = matches(a.tokens * a.top_k, width, e, e < all);
      if (!begin()) return;
      if (slice == 0 && e < all) {
        const uint32_t r = at.rank_of(e);
        writePacket(at.count(a.rank, r, e - r * a.local), n, at.number);
      }
      block_sync();
    }
  }

  // Rows of this rank's experts, and where those of each rank begin.
  MSCCLPP_DEVICE void books() {
    compare();  // it opens the launch
    for (uint32_t r = tid; r < a.ranks && ok; r += nthreads) {
      uint32_t tokens = 0;
      ok = flagged(tokens, at.tokens(r, a.rank), kMoeCounts, r);
      *reinterpret_cast<uint32_t*>(at.record(r)) = tokens;
    }
    for (uint32_t e = tid; e < a.local && ok; e += nthreads) {
      uint32_t sum = 0;
      for (uint32_t r = 0; r < a.ranks && ok; ++r) {
        uint32_t n = 0;
        ok = flagged(n, at.count(r, a.rank, e), kMoeCounts, r);
        a.ranges[static_cast<uint64_t>(e) * a.ranks + r] = static_cast<int64_t>(moe_pair(n, sum));
        sum += n;
      }
      if (ok && sum > a.slots) full(e, sum);
      a.received[e] = static_cast<int32_t>(sum);
      if (a.statistics != nullptr) a.statistics[e] += static_cast<int32_t>(sum);
    }
  }
  MSCCLPP_DEVICE void full(uint32_t e, uint32_t rows) {
    ok = false;
    const uint32_t expert = a.rank * a.local + e;
    at.trouble(kMoeOverflow, expert, rows, kMoeFull | expert, a.slots);
  }

  // An entry of a header, behind the number of its rows, becomes expert and row, to which the rows of other ranks before this one are added.
  MSCCLPP_DEVICE void place(uint32_t from, uint32_t t, uint32_t j, uint64_t got, bool records, uint32_t* about) {
    constexpr uint32_t kAtOnce = 4;
    const uint32_t entry = static_cast<uint32_t>(got), e = moe_expert(entry), number = at.number;
    uint32_t row = moe_row(entry);
    for (uint32_t first = 0; first < from && ok; first += kAtOnce) {
      uint32_t n[kAtOnce] = {};
      WaitSite site = at.site(kMoeCounts, from, at.launch);
      const MoePlaces& here = at;
      const uint32_t me = a.rank;
      ok = wait_brief(a.control, site, [&here, &site, &n, first, from, me, e, number] {
        bool all = true, came[kAtOnce];
        MSCCLPP_UNROLL
        for (uint32_t k = 0; k < kAtOnce; ++k) came[k] = first + k >= from || pollPacket(here.count(first + k, me, e), number, n[k]);
        MSCCLPP_UNROLL
        for (uint32_t k = 0; k < kAtOnce; ++k) {
          if (came[k]) continue;
          all = false;
          site.peer = first + k;
        }
        return all;
      });
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < kAtOnce; ++k) row += n[k];
    }
    if (ok && row >= a.slots) full(e, row + 1);
    about[2 * j] = e;
    about[2 * j + 1] = row;
    if (!records || !ok) return;
    store16(at.record(from, t) + 16 * (j + 1), Vec16{e | moe_k(entry) << 16, row, static_cast<uint32_t>(got >> 32), 0});
    a.sources[static_cast<uint64_t>(e) * a.slots + row] = static_cast<int32_t>(t);
  }

  // A thread waits for these: its packet of a row, a scale, the number of the row's experts, and one of these.
  struct Arrival {
    Unit unit;
    uint64_t rows, entry;
  };
  MSCCLPP_DEVICE void arrive(Arrival& got, uint32_t from, uint32_t t, char* packet, uint32_t* scale) {
    const LL16Packet* header = at.header(from, a.rank, t);
    const LL8Packet* tokens = at.tokens(from, a.rank);
    const uint32_t number = at.number, j = tid;
    Arrival seen = got;
    ok = wait(kMoeRows, from, [&seen, header, tokens, number, t, j, packet, scale] {
      const bool named = pollPacket(header, number, seen.rows), entered = j >= kMoeMostTopK || pollPacket(header + 1 + j, number, seen.entry);
      if (packet != nullptr) seen.unit.row = load16_packet(packet);
      if (scale != nullptr) seen.unit.scale = load_relaxed(scale);
      if (!named) {  // the rank may not have that token
        uint32_t n = 0;
        if (!pollPacket(tokens, number, n) || t < n) return false;
        seen.rows = 0;
        return true;
      }
      return seen.rows == 0 || ((packet == nullptr || whole(seen.unit.row)) && (scale == nullptr || seen.unit.scale != kSentinel) && (j >= seen.rows || entered));
    });
    if (!ok) seen.rows = 0;
    got = seen;
  }

  // Tokens of the rank that has most.
  MSCCLPP_DEVICE uint32_t most_tokens() {
    for (uint32_t r = tid; r < a.ranks && ok; r += nthreads) ok = flagged(words[r], at.tokens(r, a.rank), kMoeCounts, r);
    ok = block_sync_and(ok);
    uint32_t most = 0;
    for (uint32_t r = 0; r < a.ranks && ok; ++r) most = most < words[r] ? words[r] : most;
    return most;
  }

  // The words of the block have the expert and the row of each entry, for two rows by turns.
  static constexpr uint32_t kOfRow = 2 * kMoeMostTopK;

  MSCCLPP_DEVICE void collect(uint32_t first) {
    if (!open()) return;
    const uint32_t of_token = a.ranks * parts;
    uint32_t end = a.most_tokens;
    for (uint32_t i = first, turn = 0;; i += a.collectors, ++turn) {
      const uint32_t t = i / of_token;
      if (t >= end) return;
      if (turn == 1) {
        end = most_tokens();
        if (t >= end) return;
      }
      const uint32_t from = (i - t * of_token) / parts, part = i % parts, v = part * nthreads + tid;
      const bool own = from == a.rank && at.whole_call(), has = v < units;
      uint32_t place_of_scale = 0;
      Arrival got{};
      char* packet = nullptr;
      uint32_t* scale = nullptr;
      bool gives = false;
      if (own) {
        if (t < a.tokens) got.unit = fetch(t, v);
        gives = scale_of(v, &place_of_scale);
      } else if (has) {
        packet = at.row(from, a.rank, t) + 16ull * v;
        gives = scaled(v), place_of_scale = v;
        if (gives) scale = reinterpret_cast<uint32_t*>(at.row(from, a.rank, t) + 16ull * units) + v;
      }
      arrive(got, from, t, packet, scale);
      const uint32_t n = static_cast<uint32_t>(got.rows);
      if (n != 0 && packet != nullptr) clear(packet);
      if (n != 0 && scale != nullptr) store_relaxed(scale, kSentinel);
      uint32_t* about = words + kMoeChoices + turn % 2 * kOfRow;
      for (uint32_t j = tid; j < n && ok; j += nthreads) {
        if (j != tid) {
          const LL16Packet* p = at.header(from, a.rank, t) + 1 + j;
          const uint32_t number = at.number;
          uint64_t entry = 0;
          ok = wait(kMoeRows, from, [p, number, &entry] { return pollPacket(p, number, entry); });
          got.entry = entry;
        }
        if (ok) place(from, t, j, got.entry, part == 0, about);
      }
      ok = block_sync_and(ok);
      if (!ok) return;
      if (part == 0 && tid == 0) *reinterpret_cast<uint32_t*>(at.record(from, t)) = n;
      for (uint32_t j = 0; has && j < n; ++j) {
        const uint32_t e = about[2 * j], row = about[2 * j + 1];
        store16(a.output + ((static_cast<uint64_t>(e) * a.slots + row) * units + v) * 16, got.unit.row);
        if (gives) moe_give_scale(a, e, row, place_of_scale, moe_float(got.unit.scale));
      }
    }
  }
};
#endif

}  // namespace inference
}  // namespace mscclpp
#endif  // MSCCLPP_INFERENCE_MOE_DISPATCH_H_
