// The kernel for rows in the checking emulator, as GPUs run it: blocks of several threads, in turns that a seed decides.
// Launches of one rank are behind each other as on a stream, and change sizes, so that packets of one lie where those of
// another one were.
#define MSCCLPP_TYPE 0
#include <mscclpp/check.h>

#include <math.h>

#include "../norm_family.h"

using namespace mscclpp;
using namespace mscclpp::inference;

namespace {

constexpr uint32_t kLaunches = 5, kMostRanks = 3, kMostTokens = 4, kMostHidden = 32;
constexpr uint64_t kHalf = 2 * kMostRanks * kMostTokens * (kMostHidden * 4 + 16);

struct Shape { uint32_t tokens, hidden; };
constexpr Shape kShapes[kLaunches] = {{4, 8}, {1, 32}, {3, 24}, {4, 32}, {2, 8}};

struct Sequence {
  NormArgs args[kLaunches];
  GridBarrier* stream;
  bool frequent;  // each second call by the kernel for those
};

void sequence(const Sequence* s, const LaunchShape* shape) {
  for (uint32_t k = 0; k < kLaunches; ++k) {
    (s->frequent && k % 2 == 0 ? mscclpp_inference_rms_norm : mscclpp_inference_allreduce_norm)(&s->args[k], shape);
    if (!grid_sync(s->stream, s->args[k].control)) return;
  }
}

float value(uint32_t rank, uint32_t launch, uint32_t i) { return static_cast<float>((rank * 7 + launch * 5 + i * 3) % 11) - 5; }

void rows(check::Job& job, uint32_t flags, bool bytes = false, uint32_t ranks = kMostRanks, bool frequent = false) {
  Sequence all[kMostRanks] = {};
  char* memory[kMostRanks];
  const uint64_t notices = 2 * ranks * sizeof(NormNotice);
  for (uint32_t r = 0; r < ranks; ++r) {
    memory[r] = job.alloc<char>(notices + 2 * kHalf);
    memset(memory[r] + notices, 0xff, 2 * kHalf);
  }
  for (uint32_t r = 0; r < ranks; ++r) {
    char** peers = job.alloc<char*>(ranks);
    for (uint32_t p = 0; p < ranks; ++p) peers[p] = memory[p];
    NormState* state = job.alloc<NormState>(1);
    float* room = job.alloc<float>(16);
    all[r].stream = job.alloc<GridBarrier>(1), all[r].frequent = frequent;
    for (uint32_t k = 0; k < kLaunches; ++k) {
      NormArgs& a = all[r].args[k];
      const uint32_t n = kShapes[k].tokens * kShapes[k].hidden;
      float* input = job.alloc<float>(n);
      float* residual = job.alloc<float>(n);
      float* weight = job.alloc<float>(kShapes[k].hidden);
      for (uint32_t i = 0; i < n; ++i) input[i] = value(r, k, i), residual[i] = 0.5f;
      for (uint32_t i = 0; i < kShapes[k].hidden; ++i) weight[i] = 2;
      a.control = job.control(r);
      a.state = state, a.peers = peers, a.room = room;
      a.input = reinterpret_cast<char*>(input), a.residual = reinterpret_cast<char*>(residual), a.weight = reinterpret_cast<char*>(weight);
      a.output = reinterpret_cast<char*>(input);  // in place
      if (bytes) a.quantized = kE4M3PerToken, a.output = job.alloc<char>(n), a.scales = job.alloc<float>(kShapes[k].tokens);
      a.residual_out = job.alloc<char>(4 * n);
      a.notices = notices, a.half = kHalf;
      a.signature = 7;
      a.tokens = kShapes[k].tokens, a.hidden = kShapes[k].hidden, a.rank = r, a.ranks = ranks, a.flags = flags, a.epsilon = 0.25f;
      a.share = (a.tokens + ranks - 1) / ranks, a.count = (flags & kTwoShot) != 0 ? a.share : a.tokens;
    }
    // Blocks of rows, and the one that keeps the books.
    job.launch(r, 2 + r % 2, r == 1 && !frequent ? 3 : 4, sequence, all[r]);  // frequent: two vectors in each are a row
  }
  job.run();
  for (uint32_t r = 0; r < ranks; ++r) {
    const uint64_t begun = all[r].args[0].state->begun;
    job.expect(begun == kLaunches * kLaunch, "rank %u: %llu launches, and %llu blocks of one more", r, (unsigned long long)(begun / kLaunch), (unsigned long long)(begun % kLaunch));
    for (uint64_t i = 0; i < 2 * kHalf; ++i) job.expect(memory[r][notices + i] == static_cast<char>(0xff), "rank %u: a packet is left at %llu", r, (unsigned long long)i);
    for (uint32_t k = 0; k < kLaunches; ++k) {
      const NormArgs& a = all[r].args[k];
      for (uint32_t t = 0; t < a.tokens; ++t) {
        float squares = 0;
        for (uint32_t i = t * a.hidden; i < (t + 1) * a.hidden; ++i) {
          float want = 0.5f;
          for (uint32_t p = 0; p < ranks; ++p) want += value(p, k, i);
          const float got = reinterpret_cast<const float*>(a.residual_out)[i];
          job.expect(got == want, "rank %u, launch %u, element %u: %g, expected %g", r, k, i, got, want);
          squares += want * want;
        }
        const float inverse = 1 / sqrtf(squares / static_cast<float>(a.hidden) + 0.25f);
        for (uint32_t i = t * a.hidden; i < (t + 1) * a.hidden; ++i) {
          const float want = reinterpret_cast<const float*>(a.residual_out)[i] * inverse * 2;
          const float got = bytes ? widen_element(reinterpret_cast<const e4m3*>(a.output)[i]) * a.scales[t] : reinterpret_cast<const float*>(a.output)[i];
          job.expect(fabsf(got - want) < (bytes ? fabsf(want) / 15 + 0.01f : 1e-5f), "rank %u, launch %u, element %u: a norm of %g, expected %g", r, k, i, got, want);
        }
      }
    }
  }
}

void one_shot(check::Job& job) { rows(job, 0); }
void two_shot(check::Job& job) { rows(job, kTwoShot); }
void pairs(check::Job& job) { rows(job, kPairs); }
void pairs_two_shot(check::Job& job) { rows(job, kTwoShot | kPairs); }
void bytes(check::Job& job) { rows(job, 0, true); }
void bytes_two_shot(check::Job& job) { rows(job, kTwoShot | kPairs, true); }
void frequent(check::Job& job) { rows(job, kPairs, false, 2, true); }
void frequent_bytes(check::Job& job) { rows(job, kPairs, true, 2, true); }

}  // namespace

MSCCLPP_CHECK_MAIN({"one_shot", one_shot}, {"two_shot", two_shot}, {"pairs", pairs}, {"pairs_two_shot", pairs_two_shot}, {"bytes", bytes}, {"bytes_two_shot", bytes_two_shot},
                    {"frequent", frequent}, {"frequent_bytes", frequent_bytes})
