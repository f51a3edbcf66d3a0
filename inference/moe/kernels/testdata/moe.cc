// The kernels for experts in the checking emulator, as GPUs run them: blocks of several threads, in turns that a seed decides, and fewer
// blocks than parts of the work. Launches of one rank are behind each other as on a stream: dispatch and combine by turns, with
// tokens, formats and phases that change, so that packets of one lie where those of another one were. Or dispatches alone, of
// which two are under way at once, so that a rank may be ahead of another one by as much as it ever can.
#define MSCCLPP_TYPE 2
#include <mscclpp/check.h>

#include <math.h>

#include "../moe_family.h"

using namespace mscclpp;
using namespace mscclpp::inference;

namespace {

constexpr uint32_t kRounds = 4, kRanks = 3, kMostTokens = 3, kHidden = 128, kTopK = 3, kExperts = 5, kLocal = 2, kSlots = 12;

struct Round {
  uint32_t tokens[kRanks];
  bool cast, weighted, split;
};
constexpr Round kPlan[kRounds] = {{{3, 1, 0}, false, false, false}, {{2, 3, 1}, true, true, false}, {{1, 0, 3}, false, true, true}, {{3, 3, 2}, false, false, false}};

struct Sequence {
  MoeArgs args[4 * kRounds];
  bool dispatch[4 * kRounds];
  uint32_t launches;
  GridBarrier* stream;
};

void sequence(const Sequence* s, const LaunchShape* shape) {
  for (uint32_t k = 0; k < s->launches; ++k) {
    (s->dispatch[k] ? mscclpp_moe_dispatch : mscclpp_moe_combine)(&s->args[k], shape);
    if (!grid_sync(s->stream, s->args[k].control)) return;
  }
}

float value(uint32_t rank, uint32_t round, uint32_t t, uint32_t h) { return static_cast<float>((rank * 7 + round * 5 + t * 3 + h) % 11) - 5; }
int32_t expert(uint32_t rank, uint32_t round, uint32_t t, uint32_t k) {
  const uint32_t x = rank * 3 + round + t * 2 + k * 4;
  return x % 7 == 0 ? -1 : static_cast<int32_t>(x % kExperts);
}
float weight(uint32_t k) { return 0.5f * static_cast<float>(k + 1); }

struct Memory {
  uint64_t notices = 0, acks = 256, counts = 512, headers = 1024, weights, rows, partials, end;
  Memory() {
    const uint64_t all = 2 * kRanks * kMostTokens;
    weights = headers + all * kMoeHeader;
    rows = weights + all * kMoeWeightRow;
    partials = rows + all * kHidden * 2;
    end = partials + all * kHidden * 2;
  }
};

struct Rank {
  Sequence all = {};
  char* memory;
  bf16 *in[kRounds], *experts[kRounds], *out[kRounds];
  uint8_t* bytes[kRounds];
  float* scales[kRounds];
  int32_t *sources[kRounds], *received[kRounds];
};

// Experts return what a dispatch in bf16 has brought them; of casts they have rows of ones.
void calls(check::Job& job, Rank& rank, uint32_t r, char** peers, bool ahead) {
  MoeArgs dispatches[kRounds];
  const Memory m;
  MoeState* state = job.alloc<MoeState>(1);
  uint32_t* room = job.alloc<uint32_t>(4 * kMoeRoom);
  rank.all.stream = job.alloc<GridBarrier>(1);
  for (uint32_t k = 0; k < kRounds; ++k) {
    const Round& plan = kPlan[k];
    MoeArgs a = {};
    a.control = job.control(r);
    a.state = state, a.peers = peers, a.room = room;
    a.notices = m.notices, a.acks = m.acks, a.counts = m.counts, a.headers = m.headers, a.weights = m.weights, a.rows = m.rows, a.partials = m.partials;
    a.stride = kHidden * 2;
    a.inverse = 1u << 31;
    a.signature = 7 + k, a.tokens = plan.tokens[r], a.most_tokens = kMostTokens, a.hidden = kHidden, a.top_k = kTopK, a.experts = kExperts;
    a.local = kLocal, a.most_local = kLocal, a.slots = kSlots, a.rank = r, a.ranks = kRanks;
    a.headers_by = 2, a.senders = 3, a.collectors = 4;
    rank.in[k] = job.alloc<bf16>(kMostTokens * kHidden);
    int32_t* indices = job.alloc<int32_t>(kMostTokens * kTopK);
    float* factors = job.alloc<float>(kMostTokens * kTopK);
    for (uint32_t t = 0; t < a.tokens; ++t) {
      for (uint32_t h = 0; h < kHidden; ++h) rank.in[k][t * kHidden + h] = narrow_element<bf16>(value(r, k, t, h));
      for (uint32_t j = 0; j < kTopK; ++j) indices[t * kTopK + j] = expert(r, k, t, j), factors[t * kTopK + j] = weight(j);
    }
    rank.experts[k] = job.alloc<bf16>(kLocal * kSlots * kHidden);
    rank.bytes[k] = job.alloc<uint8_t>(kLocal * kSlots * kHidden);
    rank.scales[k] = job.alloc<float>(kLocal * kSlots);
    rank.sources[k] = job.alloc<int32_t>(kLocal * kSlots);
    rank.received[k] = job.alloc<int32_t>(kLocal);
    rank.out[k] = job.alloc<bf16>(kMostTokens * kHidden);
    a.input = reinterpret_cast<char*>(rank.in[k]), a.indices = reinterpret_cast<char*>(indices);
    a.sources = rank.sources[k], a.received = rank.received[k], a.ranges = job.alloc<int64_t>(kLocal * kRanks);
    a.rows_of_tokens = reinterpret_cast<char*>(job.alloc<Vec16>(kRanks + kRanks * kMostTokens * (kMoeMostTopK + 1)));
    const uint32_t common = plan.weighted ? kMoeWeighted : 0u;
    const auto put = [&](bool dispatch, uint32_t flags) {
      MoeArgs& next = rank.all.args[rank.all.launches];
      next = a;
      next.flags = common | flags;
      rank.all.dispatch[rank.all.launches++] = dispatch;
    };
    const auto phases = [&](bool dispatch, uint32_t flags) {
      if (!plan.split) return put(dispatch, flags | kMoeSend | kMoeReceive);
      put(dispatch, flags | kMoeSend);
      put(dispatch, flags | kMoeReceive);
    };
    a.counters = 2;
    if (plan.weighted) a.factors = factors;
    if (plan.cast) {
      a.output = reinterpret_cast<char*>(rank.bytes[k]), a.output_scales = reinterpret_cast<char*>(rank.scales[k]), a.row_scales = 1;
      for (uint32_t i = 0; i < kLocal * kSlots * kHidden; ++i) rank.experts[k][i] = narrow_element<bf16>(1.0f);
    } else {
      a.output = reinterpret_cast<char*>(rank.experts[k]);
    }
    const uint32_t cast = plan.cast ? static_cast<uint32_t>(kMoeCast) : 0u;
    if (ahead) {
      dispatches[k] = a;
      dispatches[k].flags = common | cast;
      continue;
    }
    phases(true, cast);
    a.counters = 0, a.row_scales = 0, a.factors = factors;
    a.headers_by = plan.weighted ? 0 : 1;
    a.input = reinterpret_cast<char*>(rank.experts[k]), a.output = reinterpret_cast<char*>(rank.out[k]);
    phases(false, 0);
  }
  for (uint32_t k = 0; ahead && k < kRounds; k += 2) {
    for (uint32_t i = 0; i < 4; ++i) {
      MoeArgs& next = rank.all.args[rank.all.launches];
      rank.all.dispatch[rank.all.launches++] = true;
      next = dispatches[k + i % 2];
      next.flags |= i < 2 ? kMoeSend : kMoeReceive;
      next.behind = i == 2 ? 1 : 0;
    }
  }
}

void results(check::Job& job, const Rank* ranks, bool ahead) {
  for (uint32_t r = 0; r < kRanks; ++r) {
    for (uint32_t k = 0; k < kRounds; ++k) {
      for (uint32_t e = 0; e < kLocal; ++e) {
        int32_t row = 0;
        for (uint32_t p = 0; p < kRanks; ++p) {
          for (uint32_t i = 0; i < kPlan[k].tokens[p] * kTopK; ++i) {
            if (expert(p, k, i / kTopK, i % kTopK) != static_cast<int32_t>(r * kLocal + e)) continue;
            const uint32_t place = e * kSlots + static_cast<uint32_t>(row++);
            job.expect(ranks[r].sources[k][place] == static_cast<int32_t>(i / kTopK), "rank %u, round %u, expert %u, row %d: source", r, k, e, row);
            for (uint32_t h = 0; h < kHidden; ++h) {
              const float want = value(p, k, i / kTopK, h);
              const float got = kPlan[k].cast ? widen_element(e4m3{ranks[r].bytes[k][place * kHidden + h]}) * ranks[r].scales[k][place]
                                              : widen_element(ranks[r].experts[k][place * kHidden + h]);
              job.expect(fabsf(got - want) <= (kPlan[k].cast ? fabsf(want) / 16 : 0), "rank %u, round %u, expert %u, row %d: %g, expected %g", r, k, e, row, got, want);
            }
          }
        }
        job.expect(ranks[r].received[k][e] == row, "rank %u, round %u, expert %u: %d rows, expected %d", r, k, e, ranks[r].received[k][e], row);
      }
      for (uint32_t t = 0; !ahead && t < kPlan[k].tokens[r]; ++t) {
        float sum = 0;
        for (uint32_t j = 0; j < kTopK; ++j) sum += expert(r, k, t, j) < 0 ? 0 : weight(j);
        for (uint32_t h = 0; h < kHidden; ++h) {
          const float want = sum * (kPlan[k].cast ? 1 : value(r, k, t, h)), got = widen_element(ranks[r].out[k][t * kHidden + h]);
          job.expect(fabsf(got - want) <= fabsf(want) / 100, "rank %u, round %u, token %u: %g, expected %g", r, k, t, got, want);
        }
      }
    }
  }
}

void rounds(check::Job& job, bool ahead) {
  const Memory m;
  Rank ranks[kRanks];
  for (Rank& rank : ranks) {
    rank.memory = job.alloc<char>(m.end);
    memset(rank.memory + m.rows, 0xff, m.end - m.rows);
  }
  for (uint32_t r = 0; r < kRanks; ++r) {
    char** peers = job.alloc<char*>(kRanks);
    for (uint32_t p = 0; p < kRanks; ++p) peers[p] = ranks[p].memory;
    calls(job, ranks[r], r, peers, ahead);
    job.launch(r, 2 + r % 2, r == 1 ? 3 : 4, sequence, ranks[r].all);
  }
  job.run();
  for (uint32_t r = 0; r < kRanks; ++r) {
    for (uint64_t i = m.rows; i < m.end; ++i) job.expect(ranks[r].memory[i] == static_cast<char>(0xff), "rank %u: a packet is left at %llu", r, (unsigned long long)i);
  }
  results(job, ranks, ahead);
}

void there_and_back(check::Job& job) { rounds(job, false); }
void two_at_once(check::Job& job) { rounds(job, true); }

}  // namespace

MSCCLPP_CHECK_MAIN({"there_and_back", there_and_back}, {"two_at_once", two_at_once})
