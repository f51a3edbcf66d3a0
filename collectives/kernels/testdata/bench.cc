// Times kernels with ranks as threads: bench RANKS MIN MAX.
#include "harness.h"

#include <algorithm>
#include <chrono>

#define MSCCLPP_TYPE 0
#include "../move_family.h"
#include "../reduce_family.h"

using namespace harness;

namespace {

struct Entry {
  const char* name;
  Kernel kernel;
  int kind;  // 0 all-reduce, 1 all-gather
  uint64_t most;
};
const Entry kEntries[] = {
    {"allreduce allpair_ll8", mscclpp_allreduce_allpair_ll8, 0, 64 << 10},
    {"allreduce allpair_ll16", mscclpp_allreduce_allpair_ll16, 0, 64 << 10},
    {"allreduce twophase_ll8", mscclpp_allreduce_twophase_ll8, 0, 64 << 10},
    {"allreduce twophase_ll16", mscclpp_allreduce_twophase_ll16, 0, 64 << 10},
    {"allreduce allpair_chunk", mscclpp_allreduce_allpair_chunk, 0, 1 << 30},
    {"allreduce twophase_chunk", mscclpp_allreduce_twophase_chunk, 0, 1 << 30},
    {"allreduce zerocopy", mscclpp_allreduce_zerocopy, 0, 1 << 30},
    {"allgather ll8", mscclpp_allgather_ll8, 1, 64 << 10},
    {"allgather ll16", mscclpp_allgather_ll16, 1, 64 << 10},
    {"allgather chunk", mscclpp_allgather_chunk, 1, 1 << 30},
    {"allgather zerocopy", mscclpp_allgather_zerocopy, 1, 1 << 30},
};

}  // namespace

int main(int argc, char** argv) {
  const uint32_t ranks = argc > 1 ? atoi(argv[1]) : 2;
  const uint64_t min = argc > 2 ? atoll(argv[2]) : 1024, max = argc > 3 ? atoll(argv[3]) : 16 << 20;
  const char* filter = argc > 4 ? argv[4] : "";
  const int chunks[] = {16, 32, 64, 128, 256};
  std::vector<char*> in, out;
  for (uint32_t r = 0; r < ranks; ++r) {
    in.push_back(static_cast<char*>(aligned_alloc(4096, max)));
    out.push_back(static_cast<char*>(aligned_alloc(4096, max)));
    memset(in[r], 0, max);
    memset(out[r], 0, max);
  }
  for (const Entry& e : kEntries) {
    if (!strstr(e.name, filter)) continue;
    for (int chunk : chunks) {
      if (chunk != 64 && !strstr(e.name, "chunk")) continue;
      Job job(ranks, 8 << 20, 256 << 10, (64 << 10) + 64, kCheckPublish);
      printf("%-26s %4dK", e.name, chunk);
      for (uint64_t bytes = min; bytes <= max && bytes <= e.most; bytes *= 4) {
        const int iters = bytes <= 65536 ? 20000 : bytes <= 1 << 20 ? 500 : 40;
        std::vector<double> times(ranks);
        job.run([&](uint32_t r) {
          Args& a = job.args[r];
          a.input = in[r];
          a.output = out[r];
          a.element = 4;
          a.count = bytes / 4 / (e.kind == 1 ? ranks : 1);
          a.chunk = chunk << 10;
          for (uint32_t p = 0; p < ranks; ++p) {
            a.inputs[p] = reinterpret_cast<uint64_t>(in[p]);
            a.outputs[p] = reinterpret_cast<uint64_t>(out[p]);
          }
          for (int i = 0; i < iters / 5 + 1; ++i) e.kernel(&a, nullptr);
          std::vector<double> t;
          for (int batch = 0; batch < 10; ++batch) {
            const auto start = std::chrono::steady_clock::now();
            for (int i = 0; i < iters / 10; ++i) e.kernel(&a, nullptr);
            t.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / (iters / 10));
          }
          std::sort(t.begin(), t.end());
          times[r] = t[t.size() / 2];
        });
        printf(" %9.2f", *std::max_element(times.begin(), times.end()));
        fflush(stdout);
      }
      printf("\n");
    }
  }
}
