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

  MSCCLPP_DEVICE Dispatch(const MoeArgs& args, uint64_t launch)
      : MoeBlock(args, kDispatch, launch, (args.flags & (kMoeCast | kMoeBytes)) != 0 ? 1u : static_cast<uint32_t>(sizeof(T))) {}

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
        if ((set >> r & 1) == 0 || v >= units) continue;
        char* row = at.row(a.rank, r, t);
        store16_packet(row + 16ull * v, u.row);
        uint32_t* scales = reinterpret_cast<uint32_t*>(row + 16ull * units);
        if (!at.has(kMoeCast)) {
          if (scaled(v)) store_relaxed(scales + v, u.scale);
        } else if (v % (kMoeGroup / 16) == 0) {
          store_relaxed(scales + v / (kMoeGroup / 16), u.scale);
        }
      }
    }
  }

  // Headers name the rows of a token's experts among those of this rank, which counts them.
  MSCCLPP_DEVICE void headers(uint32_t first) {
    const uint32_t width = nthreads < kMoeMostTopK ? nthreads : kMoeMostTopK, lane = tid % width, slice = tid / width, slices = nthreads / width;
    for (uint32_t t = first; t < a.tokens; t += a.headers_by) {
      for (uint32_t k0 = 0; k0 < a.top_k; k0 += width) {
        const uint32_t k = k0 + lane, i = t * a.top_k + k;
        const int64_t e = k < a.top_k && slice < slices ? at.index(i) : -1;
        if (t == first && k0 == 0 && !begin()) return;
        const bool real = at.real(e);
        words[tid] = real ? matches(slice, i, slices, e) : 0;
        block_sync();
        if (slice == 0 && real) entry(t, k, static_cast<uint32_t>(e), width, slices);
        if (slice == 0 && !real && e != -1) {
          ok = false;
          at.trouble(kMoeNoExpert, t, static_cast<uint32_t>(e), kMoeWrongExpert, a.experts);
        }
        block_sync();
      }
      for (uint32_t r = tid; r < a.ranks; r += nthreads) {
        uint32_t n = 0;
        for (uint32_t k = 0; k < a.top_k; ++k) n += goes(t, k, r) ? 1u : 0u;
        writePacket(at.header(a.rank, r, t), n, at.number);
      }
    }
  }
  MSCCLPP_DEVICE bool goes(uint32_t t, uint32_t k, uint32_t r) const {
    const int64_t e = at.index(t * a.top_k + k);
    return at.real(e) && at.rank_of(static_cast<uint32_t>(e)) == r;
  }
  MSCCLPP_DEVICE void entry(uint32_t t, uint32_t k, uint32_t e, uint32_t width, uint32_t slices) const {
    uint32_t row = 0, place = 1;
    for (uint32_t s = 0; s < slices; ++s) row += words[s * width + tid];
    const uint32_t r = at.rank_of(e);
    for (uint32_t q = 0; q < k; ++q) place += goes(t, q, r) ? 1u : 0u;
    const uint32_t weight = a.factors != nullptr ? moe_bits(a.factors[t * a.top_k + k]) : 0;
    writePacket(at.header(a.rank, r, t) + place, moe_pair(moe_entry(e - r * a.local, k, row), weight), at.number);
  }

  // Rows of each expert, for the rank that has it.
  MSCCLPP_DEVICE void count(uint32_t first) {
    const uint32_t width = nthreads < MSCCLPP_WARP ? nthreads : MSCCLPP_WARP, lane = tid % width, slice = tid / width, slices = nthreads / width;
    if (!begin()) return;
    if (first == 0) {
      for (uint32_t r = tid; r < a.ranks; r += nthreads) writePacket(at.tokens(a.rank, r), a.tokens, at.number);
    }
    for (uint32_t e0 = first * width; e0 < a.local * a.ranks; e0 += a.counters * width) {
      const uint32_t e = e0 + lane;
      words[tid] = slice < slices ? matches(slice, a.tokens * a.top_k, slices, e) : 0;
      block_sync();
      if (slice == 0 && e < a.local * a.ranks) {
        uint32_t n = 0;
        for (uint32_t s = 0; s < slices; ++s) n += words[s * width + lane];
        const uint32_t r = at.rank_of(e);
        writePacket(at.count(a.rank, r, e - r * a.local), n, at.number);
      }
      block_sync();
    }
  }

  // Rows of this rank's experts, and where those of each rank begin.
  MSCCLPP_DEVICE void books() {
    compare();
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

  // The words of the block have the expert and the row of each entry, for two rows by turns, and the tokens of ranks.
  static constexpr uint32_t kOfRow = 2 * kMoeMostTopK, kTokens = 2 * kOfRow;

  // Entries of a header, at which the rows of other ranks before this one are added.
  MSCCLPP_DEVICE void entries(uint32_t from, uint32_t t, uint32_t n, bool records, uint32_t* about) {
    for (uint32_t j = tid; j < n && ok; j += nthreads) {
      const LL16Packet* p = at.header(from, a.rank, t) + 1 + j;
      const uint32_t number = at.number;
      uint64_t got = 0;
      ok = wait(kMoeRows, from, [p, number, &got] { return pollPacket(p, number, got); });
      const uint32_t entry = static_cast<uint32_t>(got), e = moe_expert(entry);
      uint32_t row = moe_row(entry);
      for (uint32_t r = 0; r < from && ok; ++r) {
        uint32_t before = 0;
        ok = flagged(before, at.count(r, a.rank, e), kMoeCounts, r);
        row += before;
      }
      if (ok && row >= a.slots) full(e, row + 1);
      about[2 * j] = e;
      about[2 * j + 1] = row;
      if (!records || !ok) continue;
      store16(at.record(from, t) + 16 * (j + 1), Vec16{e | moe_k(entry) << 16, row, static_cast<uint32_t>(got >> 32), 0});
      a.sources[static_cast<uint64_t>(e) * a.slots + row] = static_cast<int32_t>(t);
    }
  }

  // How many entries a header has; 0 too for a token that its rank does not have.
  MSCCLPP_DEVICE uint32_t header(uint32_t from, uint32_t t) {
    const LL16Packet* p = at.header(from, a.rank, t);
    const LL8Packet* tokens = at.tokens(from, a.rank);
    const uint32_t number = at.number;
    uint64_t got = 0;
    if (ok) {
      ok = wait(kMoeRows, from, [p, tokens, number, t, &got] {
        if (pollPacket(p, number, got)) return true;
        uint32_t n = 0;
        if (!pollPacket(tokens, number, n) || t < n) return false;
        got = 0;
        return true;
      });
    }
    return ok ? static_cast<uint32_t>(got) : 0;
  }

  MSCCLPP_DEVICE void collect(uint32_t first) {
    const uint32_t of_token = a.ranks * parts;
    uint32_t end = a.most_tokens;
    for (uint32_t i = first, turn = 0;; i += a.collectors, ++turn) {
      const uint32_t t = i / of_token;
      if (t >= end) return;
      const uint32_t from = (i - t * of_token) / parts, part = i % parts, v = part * nthreads + tid;
      char* p = at.row(from, a.rank, t) + 16ull * v;
      Vec16 got{};
      if (v < units) got = load16_packet(p);
      const uint32_t n = header(from, t);
      uint32_t* about = words + turn % 2 * kOfRow;
      entries(from, t, n, part == 0, about);
      for (uint32_t r = tid; turn == 0 && r < a.ranks && ok; r += nthreads) ok = flagged(words[kTokens + r], at.tokens(r, a.rank), kMoeCounts, r);
      uint32_t scale = 0;
      if (n != 0 && v < units) {
        got = receive(p, from, got);
        if (scaled(v)) scale = receive_scale(reinterpret_cast<uint32_t*>(at.row(from, a.rank, t) + 16ull * units) + v, from);
      }
      ok = block_sync_and(ok);
      if (!ok) return;
      if (turn == 0) {
        end = 0;
        for (uint32_t r = 0; r < a.ranks; ++r) end = end < words[kTokens + r] ? words[kTokens + r] : end;
      }
      if (part == 0 && tid == 0 && t < words[kTokens + from]) *reinterpret_cast<uint32_t*>(at.record(from, t)) = n;
      if (v >= units) continue;
      for (uint32_t j = 0; j < n; ++j) {
        const uint32_t e = about[2 * j], row = about[2 * j + 1];
        store16(a.output + ((static_cast<uint64_t>(e) * a.slots + row) * units + v) * 16, got);
        if (scaled(v)) moe_give_scale(a, e, row, v, moe_float(scale));
      }
    }
  }
  MSCCLPP_DEVICE uint32_t receive_scale(uint32_t* p, uint32_t peer) {
    uint32_t got = kSentinel;
    if (ok) {
      ok = wait(kMoeRows, peer, [p, &got] {
        got = load_relaxed(p);
        return got != kSentinel;
      });
    }
    store_relaxed(p, kSentinel);
    return got;
  }
};
#endif

}  // namespace inference
}  // namespace mscclpp
#endif  // MSCCLPP_INFERENCE_MOE_DISPATCH_H_
