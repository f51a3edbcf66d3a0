// The argument of the kernel that adds the inputs of all ranks up, adds the residual, and normalizes the rows. Plain data:
// the host fills it. inference/layout.go is the Go twin; a test compares sizes and offsets. Because of the line below a
// hash of this file, without comments, is in the manifest of every image.
//
// mscclpp:layout
#ifndef MSCCLPP_INFERENCE_NORM_ARGS_H_
#define MSCCLPP_INFERENCE_NORM_ARGS_H_

#include <mscclpp/layout.h>

namespace mscclpp {
namespace inference {

// The elements of the output.
enum Quantized : uint32_t {
  kNotQuantized = 0,
  kE4M3PerToken = 1,   // the kernel writes a scale for each row
  kE4M3PerTensor = 2,  // the caller gives one scale
  kInt8PerToken = 3,
  kInt8PerTensor = 4
};

enum NormFlag : uint32_t {
  kTwoShot = 1,       // a row is added up by one rank, its owner, which sends the sum to the others
  kLayerNorm = 2,     // rows lose their mean first
  kNoNorm = 4,        // the output is the sum
  kOwnResidual = 8,   // two-shot: residual and sum have the rows that the rank owns, and owners send the output
  kOwnOutput = 16,    // so has the output, and nothing is sent
  kOwnInput = 32,     // so has the input, and there is nothing to be added up
  kPairs = 64,        // on GPUs a thread has two vectors of 16 bytes of a row at a time
  kQuads = 128,       // four, on GPUs with clusters, and its team has the whole row
  kEarly = 256        // the next launch may begin before those before this one have ended
};

// The most blocks that have rows.
constexpr uint32_t kMostBlocks = 1023;

// In device memory, private to the rank: replays of a graph go on where the last launch ended.
struct NormState {
  uint64_t launches;  // on the host: that have ended
  uint32_t left;      // not 0: a launch was left before its end
  uint32_t apart;     // 1 + a rank that is in another call
  uint64_t begun;     // on GPUs: each launch adds kLaunch, each block a part of that
  uint32_t pad[10];
};
static_assert(sizeof(NormState) == 64, "layout");

// All blocks of a launch but the last add 1 when they begin, and the last one the rest. The rest is larger than all other parts together.
constexpr uint64_t kLaunch = 4 * (kMostBlocks + 1);

// Memory that the ranks open to each other begins with notices: two for each rank, by turns.
struct NormNotice {
  uint32_t signature;  // of the call
  uint32_t launch;     // its number, without 0
};
static_assert(sizeof(NormNotice) == 8, "layout");

struct NormArgs {
  WaitControl* control;
  NormState* state;
  char* const* peers;    // by rank: memory that it opens, as it is reached here
  float* room;           // of this rank alone: words for sums of blocks, where a target has no shared memory
  const char* input;
  const char* residual;  // null: there is none
  const char* weight;
  const char* bias;      // of the norm; null: there is none
  char* output;
  char* residual_out;    // the sum, and the residual
  float* scales;         // of rows; null: the output has none
  const float* scale;    // of the tensor
  uint64_t notices;      // bytes that they take
  uint64_t half;         // bytes of a half of the memory behind
  uint32_t signature;
  uint32_t tokens;
  uint32_t hidden;
  uint32_t rank;
  uint32_t ranks;
  uint32_t kernel;       // for reports
  uint32_t flags;
  uint32_t quantized;
  float epsilon;
  uint32_t share;        // rows of a rank: rank r owns those from r * share
  uint32_t first;        // rows before those of this launch; two-shot: of each share
  uint32_t count;        // rows of this launch; two-shot: of each share
};
static_assert(sizeof(NormArgs) == 160, "layout");

// The channel of a report that says: the peer has begun another call.
constexpr uint32_t kApart = 0xfffffffeu;

}  // namespace inference
}  // namespace mscclpp
#endif  // MSCCLPP_INFERENCE_NORM_ARGS_H_
