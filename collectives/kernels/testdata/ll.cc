// The packet kernels for few ranks in the checking emulator: two, three, four and
// eight ranks with grids of different shapes, calls one after another as in a stream,
// of sizes that end within a unit, from buffers of any alignment, some in place.
#define MSCCLPP_TYPE 4
#include <mscclpp/check.h>

#include "../move_family.h"
#include "../reduce_family.h"

using namespace mscclpp;
using namespace mscclpp::collectives;

namespace {

constexpr uint32_t kCalls = 5;
constexpr uint64_t kCounts[kCalls] = {1, 130, 0, 257, 16};
constexpr uint32_t kTimes = 7;  // kernels that cut messages get so many times the count
constexpr uint64_t kMost = 257 * kTimes * kLLRanks + 8, kSlot = 1536;

enum Shape { kAllReduceShape, kAllGatherShape, kReduceScatterShape, kAllToAllShape, kBroadcastShape, kReduceShape };
using Kernel = void (*)(const LLArgs*, const LaunchShape*);

struct Sequence {
  Kernel kernel;
  LLArgs calls[kCalls];
  GridBarrier* stream;
};

void sequence(const Sequence* s, const LaunchShape* shape) {
  for (const LLArgs& call : s->calls) {
    s->kernel(&call, shape);
    if (!grid_sync(s->stream, call.control)) return;
  }
}

int8_t value(uint32_t rank, uint32_t call, uint64_t i) { return static_cast<int8_t>(rank * 37 + call * 11 + i * 3 + 1); }

void collective(check::Job& job, Kernel kernel, Shape shape, uint32_t ranks, Check check, uint32_t op, bool pieces, bool one = false) {
  const uint64_t scale = pieces ? kTimes : 1;
  std::vector<char*> scratch;
  const uint64_t area = ranks * sizeof(Mailbox), half = (one ? 1 : ranks) * kSlot;
  for (uint32_t r = 0; r < ranks; ++r) scratch.push_back(job.alloc<char>(area + 2 * half));
  std::vector<Sequence> s(ranks);
  std::vector<std::vector<int8_t*>> in(ranks), out(ranks);
  for (uint32_t r = 0; r < ranks; ++r) {
    s[r].kernel = kernel;
    s[r].stream = job.alloc<GridBarrier>(1);
    State* state = job.alloc<State>(1);
    for (auto& area : state->epochs) area[0] = (kClearEvery - 3) * kEpoch;
    for (uint32_t k = 0; k < kCalls; ++k) {
      LLArgs& a = s[r].calls[k];
      memset(static_cast<void*>(&a), 0, sizeof(a));
      a.control = job.control(r);
      a.state = a.notes = state;
      a.rank = r;
      a.ranks = ranks;
      a.check = check;
      a.release = k % 3;
      a.area = area;
      a.half = half;
      a.slot = one ? 0 : kSlot;
      a.count = kCounts[k] * scale;
      a.op = op;
      a.element = 1;
      a.signature.count = a.count;
      a.signature.root = k % ranks;
      for (uint32_t p = 0; p < ranks; ++p) a.scratch[p] = reinterpret_cast<uint64_t>(scratch[p]);
      const uint32_t shift = k == 3 ? r % 3 : 0;  // ranks need not be aligned alike
      in[r].push_back(job.alloc<int8_t>(kMost) + shift);
      out[r].push_back(job.alloc<int8_t>(kMost) + shift);
      for (uint64_t i = 0; i < a.count * ranks; ++i) in[r][k][i] = value(r, k, i);
      a.input = in[r][k];
      a.output = out[r][k];
      if (k % 2 == 1) {
        const uint64_t own = r * a.count;
        if (shape == kAllGatherShape) {
          memcpy(out[r][k] + own, in[r][k], a.count);
          a.input = out[r][k] + own;
        } else {
          out[r][k] = in[r][k] + (shape == kReduceScatterShape ? own : 0);
          a.output = out[r][k];
        }
      }
    }
  }
  for (uint32_t r = 0; r < ranks; ++r) {
    if (pieces) {
      job.launch(r, 3, 4, sequence, s[r]);  // these want the same shape everywhere
    } else {
      job.launch(r, 1 + r % 3, r % 2 == 0 ? 4 : 3, sequence, s[r]);
    }
  }
  job.run();
  for (uint32_t r = 0; r < ranks; ++r) {
    for (uint32_t k = 0; k < kCalls; ++k) {
      const uint64_t n = kCounts[k] * scale;
      const bool wide = shape == kAllGatherShape || shape == kAllToAllShape;
      if (shape == kReduceShape && r != k % ranks) continue;
      for (uint64_t i = 0; i < (wide ? n * ranks : n); ++i) {
        uint32_t want = op == kProd ? 1 : 0;
        for (uint32_t p = 0; p < ranks; ++p) {
          const uint32_t x = static_cast<uint8_t>(value(p, k, shape == kReduceScatterShape ? r * n + i : i));
          want = op == kProd ? want * x : want + x;
        }
        if (shape == kAllGatherShape) want = value(i / n, k, i % n);
        if (shape == kAllToAllShape) want = value(i / n, k, r * n + i % n);
        if (shape == kBroadcastShape) want = value(k % ranks, k, i);
        job.expect(out[r][k][i] == static_cast<int8_t>(want), "rank %u of %u, call %u, element %llu: %d, expected %d", r, ranks, k,
                   (unsigned long long)i, out[r][k][i], static_cast<int8_t>(want));
      }
    }
  }
}

// The kernels over registered buffers, with as many lanes as fit no grid.
using WideKernel = void (*)(const Args*, const LaunchShape*);
struct WideSequence {
  WideKernel kernel;
  Args calls[3];
  GridBarrier* stream;
};
void wide_sequence(const WideSequence* s, const LaunchShape* shape) {
  for (const Args& call : s->calls) {
    s->kernel(&call, shape);
    if (!grid_sync(s->stream, call.common.control)) return;
  }
}

void registered(check::Job& job, WideKernel kernel, Shape shape, uint32_t ranks, bool may_be_in_place, uint64_t chunk = 64) {
  constexpr uint64_t kCount[3] = {16 * 61, 16, 1003}, kSize = 1024 * kLLRanks;
  constexpr uint32_t kPipeSlots = 4;
  const uint32_t lanes = 3;
  const uint64_t pipes = lanes * ranks * sizeof(Mailbox);
  std::vector<char*> scratch;
  for (uint32_t r = 0; r < ranks; ++r) scratch.push_back(job.alloc<char>(pipes + lanes * (ranks - 1) * kPipeSlots * chunk));
  std::vector<WideSequence> s(ranks);
  std::vector<std::vector<int8_t*>> in(ranks), out(ranks);
  for (uint32_t r = 0; r < ranks; ++r) {
    s[r].kernel = kernel;
    s[r].stream = job.alloc<GridBarrier>(1);
    State* state = job.alloc<State>(1);
    for (uint32_t k = 0; k < 3; ++k) {
      in[r].push_back(job.alloc<int8_t>(kSize));
      out[r].push_back(may_be_in_place && k == 2 && (shape == kAllReduceShape || shape == kReduceShape || shape == kAllToAllShape) ? in[r][k] : job.alloc<int8_t>(kSize));
      for (uint64_t i = 0; i < kCount[k] * ranks; ++i) in[r][k][i] = value(r, k, i);
    }
    for (uint32_t k = 0; k < 3; ++k) {
      Args& a = s[r].calls[k];
      memset(static_cast<void*>(&a), 0, sizeof(a));
      Common& c = a.common;
      c.control = job.control(r);
      c.state = c.notes = state;
      c.rank = r;
      c.ranks = ranks;
      c.lanes = lanes;
      c.pipes = pipes;
      c.pipe_slots = kPipeSlots;
      for (uint32_t p = 0; p < ranks; ++p) c.scratch[p] = reinterpret_cast<uint64_t>(scratch[p]);
      a.chunk = chunk;
      a.count = kCount[k];
      a.element = 1;
      a.root = k % ranks;
      a.input = in[r][k];
      a.output = out[r][k];
      a.input_offset = a.output_offset = 64 * r;  // own offsets for each rank
    }
  }
  for (uint32_t r = 0; r < ranks; ++r) {
    for (uint32_t k = 0; k < 3; ++k) {
      for (uint32_t p = 0; p < ranks; ++p) {
        s[r].calls[k].inputs[p] = reinterpret_cast<uint64_t>(in[p][k]) - 64 * p;
        s[r].calls[k].outputs[p] = reinterpret_cast<uint64_t>(out[p][k]) - 64 * p;
      }
    }
    job.launch(r, 1 + r % 3, r % 2 == 0 ? 4 : 3, wide_sequence, s[r]);
  }
  job.run();
  for (uint32_t r = 0; r < ranks; ++r) {
    for (uint32_t k = 0; k < 3; ++k) {
      const uint64_t n = kCount[k];
      const bool wide = shape == kAllGatherShape || shape == kAllToAllShape;
      if (shape == kReduceShape && r != k % ranks) continue;
      for (uint64_t i = 0; i < (wide ? n * ranks : n); ++i) {
        uint32_t want = 0;
        for (uint32_t p = 0; p < ranks; ++p) want += static_cast<uint8_t>(value(p, k, shape == kReduceScatterShape ? r * n + i : i));
        if (shape == kAllGatherShape) want = value(i / n, k, i % n);
        if (shape == kAllToAllShape) want = value(i / n, k, r * n + i % n);
        if (shape == kBroadcastShape) want = value(k % ranks, k, i);
        job.expect(out[r][k][i] == static_cast<int8_t>(want), "rank %u of %u, call %u, element %llu: %d, expected %d", r, ranks, k,
                   (unsigned long long)i, out[r][k][i], static_cast<int8_t>(want));
      }
    }
  }
}

// An all-reduce by copies, with threads in place of the copy engine and one stream in place
// of three, so the wait for a slot comes right before its push: three calls of four pieces
// each. How the host enqueues it is tested on emulated GPUs.
struct StepJob {
  StepArgs a;
  int8_t* in[3];
  int8_t* outs[3][kLLRanks];
  char* pieces[kLLRanks];  // of each rank: two slots for every other
};
constexpr uint32_t kPieces = 4, kPiece = 48, kPieceSlot = 64;

void enqueued(const StepJob* j, const LaunchShape*) {
  StepArgs a = j->a;
  const uint32_t n = a.ranks, tid = thread_id(), threads = block_dim();
  const auto signal = [&](uint32_t steps, uint32_t wait, uint32_t lag) {
    a.signal = steps;
    a.wait = wait;
    a.lag = lag;
    step_signal(a);
    block_sync();
  };
  for (uint32_t k = 0; k < 3; ++k) {
    signal(1u << kStepOpen, 1u << kStepOpen | 1u << kStepTaken, 2);
    for (uint32_t p = 0; p < kPieces; ++p) {
      const uint64_t half = (p & 1) * n * kPieceSlot, own = (a.rank * kPieces + p) * kPiece;
      for (uint32_t to = 0; to < n; ++to) {
        if (to != a.rank) mscclpp::copy(j->pieces[to] + half + a.rank * kPieceSlot, j->in[k] + (to * kPieces + p) * kPiece, kPiece, tid, threads);
      }
      block_sync();
      signal(1u << kStepPushed, p + 1 < kPieces ? 1u << kStepTaken : 0, 2);
      signal(0, 1u << kStepPushed, 0);
      a.input = j->in[k] + own;
      a.output = j->outs[k][a.rank] + own;
      a.inputs = reinterpret_cast<uint64_t>(j->pieces[a.rank] + half);
      a.stride = kPieceSlot;
      a.count = kPiece - k;  // 48 bytes at once, or byte by byte
      step_sum<int8_t>(a);
      block_sync();
      signal(1u << kStepTaken, 0, 0);
      for (uint32_t to = 0; to < n; ++to) {
        if (to != a.rank) mscclpp::copy(j->outs[k][to] + own, j->outs[k][a.rank] + own, kPiece, tid, threads);
      }
      block_sync();
    }
    signal(1u << kStepDone, 1u << kStepDone, 0);
  }
}

void steps(check::Job& job, uint32_t n) {
  std::vector<StepJob> s(n);
  const uint64_t all = n * kPieces * kPiece;
  for (uint32_t r = 0; r < n; ++r) {
    memset(static_cast<void*>(&s[r]), 0, sizeof(s[r]));
    StepArgs& a = s[r].a;
    a.control = job.control(r);
    a.state = a.notes = job.alloc<State>(1);
    a.rank = r;
    a.ranks = n;
    a.op = kSum;
    a.check = kCheckPublish;
    for (uint32_t k = 0; k < 3; ++k) {
      s[r].in[k] = job.alloc<int8_t>(all);
      for (uint64_t i = 0; i < all; ++i) s[r].in[k][i] = value(r, k, i);
    }
  }
  for (uint32_t r = 0; r < n; ++r) {
    char* scratch = job.alloc<char>(n * sizeof(Mailbox));
    char* pieces = job.alloc<char>(2 * n * kPieceSlot);
    for (uint32_t p = 0; p < n; ++p) {
      s[p].a.scratch[r] = reinterpret_cast<uint64_t>(scratch);
      s[p].pieces[r] = pieces;
    }
    for (uint32_t k = 0; k < 3; ++k) {
      int8_t* out = job.alloc<int8_t>(all);
      for (uint32_t p = 0; p < n; ++p) s[p].outs[k][r] = out;
    }
  }
  for (uint32_t r = 0; r < n; ++r) job.launch(r, 1, r + 1, enqueued, s[r]);
  job.run();
  for (uint32_t r = 0; r < n; ++r) {
    for (uint32_t k = 0; k < 3; ++k) {
      for (uint64_t i = 0; i < all; ++i) {
        if (i % kPiece >= kPiece - k) continue;
        int8_t want = 0;
        for (uint32_t p = 0; p < n; ++p) want = static_cast<int8_t>(want + value(p, k, i));
        job.expect(s[0].outs[k][r][i] == want, "rank %u of %u, call %u, element %llu", r, n, k, (unsigned long long)i);
      }
    }
  }
}

// Outputs that lie elsewhere on a peer are noted, and the launch ends with the job.
void elsewhere(check::Job& job) {
  StepArgs a[2];
  for (uint32_t r = 0; r < 2; ++r) {
    memset(static_cast<void*>(&a[r]), 0, sizeof(a[r]));
    a[r].control = job.control(r);
    a[r].state = job.alloc<State>(1);
    a[r].notes = job.alloc<State>(1);
    a[r].rank = r;
    a[r].ranks = 2;
    a[r].signal = a[r].wait = 1u << kStepOpen;
    a[r].output_offset = r;
  }
  for (uint32_t r = 0; r < 2; ++r) a[0].scratch[r] = a[1].scratch[r] = reinterpret_cast<uint64_t>(job.alloc<char>(2 * sizeof(Mailbox)));
  for (uint32_t r = 0; r < 2; ++r) job.launch(r, 1, 2, mscclpp_steps_signal, a[r]);
  for (uint32_t r = 0; r < 2; ++r) {
    job.beside(r, [&a, r] {
      if (load_relaxed(&a[r].notes->elsewhere) == 0 || load_relaxed(&a[r].control->abort) != 0) return false;
      store_relaxed(&a[r].control->abort, 1u);  // as the host does
      return true;
    });
  }
  job.run();
  for (uint32_t r = 0; r < 2; ++r) job.expect(a[r].notes->elsewhere == 2 - r, "rank %u: noted %u", r, a[r].notes->elsewhere);
}

// Ranks that launch different things find out, and move nothing.
void mismatch(check::Job& job) {
  const uint64_t area = 2 * sizeof(Mailbox), half = 2 * kSlot;
  char* scratch[2] = {job.alloc<char>(area + 2 * half), job.alloc<char>(area + 2 * half)};
  State* state[2];
  int8_t* out[2];
  for (uint32_t r = 0; r < 2; ++r) {
    LLArgs a;
    memset(static_cast<void*>(&a), 0, sizeof(a));
    state[r] = job.alloc<State>(1);
    a.control = job.control(r);
    a.state = state[r];
    a.notes = job.alloc<State>(1);
    a.rank = r;
    a.ranks = 2;
    a.check = kCheckCompare;
    a.area = area;
    a.half = half;
    a.slot = kSlot;
    a.count = 100;
    a.element = 1;
    a.signature.count = 100;
    a.signature.type = r;  // here they differ
    a.scratch[0] = reinterpret_cast<uint64_t>(scratch[0]);
    a.scratch[1] = reinterpret_cast<uint64_t>(scratch[1]);
    a.input = job.alloc<int8_t>(100);
    a.output = out[r] = job.alloc<int8_t>(100);
    memset(const_cast<void*>(a.input), 1, 100);
    job.launch(r, 2, 3, mscclpp_allreduce_oneshot_ll8, a);
    state[r] = a.notes;
  }
  job.run();
  for (uint32_t r = 0; r < 2; ++r) {
    job.expect(state[r]->mismatch == kMismatchSignature, "rank %u: mismatch %u", r, state[r]->mismatch);
    job.expect(out[r][0] == 0, "rank %u: data moved", r);
  }
}

// The peers to which a block sends, in their order.
std::vector<uint32_t> sent_to[8];
struct Recorder : WordCarrier<1> {
  static void send(char* slot, uint32_t, const Data&, uint32_t) { sent_to[block_id()].push_back(static_cast<uint32_t>(reinterpret_cast<uint64_t>(slot) >> 32)); }
};
template <uint32_t N>
void sends(const LLArgs* a, const LaunchShape*) {
  LLLaunch<Recorder, N>(*a, 1).send_all(0, Recorder::Data{});
}

// Blocks begin with different peers, and send to each once.
void turns(check::Job& job) {
  constexpr uint32_t kBlocks = 8;
  for (uint32_t ranks : {2u, 3u, 4u, 8u}) {
    for (uint32_t known = 0; known < 2; ++known) {
      const Kernel kernel = known == 0 || ranks == 3 ? sends<0> : ranks == 2 ? sends<2> : ranks == 4 ? sends<4> : sends<8>;
      LLArgs a;
      memset(static_cast<void*>(&a), 0, sizeof(a));
      a.rank = ranks / 2;
      a.ranks = ranks;
      for (uint64_t p = 0; p < ranks; ++p) a.scratch[p] = p << 32;
      for (auto& to : sent_to) to.clear();
      job.launch(0, kBlocks, 1, kernel, a);
      job.run();
      for (uint32_t b = 0; b < kBlocks; ++b) {
        const std::vector<uint32_t>& to = sent_to[b];
        uint32_t all = 0;
        for (uint32_t p : to) all |= 1u << p;
        job.expect(to.size() == ranks - 1 && all == (((1u << ranks) - 1) & ~(1u << a.rank)), "%u ranks, block %u: %zu peers, %x", ranks, b, to.size(), all);
        job.expect(!to.empty() && to[0] == (a.rank + 1 + b % (ranks - 1)) % ranks, "%u ranks, block %u begins with %u", ranks, b, to.empty() ? 99 : to[0]);
      }
    }
  }
}

// Where all peers have one memory, what a block sent last stays there.
void turns_of_packets(check::Job& job) {
  constexpr uint32_t kBlocks = 4, kRank = 1, kPeers = 4, kHalf = 4096, kBytes = 8 * kBlocks;  // a unit for each block
  Args a;
  memset(static_cast<void*>(&a), 0, sizeof(a));
  Common& c = a.common;
  c.control = job.control(0);
  c.state = c.notes = job.alloc<State>(1);
  c.rank = kRank;
  c.ranks = kPeers;
  c.check = kCheckNever;
  c.packet_half = kHalf;
  char* const own = job.alloc<char>(2 * kHalf);
  char* const theirs = job.alloc<char>(2 * kHalf);
  for (uint32_t p = 0; p < kPeers; ++p) c.scratch[p] = reinterpret_cast<uint64_t>(p == kRank ? own : theirs);
  for (uint32_t i = 0; i < 2 * kHalf / sizeof(LL8Packet); ++i) writePacket(reinterpret_cast<LL8Packet*>(own) + i, 0u, flag_of(1));  // all has come
  char* const in = job.alloc<char>(kPeers * kBytes);
  for (uint32_t i = 0; i < kPeers * kBytes; ++i) in[i] = static_cast<char>(i / kBytes);
  a.input = in;
  a.output = job.alloc<char>(kPeers * kBytes);
  a.count = kBytes;
  a.element = 1;
  job.launch(0, kBlocks, 1, mscclpp_alltoall_ll8, a);
  job.run();
  for (uint32_t b = 0; b < kBlocks; ++b) {
    const uint32_t last = static_cast<uint8_t>(theirs[kHalf + kRank * (kHalf / kPeers) + 16 * b]), want = (kRank + 1 + (b + kPeers - 2) % (kPeers - 1)) % kPeers;
    job.expect(last == want, "block %u sends to %u last, expected %u", b, last, want);
  }
}

template <Shape kShape>
void all(check::Job& job, Kernel kernel, bool pieces) {
  collective(job, kernel, kShape, 4, kCheckCompare, kSum, pieces);
  collective(job, kernel, kShape, 3, kCheckPublish, kSum, pieces);
  for (bool one : {false, true}) collective(job, kernel, kShape, 2, kCheckNever, kSum, pieces, one);
  collective(job, kernel, kShape, 8, kCheckNever, kSum, pieces);
  if (kShape == kAllReduceShape) collective(job, kernel, kShape, 4, kCheckNever, kProd, pieces);
}

}  // namespace

#define LL(name, shape) \
  { #name, [](check::Job& job) { all<shape>(job, mscclpp_##name, false); } }
#define STREAM(name, shape) \
  { #name, [](check::Job& job) { all<shape>(job, mscclpp_##name##_stream_ll128, true); } }
#define LINES(name, shape) \
  { #name "_ll128", [](check::Job& job) { all<shape>(job, mscclpp_##name##_ll128, true); } }
#define WIDE(name, shape, in_place)                                                                             \
  {                                                                                                             \
    #name, [](check::Job& job) {                                                                                \
      for (uint32_t ranks : {2u, 3u, 4u, 8u}) registered(job, mscclpp_##name, shape, ranks, in_place);          \
    }                                                                                                           \
  }
// Chunks have two halves.
#define HALVES(name, shape)                                                                                      \
  {                                                                                                             \
    #name, [](check::Job& job) {                                                                                \
      for (uint32_t ranks : {2u, 3u, 4u, 8u}) registered(job, mscclpp_##name, shape, ranks, true, 128);         \
    }                                                                                                           \
  }
#define PAIR(name, shape) \
  { #name, [](check::Job& job) { registered(job, mscclpp_##name, shape, 2, true); } }

MSCCLPP_CHECK_MAIN(LL(allreduce_oneshot_ll8, kAllReduceShape), LL(allreduce_oneshot_ll128, kAllReduceShape),
                   LL(allreduce_twoshot_ll128, kAllReduceShape), LL(reducescatter_direct_ll8, kReduceScatterShape),
                   LL(reducescatter_direct_ll128, kReduceScatterShape), LL(reduce_direct_ll8, kReduceShape),
                   LL(reduce_direct_ll128, kReduceShape), LL(reduce_twoshot_ll128, kReduceShape), LL(allgather_direct_ll8, kAllGatherShape),
                   LL(allgather_direct_ll128, kAllGatherShape), LL(alltoall_direct_ll8, kAllToAllShape),
                   LL(alltoall_direct_ll128, kAllToAllShape), LL(broadcast_direct_ll8, kBroadcastShape),
                   LL(broadcast_direct_ll128, kBroadcastShape), STREAM(allreduce, kAllReduceShape),
                   STREAM(reducescatter, kReduceScatterShape), STREAM(reduce, kReduceShape),
                   STREAM(allgather, kAllGatherShape), STREAM(alltoall, kAllToAllShape),
                   STREAM(broadcast, kBroadcastShape), LINES(reduce_chain, kReduceShape), LINES(broadcast_chain, kBroadcastShape),
                   WIDE(reduce_chain, kReduceShape, true), WIDE(broadcast_chain, kBroadcastShape, false), WIDE(allreduce_zerocopy, kAllReduceShape, true),
                   WIDE(reducescatter_zerocopy, kReduceScatterShape, false), WIDE(reduce_zerocopy, kReduceShape, false),
                   WIDE(reduce_shares, kReduceShape, true), WIDE(allgather_shares, kAllGatherShape, false),
                   WIDE(alltoall_shares, kAllToAllShape, true), WIDE(broadcast_shares, kBroadcastShape, false),
                   HALVES(allreduce_shares, kAllReduceShape), WIDE(reducescatter_shares, kReduceScatterShape, false),
                   PAIR(reduce_fetch, kReduceShape), PAIR(broadcast_fetch, kBroadcastShape),
                   WIDE(allgather_push, kAllGatherShape, false), WIDE(alltoall_push, kAllToAllShape, false),
                   WIDE(broadcast_push, kBroadcastShape, false), {"mismatch", mismatch}, {"turns", turns}, {"turns of packets", turns_of_packets},
                   {"steps", [](check::Job& job) { steps(job, 3); steps(job, 4); }}, {"elsewhere", elsewhere})
