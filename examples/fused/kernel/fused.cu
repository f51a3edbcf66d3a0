// A matrix multiplication whose finished tiles go to all peers while it runs.
//
// fused_gemm makes this rank's rows of C, tile by tile, and stores every tile into the
// C of all ranks. The block that finishes the last tile of a block of rows signals the
// peers. fused_wait, launched behind it on the same stream, ends when the rows of all
// peers are there: then C is whole. Two more signals keep the next launch from
// overwriting what a peer still reads.
#ifndef MSCCLPP_MAX_THREADS
#define MSCCLPP_MAX_THREADS 256
#endif
#include <mscclpp/device.h>

#include "fused.h"

#if MSCCLPP_TARGET_CUDA || defined(FUSED_TENSOR)
#include "tensor.h"
#else
#include "plain.h"
#endif

namespace fused {

using mscclpp::MemoryChannel;

MSCCLPP_DEVICE const MemoryChannel& channel(const mscclpp::MemoryChannelHandle& handle) {
  return static_cast<const MemoryChannel&>(handle);
}

// Where a tile is, in tiles. Eight rows of tiles are done column by column, so that
// blocks that run together use the same parts of A and B, which the cache then holds.
struct Place {
  uint32_t row, column;
};
MSCCLPP_DEVICE Place place(uint32_t tile, uint32_t rows, uint32_t columns) {
  constexpr uint32_t kGroup = 8;
  const uint32_t group = tile / (kGroup * columns), in = tile % (kGroup * columns);
  const uint32_t left = rows - group * kGroup, high = left < kGroup ? left : kGroup;
  return Place{group * kGroup + in % high, in / high};
}

// Waits for the next signal of a counter without consuming it: all blocks of a launch
// look, fused_wait consumes.
MSCCLPP_DEVICE bool look(const mscclpp::SemaphoreHandle& s) {
  const uint64_t want = mscclpp::load_relaxed_device(s.expected) + 1;
  const uint64_t* const word = s.inbound;
  return mscclpp::wait_until(s.control, mscclpp::WaitSite{0, s.id, s.peer, want}, [word, want](uint64_t& seen) {
    seen = mscclpp::load_acquire(word);
    return seen >= want;
  });
}

// Waits for count signals at once.
MSCCLPP_DEVICE bool consume(const mscclpp::SemaphoreHandle& s, uint64_t count) {
  const uint64_t want = mscclpp::fetch_add_relaxed_device(s.expected, count) + count;
  const uint64_t* const word = s.inbound;
  return mscclpp::wait_until(s.control, mscclpp::WaitSite{0, s.id, s.peer, want}, [word, want](uint64_t& seen) {
    seen = mscclpp::load_acquire(word);
    return seen >= want;
  });
}

// Counts a tile whose stores this block has done. One thread calls it behind a barrier of
// the block. The block that counts the last tile of the row has seen the stores of all
// other blocks, so its signal publishes them as well.
MSCCLPP_DEVICE void finish(const FusedArgs& args, uint32_t row, uint32_t columns) {
  if (mscclpp::fetch_add_acq_rel_device(args.done + row, 1u) + 1 != columns) return;
  mscclpp::store_relaxed_device(args.done + row, 0u);
  MSCCLPP_ROLLED
  for (uint32_t p = 0; p < args.peers; ++p) channel(args.tiles[p]).signal();
}

MSCCLPP_DEVICE void run(const FusedArgs& args) {
  using namespace mscclpp;
  const uint32_t rows = args.rows / kTile, columns = args.n / kTile;
  if (block_id() == 0 && thread_id() == 0) {
    // The kernels that have read C on this rank were launched before this one, and are over.
    MSCCLPP_ROLLED
    for (uint32_t p = 0; p < args.peers; ++p) channel(args.ready[p]).signal();
  }
  bool open = false;  // the peers have said the same
  for (uint32_t tile = block_id(); tile < rows * columns; tile += grid_dim()) {
    const Place at = place(tile, rows, columns);
    const uint64_t width = static_cast<uint64_t>(args.k) * kTile * 2;  // bytes of a row of tiles of A, or of B
    const Product product =
        multiply_tile(static_cast<const char*>(args.a) + at.row * width, static_cast<const char*>(args.b) + at.column * width, args.k);

    // The first tile is multiplied while the peers begin; after that nothing is left to wait for.
    bool ok = true;
    for (uint32_t p = thread_id(); p < args.peers && !open; p += block_dim()) ok = look(args.ready[p].semaphore) && ok;
    if (!block_sync_and(ok)) return;
    open = true;

    const uint64_t corner = ((args.first + static_cast<uint64_t>(at.row) * kTile) * args.n + static_cast<uint64_t>(at.column) * kTile) * 2;
    product.each([&](uint32_t row, uint32_t column, const Vec16& v) {
      const uint64_t offset = corner + (static_cast<uint64_t>(row) * args.n + column) * 2;
      store16(static_cast<char*>(args.c) + offset, v);
      MSCCLPP_ROLLED
      for (uint32_t p = 0; p < args.peers; ++p) store16(static_cast<char*>(args.tiles[p].dst) + offset, v);
    });
    block_sync();
    if (thread_id() == 0 && args.peers != 0) finish(args, at.row, columns);
  }
}

}  // namespace fused

// Two blocks on a processor: while one stores its tile, the other multiplies.
#if MSCCLPP_TARGET_CUDA
extern "C" MSCCLPP_GLOBAL void __attribute__((launch_bounds(256, 2))) fused_gemm(const FusedArgs args) { fused::run(args); }
#else
MSCCLPP_KERNEL(fused_gemm, FusedArgs, args) { fused::run(args); }
#endif

MSCCLPP_KERNEL(fused_wait, FusedArgs, args) {
  using namespace mscclpp;
  bool ok = true;
  for (uint32_t p = thread_id(); p < args.peers && block_id() == 0; p += block_dim()) {
    ok = fused::consume(args.tiles[p].semaphore, args.rows / fused::kTile) && ok;
    ok = fused::consume(args.ready[p].semaphore, 1) && ok;
  }
  block_sync_and(ok);
}

// mscclpp-kernels adds this line by itself; a compiler that is called alone does not.
#ifdef FUSED_IMAGE
MSCCLPP_IMAGE()
#endif
