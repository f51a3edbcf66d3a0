// The argument of the kernels that bring rows to the ranks of their experts, and back. Plain data: the host fills it.
// inference/moe/layout.go is the Go twin; a test compares sizes and offsets. Because of the line below a hash of this
// file, without comments, is in the manifest of every image.
//
// mscclpp:layout
#ifndef MSCCLPP_INFERENCE_MOE_ARGS_H_
#define MSCCLPP_INFERENCE_MOE_ARGS_H_

#include <mscclpp/layout.h>

namespace mscclpp {
namespace inference {

enum MoeFlag : uint32_t {
  kMoeSend = 1,         // phases; most launches have both
  kMoeReceive = 2,
  kMoeIndex64 = 4,      // indices of experts have 64 bits
  kMoeCast = 8,         // dispatch: rows become e4m3, with a scale for 128 elements
  kMoeRoundScale = 16,  // scales are powers of two
  kMoeBytes = 32,       // dispatch: rows that are sent have elements of one byte
  kMoeExponents = 64,   // dispatch: scales are given out as exponents, four in a word
  kMoeWeighted = 128    // dispatch brings the weights; combine does not
};

constexpr uint32_t kMoeMostTopK = 16;
constexpr uint32_t kMoeExpertsOfBlock = 8;  // of which a block counts the rows

// On GPUs every block of a launch looks at these first. A cache answers for one place about once in a cycle, and blocks are thousands: so
// there are copies, far enough from each other, which as many blocks share.
constexpr uint32_t kMoeCopies = 16, kMoeKnownWords = 4;
struct MoeKnown {
  uint64_t sent;      // send phases
  uint64_t acked[2];  // by turns: the last receive phases that all ranks have ended, as far as it is known
  uint64_t left;      // not 0: a launch was left before its end
  uint32_t started;   // of the copy's blocks, those that know the number of this launch
  uint32_t pad[23];
};
static_assert(sizeof(MoeKnown) == 128, "layout");

// In device memory, private to the rank: replays of a graph go on where the last launch ended.
struct MoeState {
  uint64_t sent[2];         // on the host: send phases, of dispatch and combine
  uint64_t received[2][2];  // of each kind the last receive phases, by turns
  uint32_t left;            // not 0: a launch was left before its end
  uint32_t apart;           // 1 + a rank that is in another call
  uint32_t trouble;         // a number of MoeTrouble
  uint32_t place;           // the expert, or the token
  uint32_t seen;
  uint32_t pad[15];
  MoeKnown known[2][kMoeCopies];  // of dispatch and combine
};
static_assert(sizeof(MoeState) == 128 + 2 * kMoeCopies * sizeof(MoeKnown), "layout");

enum MoeTrouble : uint32_t { kMoeNoExpert = 1, kMoeOverflow = 2 };

struct MoeArgs {
  WaitControl* control;
  MoeState* state;
  char* const* peers;      // by rank: memory that it opens, as it is reached here
  uint32_t* room;          // of this rank alone: words of blocks, where a target has no shared memory
  uint64_t notices;        // where parts of that memory begin, in bytes
  uint64_t acks;
  uint64_t counts;
  uint64_t headers;
  uint64_t weights;
  uint64_t rows;
  uint64_t partials;
  uint64_t stride;         // bytes between rows
  const char* input;       // dispatch: a row for each token; combine: rows of experts
  const float* scales;     // of the input; null: there are none
  const char* indices;     // experts of each token; -1: none
  const float* factors;    // weights of these
  char* output;            // dispatch: rows of experts; combine: a row for each token
  char* output_scales;
  int32_t* sources;        // of the rows of experts: the token
  int64_t* ranges;         // of each expert and rank: the first row << 32 | rows
  int32_t* received;       // rows of each expert
  int32_t* statistics;     // the same, added up; null: not wanted
  char* rows_of_tokens;    // records of a dispatch, for combine
  uint64_t behind;         // launches with a send phase since that of this receive phase
  uint32_t inverse;        // ceil(2^32 / local)
  uint32_t signature;
  uint32_t tokens;
  uint32_t most_tokens;
  uint32_t hidden;
  uint32_t top_k;
  uint32_t experts;
  uint32_t local;          // experts of a rank
  uint32_t most_local;     // for which memory was made
  uint32_t slots;          // rows that an expert has room for
  uint32_t row_scales;     // scales of a row
  uint32_t rank;
  uint32_t ranks;
  uint32_t kernel;         // for reports
  uint32_t flags;
  uint32_t headers_by;     // blocks that send headers, or weights
  uint32_t counters;       // blocks that count rows of experts
  uint32_t senders;        // blocks that send rows
  uint32_t collectors;     // blocks that receive
  uint32_t pad;
};
static_assert(sizeof(MoeArgs) == 272, "layout");

// Combine knows a dispatch by records: one for each rank, then one for each of its tokens. A record has the number of
// entries (or tokens), and entries {expert | k << 16, row, weight, 0} behind it.
constexpr uint32_t kMoeRecord = 16 * (kMoeMostTopK + 1);

// The channels of reports.
constexpr uint32_t kMoeRows = 0, kMoeNotices = 1, kMoeCounts = 2, kMoeAcks = 3, kMoeWeights = 4;
constexpr uint32_t kMoeApart = 0xfffffffeu;
constexpr uint32_t kMoeWrongExpert = 0xfffffffdu;
constexpr uint32_t kMoeFull = 0xfe000000u;  // with the expert

}  // namespace inference
}  // namespace mscclpp
#endif  // MSCCLPP_INFERENCE_MOE_ARGS_H_
