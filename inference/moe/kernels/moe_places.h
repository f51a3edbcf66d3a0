// Where everything is in the memory that the ranks open to each other, and what both forms of the kernels share.
//
// Rows and partial sums are packets without a flag (sentinel.h), by turns in two halves. All else has a flag, the
// number of the launch, in every 8 bytes. A rank writes into a half for the second time when each rank has acknowledged that it
// has read the half: at the end of a receive phase, or with its next send phase.
#ifndef MSCCLPP_INFERENCE_MOE_PLACES_H_
#define MSCCLPP_INFERENCE_MOE_PLACES_H_

#include "moe_args.h"
#include "rounded.h"
#include "sentinel.h"

namespace mscclpp {
namespace inference {

enum MoeKind : uint32_t { kDispatch = 0, kCombine = 1 };

constexpr uint32_t kMoeHeader = 16 * (kMoeMostTopK + 1), kMoeWeightRow = 8 * kMoeMostTopK;
constexpr uint32_t kMoeGroup = 128;  // elements that share a scale, where the kernel makes scales

MSCCLPP_DEVICE uint32_t moe_number(uint64_t launch) { return static_cast<uint32_t>((launch - 1) % 0xffffffffu) + 1; }

struct MoePlaces {
  const MoeArgs& a;
  char* const* peers;
  uint64_t launch;
  uint32_t number, turn;

  MSCCLPP_DEVICE MoePlaces(const MoeArgs& args, uint64_t count) : a(args), peers(args.peers) { set(count); }
  MSCCLPP_DEVICE void set(uint64_t count) { launch = count, number = moe_number(count), turn = count % 2 == 0 ? 1u : 0u; }

  MSCCLPP_DEVICE bool has(uint32_t flag) const { return (a.flags & flag) != 0; }
  // Both phases are in one launch: what a rank has for itself need not go through memory that it opens.
  MSCCLPP_DEVICE bool whole_call() const { return has(kMoeSend) && has(kMoeReceive); }
  MSCCLPP_DEVICE char* of(uint32_t rank) const { return peers[rank]; }
  MSCCLPP_DEVICE uint64_t token_of(uint32_t from, uint32_t t) const { return static_cast<uint64_t>(turn * a.ranks + from) * a.most_tokens + t; }

  // Rank `from` writes these into the memory of rank `at`.
  MSCCLPP_DEVICE uint64_t* notice(uint32_t kind, uint32_t from, uint32_t at) const {
    return reinterpret_cast<uint64_t*>(of(at) + a.notices) + (kind * 2 + turn) * a.ranks + from;
  }
  MSCCLPP_DEVICE uint64_t* ack(uint32_t kind, uint32_t from, uint32_t at, uint32_t of_turn) const {
    return reinterpret_cast<uint64_t*>(of(at) + a.acks) + (kind * 2 + of_turn) * a.ranks + from;
  }
  MSCCLPP_DEVICE uint64_t* ack(uint32_t kind, uint32_t from, uint32_t at) const { return ack(kind, from, at, turn); }
  // Rows for a local expert of rank `at`; behind the last one is the number of tokens.
  MSCCLPP_DEVICE LL8Packet* count(uint32_t from, uint32_t at, uint32_t expert) const {
    return reinterpret_cast<LL8Packet*>(of(at) + a.counts) + static_cast<uint64_t>(turn * a.ranks + from) * (a.most_local + 1) + expert;
  }
  MSCCLPP_DEVICE LL8Packet* tokens(uint32_t from, uint32_t at) const { return count(from, at, a.most_local); }
  MSCCLPP_DEVICE LL16Packet* header(uint32_t from, uint32_t at, uint32_t t) const {
    return reinterpret_cast<LL16Packet*>(of(at) + a.headers + token_of(from, t) * kMoeHeader);
  }
  MSCCLPP_DEVICE LL8Packet* weight(uint32_t from, uint32_t at, uint32_t t) const {
    return reinterpret_cast<LL8Packet*>(of(at) + a.weights + token_of(from, t) * kMoeWeightRow);
  }
  MSCCLPP_DEVICE char* row(uint32_t from, uint32_t at, uint32_t t) const { return of(at) + a.rows + token_of(from, t) * a.stride; }
  MSCCLPP_DEVICE char* partial(uint32_t from, uint32_t at, uint32_t t) const { return of(at) + a.partials + token_of(from, t) * a.stride; }

  MSCCLPP_DEVICE char* record(uint32_t from) const { return a.rows_of_tokens + 16ull * from; }
  MSCCLPP_DEVICE char* record(uint32_t from, uint32_t t) const {
    return a.rows_of_tokens + 16ull * a.ranks + (static_cast<uint64_t>(from) * a.most_tokens + t) * kMoeRecord;
  }

  MSCCLPP_DEVICE WaitSite site(uint32_t channel, uint32_t peer, uint64_t expected) const {
    return WaitSite{a.kernel, channel, peer, expected, &a.state->left};
  }

  // The i-th of all experts that tokens have chosen; negative: none.
  MSCCLPP_DEVICE int64_t index(uint64_t i) const {
    if (has(kMoeIndex64)) return reinterpret_cast<const int64_t*>(a.indices)[i];
    return reinterpret_cast<const int32_t*>(a.indices)[i];
  }
  MSCCLPP_DEVICE uint32_t rank_of(uint32_t expert) const {
    return a.local == 1 ? expert : static_cast<uint32_t>(static_cast<uint64_t>(expert) * a.inverse >> 32);
  }
  MSCCLPP_DEVICE bool real(int64_t expert) const { return expert >= 0 && expert < a.experts; }

  // The ranks to which a token goes, as bits. Loads of eight choices are under way at once.
  MSCCLPP_DEVICE uint64_t ranks_of(uint32_t t) const {
    constexpr uint32_t kAtOnce = 8;
    uint64_t set = 0;
    for (uint32_t first = 0; first < a.top_k; first += kAtOnce) {
      int64_t e[kAtOnce];
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < kAtOnce; ++k) e[k] = first + k < a.top_k ? index(static_cast<uint64_t>(t) * a.top_k + first + k) : -1;
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < kAtOnce; ++k) set |= real(e[k]) ? uint64_t{1} << rank_of(static_cast<uint32_t>(e[k])) : 0;
    }
    return set;
  }

  // Packets of a row, and bytes of an element that is sent.
  MSCCLPP_DEVICE uint32_t units(uint32_t element) const { return a.hidden * element / 16; }

  MSCCLPP_DEVICE uint64_t launch_before() const { return launch > 2 ? launch - 2 : 0; }

  MSCCLPP_DEVICE void trouble(uint32_t what, uint32_t place, uint32_t seen, uint32_t channel, uint64_t expected) const {
    store_relaxed_device(&a.state->place, place);
    store_relaxed_device(&a.state->seen, seen);
    store_relaxed_device(&a.state->trouble, what);
#if !MSCCLPP_TARGET_CPU
    detail::report(a.control, site(channel, kNoRank, expected), seen);
#else
    (void)channel;
    (void)expected;
#endif
    store_relaxed_device(&a.state->left, 1u);
  }
};

// An entry of a header: a local expert, which of the token's experts it is, and the row among those of the token's rank.
MSCCLPP_DEVICE uint32_t moe_entry(uint32_t expert, uint32_t k, uint32_t row) { return row << 14 | k << 10 | expert; }
MSCCLPP_DEVICE uint32_t moe_expert(uint32_t entry) { return entry & 0x3ffu; }
MSCCLPP_DEVICE uint32_t moe_k(uint32_t entry) { return entry >> 10 & 15u; }
MSCCLPP_DEVICE uint32_t moe_row(uint32_t entry) { return entry >> 14; }

MSCCLPP_DEVICE uint64_t moe_pair(uint32_t a, uint32_t b) { return static_cast<uint64_t>(b) << 32 | a; }

MSCCLPP_DEVICE float moe_float(uint32_t bits) { return __builtin_bit_cast(float, bits); }
MSCCLPP_DEVICE uint32_t moe_bits(float f) { return __builtin_bit_cast(uint32_t, f); }

// Magnitudes are compared as bits, in which they have the same order; a NaN has none.
MSCCLPP_DEVICE uint32_t moe_magnitude(float f) {
  const uint32_t bits = moe_bits(f) & 0x7fffffffu;
  return bits > 0x7f800000u ? 0 : bits;
}
MSCCLPP_DEVICE uint32_t moe_larger(uint32_t a, uint32_t b) { return a < b ? b : a; }

// The scale of elements of which the largest magnitude is known, and the factor that goes with it.
struct MoeScale { float scale, by; };
MSCCLPP_DEVICE MoeScale moe_scale(uint32_t magnitude, bool round) {
  constexpr float top = 448.0f, least = 1e-4f;
  const float largest = moe_float(moe_larger(magnitude, moe_bits(least)));
  if (!round) return MoeScale{largest / top, top / largest};
  const uint32_t bits = moe_bits(largest / top);
  const uint32_t exponent = (bits >> 23) + ((bits & 0x7fffffu) != 0 ? 1 : 0);
  return MoeScale{moe_float(exponent << 23), moe_float((254 - exponent) << 23)};
}

// Scales of a row of experts are those of all rows side by side: scale s of a row is behind scale s - 1 of all rows.
MSCCLPP_DEVICE void moe_give_scale(const MoeArgs& a, uint32_t expert, uint32_t row, uint32_t s, float scale) {
  if ((a.flags & kMoeExponents) != 0) {
    const uint64_t word = (static_cast<uint64_t>(expert) * (a.row_scales / 4) + s / 4) * a.slots + row;
    reinterpret_cast<uint8_t*>(a.output_scales)[4 * word + s % 4] = static_cast<uint8_t>(moe_bits(scale) >> 23);
    return;
  }
  reinterpret_cast<float*>(a.output_scales)[(static_cast<uint64_t>(expert) * a.row_scales + s) * a.slots + row] = scale;
}

}  // namespace inference
}  // namespace mscclpp
#endif  // MSCCLPP_INFERENCE_MOE_PLACES_H_
