// The kernel in the checking emulator, with several threads: see README.md.
#include <mscclpp/check.h>

#include "neighbor.cc"

static void ring(mscclpp::check::Job& job) {
  const uint32_t ranks = 3, count = 21, rounds = 2;
  const uint64_t bytes = count * sizeof(float);
  float* memory[ranks];
  NeighborArgs args[ranks];
  for (uint32_t r = 0; r < ranks; ++r) {
    memory[r] = job.alloc<float>(3 * count);
    for (uint32_t i = 0; i < count; ++i) memory[r][i] = static_cast<float>(100 * r + i);
    args[r].count = count;
    args[r].inbox = bytes;
    args[r].result = 2 * bytes;
  }
  for (uint32_t r = 0; r < ranks; ++r) {
    const uint32_t to = (r + 1) % ranks;
    const auto link = job.link(r, memory[r], to, memory[to]);
    args[r].next = link.a;
    args[to].previous = link.b;
  }
  for (uint32_t round = 0; round < rounds; ++round) {
    for (uint32_t r = 0; r < ranks; ++r) job.launch(r, 1, 8, add_neighbor, args[r]);
    job.run();
  }
  for (uint32_t r = 0; r < ranks; ++r) {
    for (uint32_t i = 0; i < count; ++i) {
      const float want = static_cast<float>(100 * r + i + 100 * ((r + ranks - 1) % ranks) + i);
      job.expect(memory[r][2 * count + i] == want, "rank %u element %u: %g, expected %g", r, i,
                 static_cast<double>(memory[r][2 * count + i]), static_cast<double>(want));
    }
  }
}
MSCCLPP_CHECK_MAIN({"ring", ring})
