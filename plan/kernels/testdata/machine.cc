// The kernel of execution plans in the checking emulator, as GPUs run it: blocks of several threads, in turns that a seed
// decides. The plans, as the executor has decoded them, are in the file that PLAN_TABLES names: see
// plan/exec/machine_test.go. Each is launched several times, with launches of one rank behind each other as on a stream.
#define MSCCLPP_TYPE 6
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MSCCLPP_PLAN_STRONG 1
#endif
#endif
#include <mscclpp/check.h>

#include <stdio.h>
#include <stdlib.h>

#include "../plan_family.h"

using namespace mscclpp;
using namespace mscclpp::plans;

namespace {

constexpr uint32_t kLaunches = 3;

struct Reader {
  FILE* file;
  void read(void* to, size_t bytes) {
    if (bytes != 0 && fread(to, bytes, 1, file) != 1) {
      fprintf(stderr, "PLAN_TABLES ends early\n");
      exit(2);
    }
  }
  uint64_t number() {
    uint64_t n;
    read(&n, sizeof(n));
    return n;
  }
  template <class T>
  T* table(check::Job& job, uint64_t& n) {
    n = number();
    T* list = job.alloc<T>(n + 1);
    read(list, n * sizeof(T));
    return list;
  }
};

struct Sequence {
  PlanArgs args;
  GridBarrier* stream;
  bool chunks;  // the kernel for chunks executes it
};

void sequence(const Sequence* s, const LaunchShape* shape) {
  for (uint32_t k = 0; k < kLaunches; ++k) {
    (s->chunks ? mscclpp_plan_execute_chunks : mscclpp_plan_execute)(&s->args, shape);
    if (!grid_sync(s->stream, s->args.control)) return;
  }
}

int32_t value(uint32_t rank, uint64_t i) { return static_cast<int32_t>(rank * 1000003 + i * 7 + 1); }

int32_t combined(ReduceOp op, int32_t a, int32_t b) {
  switch (op) {
    case kProd: return static_cast<int32_t>(static_cast<uint32_t>(a) * static_cast<uint32_t>(b));
    case kMin: return a < b ? a : b;
    case kMax: return a < b ? b : a;
    default: return a + b;
  }
}

enum Result : uint64_t { kReduced = 0, kExchange = 1, kNothing = 2, kGathered = 3 };

void plan(check::Job& job, Reader& r) {
  const uint64_t ranks = r.number(), chunk = r.number(), scratch_chunk = r.number(), half = r.number(), scratch = r.number(), packet = r.number(),
                 result = r.number(), alignment = r.number(), direct = r.number();
  const ReduceOp op = static_cast<ReduceOp>(r.number());
  const bool chunks = r.number() != 0;
  struct Rank {
    Sequence s;
    char* memory;
    uint64_t in, out, in_bytes, out_bytes, channels;
    uint64_t* peers;  // and the channel at the other end, or ~0
    Operand* operands;
    uint64_t operand_count;
  };
  std::vector<Rank> all(ranks);
  for (uint64_t k = 0; k < ranks; ++k) {
    Rank& x = all[k];
    PlanArgs& a = x.s.args;
    memset(static_cast<void*>(&x.s), 0, sizeof(x.s));
    x.in = r.number(), x.out = r.number();
    x.memory = job.alloc<char>(r.number());
    x.in_bytes = r.number(), x.out_bytes = r.number();
    uint64_t blocks, n;
    a.blocks = r.table<Block>(job, blocks);
    a.ops = r.table<Op>(job, n);
    x.operands = r.table<Operand>(job, n);
    x.operand_count = n;
    a.operands = x.operands;
    a.ids = r.table<uint32_t>(job, n);
    a.semaphores = r.table<uint32_t>(job, n);
    x.peers = r.table<uint64_t>(job, n);
    x.channels = n / 2;
    a.meetings = job.alloc<Meeting>(r.number() + 1);
    a.state = job.alloc<State>(1);
    a.cursors = job.alloc<Cursor>(blocks);
    a.control = job.control(k);
    a.notice = reinterpret_cast<const Notice*>(x.memory);
    a.input = x.memory + x.in;
    a.output = x.memory + x.out;
    a.chunk = chunk, a.scratch_chunk = scratch_chunk, a.half = half, a.signature = 1;
    a.block_count = static_cast<uint32_t>(blocks);
    a.alignment = static_cast<uint32_t>(alignment);
    a.rank = static_cast<uint32_t>(k), a.ranks = static_cast<uint32_t>(ranks);
    a.packet = static_cast<uint32_t>(packet), a.op = op;
    x.s.stream = job.alloc<GridBarrier>(1);
    x.s.chunks = chunks;
    for (uint64_t i = 0; i < x.in_bytes / 4; ++i) reinterpret_cast<int32_t*>(a.input)[i] = value(k, i);
  }
  const auto counter = [&](uint64_t rank, uint64_t channel) {
    return reinterpret_cast<uint64_t*>(all[rank].memory + ranks * sizeof(Notice) + channel * 64);
  };
  for (uint64_t k = 0; k < ranks; ++k) {
    PlanArgs& a = all[k].s.args;
    Slot* slots = job.alloc<Slot>(3 * ranks);
    Notice** peers = job.alloc<Notice*>(ranks);
    for (uint64_t p = 0; p < ranks; ++p) {
      const uint64_t offsets[3] = {all[p].in, all[p].out, scratch};
      for (uint32_t i = 0; i < 3; ++i) slots[3 * p + i] = Slot{reinterpret_cast<uint64_t>(all[p].memory) + offsets[i], offsets[i]};
      peers[p] = p == k ? nullptr : reinterpret_cast<Notice*>(all[p].memory) + k;
    }
    SemaphoreHandle* memory = job.alloc<SemaphoreHandle>(all[k].channels + 1);
    for (uint64_t i = 0; i < all[k].channels; ++i) {
      const uint64_t peer = all[k].peers[2 * i], other = all[k].peers[2 * i + 1];
      memory[i] = SemaphoreHandle{counter(k, i), job.alloc<uint64_t>(1), other == ~0ull ? job.alloc<uint64_t>(1) : counter(peer, other), a.control,
                                  static_cast<uint32_t>(peer), static_cast<uint32_t>(i)};
    }
    for (uint64_t i = 0; i < all[k].operand_count; ++i) {
      Operand& o = all[k].operands[i];
      if (o.slot % 3 == 2) o.base = slots[o.slot].address;
    }
    if (direct != 0) {  // buffers of other ranks are where their notices say
      Window* windows = job.alloc<Window>(ranks);
      for (uint64_t p = 0; p < ranks; ++p) {
        const uint64_t base = reinterpret_cast<uint64_t>(all[p].memory);
        windows[p] = Window{base, base, p == k ? 0u : 1u, 0};
        for (uint32_t i = 0; i < 2; ++i) slots[3 * p + i].address = 0;
      }
      a.windows = windows;
      a.resolved = job.alloc<Slot>(3 * ranks * a.block_count);
      a.input_offset = all[k].in, a.output_offset = all[k].out;
    }
    a.slots = slots;
    a.peers = peers;
    a.memory = memory;
    job.launch(static_cast<uint32_t>(k), a.block_count, k % 2 == 0 ? 4 : 3, sequence, all[k].s);
  }
  job.run();
  for (uint64_t k = 0; k < ranks; ++k) {
    const int32_t* out = reinterpret_cast<const int32_t*>(all[k].s.args.output);
    for (uint32_t b = 0; b < all[k].s.args.block_count; ++b) {
      const uint64_t launches = all[k].s.args.cursors[b].launches;
      job.expect(launches == kLaunches, "rank %llu, block %u: %llu launches ended", (unsigned long long)k, b, (unsigned long long)launches);
    }
    if (result == kNothing) continue;
    const uint64_t n = all[k].out_bytes / 4;
    for (uint64_t i = 0; i < n; ++i) {
      uint32_t want = 0;
      if (result == kReduced) {
        int32_t all_of = value(0, i);
        for (uint64_t p = 1; p < ranks; ++p) all_of = combined(op, all_of, value(p, i));
        want = static_cast<uint32_t>(op == kAvg ? all_of / static_cast<int32_t>(ranks) : all_of);
      } else {
        const uint64_t part = n / ranks;
        want = static_cast<uint32_t>(value(i / part, (result == kExchange ? k * part : 0) + i % part));
      }
      job.expect(out[i] == static_cast<int32_t>(want), "rank %llu, element %llu: %d, expected %d", (unsigned long long)k, (unsigned long long)i, out[i],
                 static_cast<int32_t>(want));
    }
  }
}

void plans_of_file(check::Job& job) {
  const char* name = getenv("PLAN_TABLES");
  Reader r{name != nullptr ? fopen(name, "rb") : nullptr};
  if (r.file == nullptr) {
    fprintf(stderr, "PLAN_TABLES names no file\n");
    exit(2);
  }
  for (uint64_t n = r.number(); n > 0; --n) plan(job, r);
  fclose(r.file);
}

}  // namespace

MSCCLPP_CHECK_MAIN({"plans", plans_of_file})
