// The kernels as a GPU runs them, in the checking emulator: three ranks with grids
// of different shapes, two lanes, calls one after another as in a stream.
#define MSCCLPP_TYPE 6
#include <mscclpp/check.h>

#include "../move_family.h"
#include "../reduce_family.h"

using namespace mscclpp;
using namespace mscclpp::collectives;

namespace {

constexpr uint32_t kRanks = 3, kCalls = 5;
constexpr uint64_t kCounts[kCalls] = {1, 37, 2, 150, 23};
constexpr uint64_t kMost = 150 * kRanks;

enum Shape { kAllReduceShape, kAllGatherShape, kReduceScatterShape, kAllToAllShape, kBroadcastShape, kReduceShape };

template <class A>
struct Sequence {
  using Kernel = void (*)(const A*, const LaunchShape*);
  Kernel kernel;
  A calls[kCalls];
  GridBarrier* stream;
};

// A stream: the next call starts when all blocks of the one before are done.
template <class A>
void sequence(const Sequence<A>* s, const LaunchShape* shape) {
  for (const A& call : s->calls) {
    s->kernel(&call, shape);
    if (!grid_sync(s->stream, call.common.control)) return;
  }
}

constexpr uint64_t kPipeSlot = 64 + 256;

Common common(check::Job& job, uint32_t rank, const std::vector<char*>& scratch, uint32_t lanes, uint64_t half, uint64_t slot = kPipeSlot) {
  Common c;
  memset(static_cast<void*>(&c), 0, sizeof(c));
  c.control = job.control(rank);
  c.state = job.alloc<State>(1);
  c.notes = c.state;
  c.rank = rank;
  c.ranks = kRanks;
  c.lanes = lanes;
  c.check = kCheckCompare;
  c.packets = lanes * kRanks * sizeof(Mailbox);
  c.packet_half = half;
  c.stages = c.packets + 2 * half;
  c.stage_slot = 256;
  c.stage_slots = 4;
  c.pipes = c.stages + lanes * (4 * 256 + 2 * smaller(slot, kOwnPipeSlot));
  c.pipe_slot = slot;
  c.pipe_slots = 2;
  for (uint32_t r = 0; r < kRanks; ++r) c.scratch[r] = reinterpret_cast<uint64_t>(scratch[r]);
  return c;
}

std::vector<char*> scratches(check::Job& job, uint32_t lanes, uint64_t half, uint64_t slot = kPipeSlot) {
  std::vector<char*> all;
  const uint64_t bytes = lanes * kRanks * sizeof(Mailbox) + 2 * half + lanes * (4 * 256 + 2 * smaller(slot, kOwnPipeSlot) + (kRanks - 1) * 2 * slot);
  for (uint32_t r = 0; r < kRanks; ++r) all.push_back(job.alloc<char>(bytes));
  return all;
}

int32_t value(uint32_t rank, uint32_t call, uint64_t i) { return int32_t(rank * 1000003 + call * 10007 + i * 17 + 1); }

const uint32_t kGrids[kRanks] = {1, 2, 3}, kBlocks[kRanks] = {1, 4, 3};

void collective(check::Job& job, void (*kernel)(const Args*, const LaunchShape*), Shape shape, bool may_be_in_place) {
  const uint32_t lanes = 2;
  const uint64_t half = 3 * 512;
  const auto scratch = scratches(job, lanes, half);
  const uint64_t stride = 1024, flag = stride - 64;
  char* windows = job.alloc<char>(stride * kRanks);
  std::vector<Sequence<Args>> s(kRanks);
  std::vector<std::vector<int32_t*>> in(kRanks), out(kRanks);
  for (uint32_t r = 0; r < kRanks; ++r) {
    s[r].kernel = kernel;
    s[r].stream = job.alloc<GridBarrier>(1);
    const Common c = common(job, r, scratch, lanes, half);
    for (auto& area : c.state->epochs) area[0] = (kClearEvery - 3) * kEpoch;  // areas are cleared during the calls
    const SwitchChannelHandle window = job.window(r, kRanks, windows, stride, flag);
    for (uint32_t k = 0; k < kCalls; ++k) {
      Args& a = s[r].calls[k];
      memset(static_cast<void*>(&a), 0, sizeof(a));
      a.common = c;
      a.common.signature.count = kCounts[k];
      in[r].push_back(job.alloc<int32_t>(kMost));
      out[r].push_back(job.alloc<int32_t>(kMost));
      for (uint64_t i = 0; i < kMost; ++i) in[r][k][i] = value(r, k, i);
      a.input = in[r][k];
      a.output = out[r][k];
      if (may_be_in_place && k % 2 == 1) {
        const uint64_t own = r * kCounts[k];
        if (shape == kAllGatherShape) {
          memcpy(out[r][k] + own, in[r][k], kCounts[k] * 4);
          a.input = out[r][k] + own;
        } else {
          out[r][k] = in[r][k] + (shape == kReduceScatterShape ? own : 0);
          a.output = out[r][k];
        }
      }
      a.count = kCounts[k];
      a.chunk = 256;
      a.element = 4;
      a.root = k % kRanks;
      a.window = window;
      a.window.bytes = flag;
    }
  }
  for (uint32_t r = 0; r < kRanks; ++r) {
    for (uint32_t k = 0; k < kCalls; ++k) {
      for (uint32_t p = 0; p < kRanks; ++p) {
        s[r].calls[k].inputs[p] = reinterpret_cast<uint64_t>(s[p].calls[k].input);
        s[r].calls[k].outputs[p] = reinterpret_cast<uint64_t>(s[p].calls[k].output);
      }
    }
    job.launch(r, kGrids[r], kBlocks[r], sequence<Args>, s[r]);
  }
  job.run();
  for (uint32_t r = 0; r < kRanks; ++r) {
    for (uint32_t k = 0; k < kCalls; ++k) {
      const uint64_t n = kCounts[k];
      const bool wide = shape == kAllGatherShape || shape == kAllToAllShape;
      if (shape == kReduceShape && r != k % kRanks) continue;
      for (uint64_t i = 0; i < (wide ? n * kRanks : n); ++i) {
        int32_t want = 0;
        for (uint32_t p = 0; p < kRanks; ++p) want += value(p, k, shape == kReduceScatterShape ? r * n + i : i);
        if (shape == kAllGatherShape) want = value(i / n, k, i % n);
        if (shape == kAllToAllShape) want = value(i / n, k, r * n + i % n);
        if (shape == kBroadcastShape) want = value(k % kRanks, k, i);
        job.expect(out[r][k][i] == want, "rank %u, call %u, element %llu: %d, expected %d", r, k, (unsigned long long)i, out[r][k][i], want);
      }
    }
  }
}

// Everybody sends to everybody, itself included, more than the pipes hold.
void messages_of(check::Job& job, uint64_t slot, uint64_t times, uint64_t most) {
  const uint32_t lanes = 2;
  const auto scratch = scratches(job, lanes, 1536, slot);
  const auto size = [times, most](uint32_t k) { return k == 2 ? 0 : times * kCounts[k] % most; };
  std::vector<Sequence<TransferArgs>> s(kRanks);
  int32_t* in[kRanks][kCalls][kRanks];
  for (uint32_t r = 0; r < kRanks; ++r) {
    s[r].kernel = mscclpp_transfers_chunk;
    s[r].stream = job.alloc<GridBarrier>(1);
    const Common c = common(job, r, scratch, lanes, 1536, slot);
    for (uint32_t k = 0; k < kCalls; ++k) {
      TransferArgs& a = s[r].calls[k];
      memset(static_cast<void*>(&a), 0, sizeof(a));
      a.common = c;
      for (uint32_t p = 0; p < kRanks; ++p) {
        int32_t* data = job.alloc<int32_t>(most);
        const uint64_t n = size(k);
        for (uint64_t i = 0; i < n; ++i) data[i] = value(r * kRanks + p, k, i);
        a.list[a.transfers++] = Transfer{data, n * 4, p, 0};
      }
      for (uint32_t p = 0; p < kRanks; ++p) {
        in[r][k][p] = job.alloc<int32_t>(most);
        const uint64_t n = size(k);
        a.list[a.transfers++] = Transfer{in[r][k][p], n * 4, p, 1};
      }
    }
  }
  for (uint32_t r = 0; r < kRanks; ++r) job.launch(r, kGrids[r], kBlocks[r], sequence<TransferArgs>, s[r]);
  job.run();
  for (uint32_t r = 0; r < kRanks; ++r) {
    for (uint32_t k = 0; k < kCalls; ++k) {
      for (uint32_t p = 0; p < kRanks; ++p) {
        const uint64_t n = size(k);
        for (uint64_t i = 0; i < n; ++i) job.expect(in[r][k][p][i] == value(p * kRanks + r, k, i), "rank %u, call %u, from %u, element %llu", r, k, p, (unsigned long long)i);
      }
    }
  }
}
void messages(check::Job& job) { messages_of(job, kPipeSlot, 7, 1000); }

// Slots of pipes that are longer than those in which a rank sends itself something.
void long_messages(check::Job& job) { messages_of(job, 2 * kOwnPipeSlot, 200, 8000); }

// A group that the arguments of one launch have no room for: all but the last call put
// parts of its list into memory.
void many_messages(check::Job& job) {
  constexpr uint32_t kEach = 60, kAll = 2 * kRanks * kEach, kParts = (kAll + kMaxTransfers - 1) / kMaxTransfers;
  static_assert(kParts + 1 <= kCalls, "one call performs");
  const uint32_t lanes = 2;
  const auto scratch = scratches(job, lanes, 1536);
  std::vector<Sequence<TransferArgs>> s(kRanks);
  std::vector<int32_t*> in[kRanks][kRanks];
  const auto size = [](uint32_t i) { return uint64_t(i % 7 == 3 ? 0 : i % 9 == 5 ? 400 : i % 5 + 1); };
  for (uint32_t r = 0; r < kRanks; ++r) {
    s[r].kernel = mscclpp_transfers_chunk;
    s[r].stream = job.alloc<GridBarrier>(1);
    std::vector<Transfer> list;
    for (uint32_t receive = 0; receive < 2; ++receive) {
      for (uint32_t p = 0; p < kRanks; ++p) {
        for (uint32_t i = 0; i < kEach; ++i) {
          int32_t* data = job.alloc<int32_t>(400);
          if (receive) in[r][p].push_back(data);
          for (uint64_t e = 0; e < size(i) && !receive; ++e) data[e] = value(r * kRanks + p, i, e);
          list.push_back(Transfer{data, size(i) * 4, p, receive});
        }
      }
    }
    memset(static_cast<void*>(s[r].calls), 0, sizeof(s[r].calls));
    const Common c = common(job, r, scratch, lanes, 1536);
    uint64_t* memory = job.alloc<uint64_t>(kAll * kTransferWords);
    for (uint32_t k = 0; k < kCalls; ++k) {
      TransferArgs& a = s[r].calls[k];
      a.common = c;
      if (k > kParts) continue;  // an empty group
      a.transfers = kAll;
      a.memory = memory;
      if (k == kParts) continue;
      a.first = k * kMaxTransfers;
      for (uint32_t t = k * kMaxTransfers; t < kAll && a.listed < kMaxTransfers; ++t) a.list[a.listed++] = list[t];
    }
  }
  for (uint32_t r = 0; r < kRanks; ++r) job.launch(r, kGrids[r], kBlocks[r], sequence<TransferArgs>, s[r]);
  job.run();
  for (uint32_t r = 0; r < kRanks; ++r) {
    for (uint32_t p = 0; p < kRanks; ++p) {
      for (uint32_t i = 0; i < kEach; ++i) {
        for (uint64_t e = 0; e < size(i); ++e) {
          job.expect(in[r][p][i][e] == value(p * kRanks + r, i, e), "rank %u, message %u from %u, element %llu", r, i, p, (unsigned long long)e);
        }
      }
    }
  }
}

}  // namespace

#define COLLECTIVE(name, shape, in_place) \
  { #name, [](check::Job& job) { collective(job, mscclpp_##name, shape, in_place); } }

MSCCLPP_CHECK_MAIN(COLLECTIVE(allreduce_allpair_ll8, kAllReduceShape, true), COLLECTIVE(allreduce_allpair_ll16, kAllReduceShape, true),
                   COLLECTIVE(allreduce_twophase_ll8, kAllReduceShape, true), COLLECTIVE(allreduce_twophase_ll16, kAllReduceShape, true),
                   COLLECTIVE(allreduce_allpair_chunk, kAllReduceShape, true), COLLECTIVE(allreduce_twophase_chunk, kAllReduceShape, true),
                   COLLECTIVE(allreduce_ring, kAllReduceShape, true), COLLECTIVE(allreduce_zerocopy, kAllReduceShape, true),
                   COLLECTIVE(allreduce_switch, kAllReduceShape, true), COLLECTIVE(allgather_ll8, kAllGatherShape, true),
                   COLLECTIVE(allgather_ll16, kAllGatherShape, true), COLLECTIVE(allgather_chunk, kAllGatherShape, true),
                   COLLECTIVE(allgather_ring, kAllGatherShape, true), COLLECTIVE(allgather_zerocopy, kAllGatherShape, true),
                   COLLECTIVE(reducescatter_ll8, kReduceScatterShape, true), COLLECTIVE(reducescatter_ll16, kReduceScatterShape, true),
                   COLLECTIVE(reducescatter_chunk, kReduceScatterShape, true), COLLECTIVE(reducescatter_zerocopy, kReduceScatterShape, true),
                   COLLECTIVE(alltoall_ll8, kAllToAllShape, true), COLLECTIVE(alltoall_ll16, kAllToAllShape, true),
                   COLLECTIVE(alltoall_chunk, kAllToAllShape, true), COLLECTIVE(alltoall_zerocopy, kAllToAllShape, false),
                   COLLECTIVE(broadcast_chunk, kBroadcastShape, true), COLLECTIVE(broadcast_zerocopy, kBroadcastShape, true),
                   COLLECTIVE(reduce_chunk, kReduceShape, true), COLLECTIVE(reduce_zerocopy, kReduceShape, true), {"messages", messages}, {"long_messages", long_messages},
                   {"many_messages", many_messages})
