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
    uint32_t q[4];
    MSCCLPP_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      float f[4];
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < 4; ++k) f[k] = widen_element(h[i / 2].e[i % 2 * 4 + k]) * s.by;
      q[i] = rounded_e4m3(f[0], f[1], f[2], f[3]);
    }
    return Unit{scrub(Vec16{q[0], q[1], q[2], q[3]}), scrub(moe_bits(s.scale))};
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
    for (uint32_t t = first; t < a.tokens; t += a.headers_by) {
      for (uint32_t k0 = 0; k0 < a.top_k; k0 += width) {
        const uint32_t k = k0 + lane, i = t * a.top_k + k;
        const int64_t e = k < a.top_k ? at.index(i) : -1;
        const uint32_t weight = slice == 0 && k < a.top_k && a.factors != nullptr ? moe_bits(a.factors[i]) : 0;
        // Choices before the token, and in the entry those of the token itself.
        const uint32_t row = matches(t * a.top_k, width, e, words + kMoeChoices + k0);
        if (t == first && k0 == 0 && !begin()) return;
        if (slice == 0 && at.real(e)) entry(t, k, static_cast<uint32_t>(e), row, weight);
        if (slice == 0 && !at.real(e) && e != -1) {
          ok = false;
          at.trouble(kMoeNoExpert, t, static_cast<uint32_t>(e), kMoeWrongExpert, a.experts);
        }
        if (k0 + width >= a.top_k) rows_of(t);
        block_sync();
      }
    }
  }
  // The number of a token's entries, for each rank. Other threads write it than those that write entries.
  MSCCLPP_DEVICE void rows_of(uint32_t t) const {
    for (uint32_t r = nthreads - 1 - tid; r < a.ranks; r += nthreads) {
      uint32_t n = 0;
      MSCCLPP_UNROLL
      for (uint32_t q = 0; q < kMoeMostTopK; ++q) n += q < a.top_k && words[kMoeChoices + q] - r * a.local < a.local ? 1u : 0u;
      writePacket(at.header(a.rank, r, t), n, at.number);
    }
  }
  // Experts of a rank are side by side, and what is no expert is none of any rank.
  MSCCLPP_DEVICE void entry(uint32_t t, uint32_t k, uint32_t e, uint32_t row, uint32_t weight) const {
    const uint32_t r = at.rank_of(e), begins = r * a.local;
    uint32_t place = 1;
    MSCCLPP_UNROLL
    for (uint32_t q = 0; q < kMoeMostTopK; ++q) {
      const uint32_t other = q < k ? words[kMoeChoices + q] : kMoeNone;
      place += other - begins < a.local ? 1u : 0u;
      row += other == e ? 1u : 0u;
    }
    writePacket(at.header(a.rank, r, t) + place, moe_pair(moe_entry(e - begins, k, row), weight), at.number);
  }

  // Rows of each expert, for the rank that has it.
  MSCCLPP_DEVICE void count(uint32_t first) {
    const uint32_t width = nthreads < kMoeExpertsOfBlock ? nthreads : kMoeExpertsOfBlock, lane = tid % width, slice = tid / width, all = a.local * a.ranks;
    if (first == 0) {
      if (!begin()) return;
      for (uint32_t r = tid; r < a.ranks; r += nthreads) writePacket(at.tokens(a.rank, r), a.tokens, at.number);
    }
    for (uint32_t e0 = first * width; e0 < all; e0 += a.counters * width) {
      const uint32_t e = e0 + lane, n = matches(a.tokens * a.top_k, width, e, nullptr);
      if (!begin()) return;
      if (slice == 0 && e < all) {
        const uint32_t r = at.rank_of(e);
        writePacket(at.count(a.rank, r, e - r * a.local), n, at.number);
      }
      block_sync();
    }
    // Headers of tokens that this rank does not have: thousands of threads that wait for one would look at one number of tokens.
    if (!begin()) return;
    const uint32_t absent = a.most_tokens - a.tokens;
    for (uint32_t i = first * nthreads + tid; i < absent * a.ranks; i += a.counters * nthreads) {
      const uint32_t r = i / absent;
      writePacket(at.header(a.rank, r, a.tokens + i - r * absent), 0, at.number);
    }
  }

  // Rows of this rank's experts, and where those of each rank begin. A thread looks at what several ranks have sent at once; the last place
  // is that of their tokens.
  MSCCLPP_DEVICE void books() {
    compare();  // it opens the launch
    constexpr uint32_t kAtOnce = 4;
    for (uint32_t e = tid; e <= a.local && ok; e += nthreads) {
      const bool tokens = e == a.local;
      uint32_t sum = 0;
      for (uint32_t first = 0; first < a.ranks && ok; first += kAtOnce) {
        uint32_t n[kAtOnce];
        ok = counts<kAtOnce>(n, first, a.ranks, tokens ? a.most_local : e);
        MSCCLPP_UNROLL
        for (uint32_t k = 0; k < kAtOnce; ++k) {
          const uint32_t r = first + k;
          if (r >= a.ranks) continue;
          if (tokens) *reinterpret_cast<uint32_t*>(at.record(r)) = n[k];
          else a.ranges[static_cast<uint64_t>(e) * a.ranks + r] = static_cast<int64_t>(moe_pair(n[k], sum));
          sum += n[k];
        }
      }
      if (tokens || !ok) continue;
      if (sum > a.slots) full(e, sum);
      a.received[e] = static_cast<int32_t>(sum);
      if (a.statistics != nullptr) a.statistics[e] += static_cast<int32_t>(sum);
    }
  }
  // counts waits for the numbers that several ranks, of those before end, have sent for a place of this one. Behind the last one are zeros.
  template <uint32_t kAtOnce>
  MSCCLPP_DEVICE bool counts(uint32_t (&n)[kAtOnce], uint32_t first, uint32_t end, uint32_t place) const {
    WaitSite site = at.site(kMoeCounts, first, at.launch);
    const MoePlaces& here = at;
    const uint32_t me = a.rank, number = at.number;
    MSCCLPP_UNROLL
    for (uint32_t k = 0; k < kAtOnce; ++k) n[k] = 0;
    return wait_brief(a.control, site, [&here, &site, &n, first, end, me, place, number] {
      bool all = true, came[kAtOnce];
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < kAtOnce; ++k) came[k] = first + k >= end || pollPacket(here.count(first + k, me, place), number, n[k]);
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < kAtOnce; ++k) {
        if (came[k]) continue;
        all = false;
        site.peer = first + k;
      }
      return all;
    });
  }
  MSCCLPP_DEVICE void full(uint32_t e, uint32_t rows) {
    ok = false;
    const uint32_t expert = a.rank * a.local + e;
    at.trouble(kMoeOverflow, expert, rows, kMoeFull | expert, a.slots);
  }

  // An entry of a header, behind the number of its rows, becomes expert and row, to which the rows of other ranks before this one are added.
  MSCCLPP_DEVICE void place(uint32_t from, uint32_t t, uint32_t j, uint64_t got, bool records, uint32_t* about) {
    constexpr uint32_t kAtOnce = 4;
    const uint32_t entry = static_cast<uint32_t>(got), e = moe_expert(entry);
    uint32_t row = moe_row(entry);
    for (uint32_t first = 0; first < from && ok; first += kAtOnce) {
      uint32_t n[kAtOnce];
      ok = counts<kAtOnce>(n, first, from, e);
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
    const uint32_t number = at.number, j = tid;
    Arrival seen = got;
    ok = wait(kMoeRows, from, [&seen, header, number, j, packet, scale] {
      const bool named = pollPacket(header, number, seen.rows), entered = j >= kMoeMostTopK || pollPacket(header + 1 + j, number, seen.entry);
      if (packet != nullptr) seen.unit.row = load16_packet(packet);
      if (scale != nullptr) seen.unit.scale = load_relaxed(scale);
      if (!named) return false;
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
    // A rank's own rows come first, as they wait for no link. Of other ranks no token is left out: each has a header.
    const uint32_t own_items = at.whole_call() ? a.tokens * parts : 0, of_token = (at.whole_call() ? a.ranks - 1 : a.ranks) * parts;
    uint32_t end = own_items + of_token * a.most_tokens;
    for (uint32_t i = first, turn = 0; i < end; i += a.collectors, ++turn) {
      if (turn == 1 && i + a.collectors < end) {
        end = own_items + of_token * most_tokens();
        if (i >= end) return;
      }
      const bool own = i < own_items;
      const uint32_t item = own ? i : i - own_items, each = own ? parts : of_token, t = item / each, rest = item - t * each, next = rest / parts;
      const uint32_t turned = a.rank + 1 + next, from = own ? a.rank : turned < a.ranks ? turned : turned - a.ranks, part = rest - next * parts, v = part * nthreads + tid;
      const bool has = v < units;
      uint32_t place_of_scale = 0;
      Arrival got{};
      char* packet = nullptr;
      uint32_t* scale = nullptr;
      bool gives = false;
      if (own) {
        got.unit = fetch(t, v);
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
