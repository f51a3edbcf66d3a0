// Runs every kernel with ranks as threads, over sizes, alignments and operations,
// in and out of place, and compares with the reduction of all inputs by one
// thread. Prints what differs; ends with "ok N" or "failed N of M".
//
//	check SEED ROUNDS
#include "harness.h"

#include <functional>
#include <random>
#include <string>

#include "../move_family.h"
#include "../reduce_family.h"

using namespace harness;

namespace {

enum Shape { kAllReduce, kAllGather, kReduceScatter, kAllToAll, kBroadcast, kReduce };

struct Entry {
  const char* name;
  Kernel kernel;
  Shape shape;
  bool in_place;
  bool rank_order;  // reduces in rank order
};

const Entry kEntries[] = {
    {"allreduce allpair_ll8", mscclpp_allreduce_allpair_ll8, kAllReduce, true, true},
    {"allreduce allpair_ll16", mscclpp_allreduce_allpair_ll16, kAllReduce, true, true},
    {"allreduce twophase_ll8", mscclpp_allreduce_twophase_ll8, kAllReduce, true, true},
    {"allreduce twophase_ll16", mscclpp_allreduce_twophase_ll16, kAllReduce, true, true},
    {"allreduce allpair_chunk", mscclpp_allreduce_allpair_chunk, kAllReduce, true, true},
    {"allreduce twophase_chunk", mscclpp_allreduce_twophase_chunk, kAllReduce, true, true},
    {"allreduce ring", mscclpp_allreduce_ring, kAllReduce, true, false},
    {"allreduce zerocopy", mscclpp_allreduce_zerocopy, kAllReduce, true, true},
    {"allgather ll8", mscclpp_allgather_ll8, kAllGather, true, true},
    {"allgather ll16", mscclpp_allgather_ll16, kAllGather, true, true},
    {"allgather chunk", mscclpp_allgather_chunk, kAllGather, true, true},
    {"allgather ring", mscclpp_allgather_ring, kAllGather, true, true},
    {"allgather zerocopy", mscclpp_allgather_zerocopy, kAllGather, true, true},
    {"reducescatter ll8", mscclpp_reducescatter_ll8, kReduceScatter, true, true},
    {"reducescatter ll16", mscclpp_reducescatter_ll16, kReduceScatter, true, true},
    {"reducescatter chunk", mscclpp_reducescatter_chunk, kReduceScatter, true, true},
    {"reducescatter zerocopy", mscclpp_reducescatter_zerocopy, kReduceScatter, true, true},
    {"alltoall ll8", mscclpp_alltoall_ll8, kAllToAll, true, true},
    {"alltoall ll16", mscclpp_alltoall_ll16, kAllToAll, true, true},
    {"alltoall chunk", mscclpp_alltoall_chunk, kAllToAll, true, true},
    {"alltoall zerocopy", mscclpp_alltoall_zerocopy, kAllToAll, false, true},
    {"broadcast chunk", mscclpp_broadcast_chunk, kBroadcast, true, true},
    {"broadcast zerocopy", mscclpp_broadcast_zerocopy, kBroadcast, true, true},
    {"reduce chunk", mscclpp_reduce_chunk, kReduce, true, true},
    {"reduce zerocopy", mscclpp_reduce_zerocopy, kReduce, true, true},
};

// One call, the same for all ranks.
struct Call {
  const Entry* entry;
  uint64_t count;
  uint32_t op, root;
  bool in_place;
  uint32_t shift;  // bytes by which buffers are off, times the size of an element
  uint64_t chunk;
};

constexpr uint64_t kGuard = 64;

// The input and output of one rank in a call.
struct Buffers {
  std::vector<char> in, out;
  char* input;
  char* output;
  uint64_t in_bytes, out_bytes;
};

void fill(char* p, uint64_t bytes, std::mt19937_64& rng) {
  Element* e = reinterpret_cast<Element*>(p);
  for (uint64_t i = 0; i < bytes / sizeof(Element); ++i) {
    const int v = int(rng() % 7) - (std::is_unsigned<Element>::value ? 0 : 3);
    Element x;
    memset(&x, 0, sizeof(x));
    const auto narrowed = narrow_element<Element>(static_cast<Accumulator<Element>>(v) / 2);
    memcpy(&x, &narrowed, sizeof(x));
    memcpy(&e[i], &x, sizeof(x));
  }
}

void prepare(Buffers& b, const Call& call, uint32_t rank, uint32_t ranks, std::mt19937_64& rng) {
  const Shape s = call.entry->shape;
  const uint64_t one = call.count * sizeof(Element), all = one * ranks;
  b.in_bytes = s == kReduceScatter || s == kAllToAll ? all : one;
  b.out_bytes = s == kAllGather || s == kAllToAll ? all : one;
  const uint64_t shift = call.shift * sizeof(Element);
  b.in.assign(b.in_bytes + 2 * kGuard + shift, char(0x5a));
  b.out.assign(b.out_bytes + 2 * kGuard + shift, char(0xa5));
  b.input = b.in.data() + kGuard + shift;
  b.output = b.out.data() + kGuard + shift;
  fill(b.input, b.in_bytes, rng);
  if (!call.in_place) return;
  if (s == kAllGather) {
    memcpy(b.output + rank * one, b.input, one);
    b.input = b.output + rank * one;
  } else if (s == kReduceScatter) {
    b.output = b.input + rank * one;
  } else {
    b.output = b.input;
  }
}

// The expected output of rank, from the inputs of all.
std::vector<char> expect(const Call& call, uint32_t rank, const std::vector<std::vector<char>>& inputs) {
  const uint32_t ranks = inputs.size();
  const uint64_t one = call.count * sizeof(Element);
  std::vector<char> want(one);
  auto reduce = [&](uint64_t at) {
    std::vector<const void*> p;
    for (auto& in : inputs) p.push_back(in.data() + at);
    reduce_n<Element>(want.data(), p, ranks, call.count, reduction(ReduceOp(call.op), 2), 0, 1);
  };
  switch (call.entry->shape) {
    case kAllReduce: case kReduce: reduce(0); break;
    case kReduceScatter: reduce(rank * one); break;
    case kBroadcast: want = inputs[call.root]; break;
    case kAllGather:
      want.clear();
      for (auto& in : inputs) want.insert(want.end(), in.begin(), in.end());
      break;
    case kAllToAll:
      want.clear();
      for (auto& in : inputs) want.insert(want.end(), in.begin() + rank * one, in.begin() + (rank + 1) * one);
      break;
  }
  return want;
}

bool guarded(const std::vector<char>& v, const char* begin, uint64_t bytes, char mark) {
  for (const char* p = v.data(); p < v.data() + v.size(); ++p) {
    if ((p < begin || p >= begin + bytes) && *p != mark) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  std::mt19937_64 rng(argc > 1 ? atoll(argv[1]) : 1);
  const int rounds = argc > 2 ? atoi(argv[2]) : 300;
  int failures = 0, calls_made = 0;
  for (uint32_t ranks : {1, 2, 3, 5, 8}) {
    Job job(ranks, 16 << 10, 4096, 4096 + 64, kCheckCompare);
    // The packet epochs start where flags wrap around and areas are cleared.
    for (uint32_t r = 0; r < ranks; ++r) job.state(r)->epochs[0][0] = ((3ull << 30) + 0x3ffffff0) * kEpoch;
    std::vector<Call> calls(rounds);
    std::vector<std::vector<Buffers>> buffers(rounds);
    std::vector<std::vector<std::vector<char>>> inputs(rounds);
    for (int i = 0; i < rounds; ++i) {
      Call& call = calls[i];
      call.entry = &kEntries[i % (sizeof(kEntries) / sizeof(kEntries[0]))];
      const uint64_t sizes[] = {1, 2, 3, 7, 64, 255, 1000, 4099, 20011, rng() % 300 + 1};
      call.count = sizes[rng() % 10];
      call.op = rng() % kReduceOps;
      call.root = rng() % ranks;
      call.in_place = call.entry->in_place && rng() % 2;
      call.shift = rng() % 3;
      call.chunk = rng() % 2 ? 4096 : 1024;
      buffers[i].resize(ranks);
      for (uint32_t r = 0; r < ranks; ++r) {
        prepare(buffers[i][r], call, r, ranks, rng);
        inputs[i].emplace_back(buffers[i][r].input, buffers[i][r].input + buffers[i][r].in_bytes);
      }
    }
    // No barrier between calls: fast ranks run ahead as far as they can.
    job.run([&](uint32_t r) {
      Args& a = job.args[r];
      a.element = sizeof(Element);
      a.scale = 2;
      for (int i = 0; i < rounds; ++i) {
        const Call& call = calls[i];
        a.input = buffers[i][r].input;
        a.output = buffers[i][r].output;
        a.count = call.count;
        a.op = call.op;
        a.root = call.root;
        a.chunk = call.chunk;
        a.common.signature.count = call.count;
        for (uint32_t p = 0; p < ranks; ++p) {
          a.inputs[p] = reinterpret_cast<uint64_t>(buffers[i][p].input) - 64 * p;  // own offsets for each rank
          a.outputs[p] = reinterpret_cast<uint64_t>(buffers[i][p].output) - 64 * p;
        }
        a.input_offset = a.output_offset = 64 * r;
        call.entry->kernel(&a, nullptr);
      }
    });
    for (int i = 0; i < rounds; ++i) {
      const Call& call = calls[i];
      std::vector<char> first;
      for (uint32_t r = 0; r < ranks; ++r) {
        if (call.entry->shape == kReduce && r != call.root) continue;
        ++calls_made;
        Buffers& b = buffers[i][r];
        const std::vector<char> got(b.output, b.output + b.out_bytes);
        const bool reducing = call.entry->shape == kAllReduce || call.entry->shape == kReduce || call.entry->shape == kReduceScatter;
        std::string wrong;
        if ((call.entry->rank_order || !reducing) && got != expect(call, r, inputs[i])) wrong = "result";
        if (call.entry->shape == kAllReduce && r > 0 && got != first) wrong += " ranks differ";
        if (first.empty()) first = got;
        const bool in_out = call.in_place && b.output >= b.in.data() && b.output < b.in.data() + b.in.size();
        if (!in_out && !guarded(b.out, b.out.data() + kGuard + call.shift * sizeof(Element), b.out_bytes, char(0xa5))) wrong += " beyond the output";
        if (!guarded(b.in, b.in.data() + kGuard + call.shift * sizeof(Element), b.in_bytes, char(0x5a))) wrong += " beyond the input";
        if (!call.in_place && memcmp(b.input, inputs[i][r].data(), b.in_bytes) != 0) wrong += " input changed";
        if (wrong.empty()) continue;
        if (++failures < 20) {
          printf("%s: call %d, rank %u of %u, count %llu, op %u, root %u, in place %d, shift %u:%s\n", call.entry->name, i, r, ranks,
                 (unsigned long long)call.count, call.op, call.root, call.in_place, call.shift, (" " + wrong).c_str());
        }
      }
    }
  }
  if (failures == 0) {
    printf("ok %d\n", calls_made);
  } else {
    printf("failed %d of %d\n", failures, calls_made);
  }
  return failures != 0;
}
