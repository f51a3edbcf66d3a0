// One tile by tensor cores: instructions that every NVIDIA GPU from sm_80 on has.
//
// Eight warps share the tile, two down and four across, 64 x 32 elements each. Slices
// of A and B, kStep wide, come by asynchronous copies into three buffers by turns: one
// is multiplied while two are being copied.
#ifndef FUSED_TENSOR_H_
#define FUSED_TENSOR_H_

#include <mscclpp/device.h>

#if MSCCLPP_TARGET_CUDA
#include "instructions.h"
#else
#include "instructions_check.h"
#endif

namespace fused {

constexpr uint32_t kTile = 128;     // rows and columns of a tile
constexpr uint32_t kStep = 32;      // of k
constexpr uint32_t kThreads = 256;  // of a block: neither more nor fewer

namespace tensor {

constexpr uint32_t kBuffers = 3;
constexpr uint32_t kSlice = kTile * kStep * 2;    // bytes of one operand in a buffer
constexpr uint32_t kBuffer = 2 * kSlice;
constexpr uint32_t kRow = kTile * 2 + 16;         // bytes of a row of the finished tile: the gap spreads rows over the banks
static_assert(kTile * kRow <= kBuffers * kBuffer, "the finished tile takes the place of the buffers");

// The part of a slice that one thread copies: 16 bytes in each half of the rows of A and of B.
// A row is four such chunks. Where chunk i of row r lies is i ^ (r / 2 % 4): eight rows
// below each other, as load4 reads them, are then in different banks.
struct Feed {
  const char* a;
  const char* b;
  uint64_t half;  // bytes from the first to the second half of the rows
  uint32_t to;

  MSCCLPP_DEVICE Feed(const char* a_, const char* b_, uint64_t stride, uint32_t shared, uint32_t thread) {
    const uint32_t row = thread / 4, chunk = thread % 4;
    a = a_ + row * stride + chunk * 16;
    b = b_ + row * stride + chunk * 16;
    half = kTile / 2 * stride;
    to = shared + row * (kStep * 2) + (chunk ^ (row / 2 % 4)) * 16;
  }
  // Starts the copies of the next slice into the buffer at an offset.
  MSCCLPP_DEVICE void next(uint32_t buffer) {
    copy16(to + buffer, a);
    copy16(to + buffer + kSlice / 2, a + half);
    copy16(to + buffer + kSlice, b);
    copy16(to + buffer + kSlice + kSlice / 2, b + half);
    a += kStep * 2;
    b += kStep * 2;
  }
};

}  // namespace tensor

// A finished tile, in shared memory: each hands every 16 bytes of it to
// store(row, column, bytes). A block_sync has to follow before the block does anything else.
struct Product {
  uint32_t shared;

  template <class F>
  MSCCLPP_DEVICE void each(F store) const {
    using namespace tensor;
    MSCCLPP_ROLLED
    for (uint32_t i = mscclpp::thread_id(); i < kTile * kTile / 8; i += kThreads) {
      store(i / 16, i % 16 * 8, get16(shared + i / 16 * kRow + i % 16 * 16));
    }
  }
};

// Multiplies kTile rows from a with kTile rows from b, both of k elements. Called by
// all kThreads; the product is there after a block_sync.
MSCCLPP_DEVICE Product multiply_tile(const char* a, const char* b, uint32_t k) {
  using namespace tensor;
  const uint32_t shared = shared_memory<kBuffers * kBuffer>();
  const uint32_t thread = mscclpp::thread_id(), lane = thread % 32, warp = thread / 32;
  const uint32_t down = warp % 2 * 64, across = warp / 2 * 32;  // the warp's part of the tile
  const uint32_t steps = k / kStep;

  Feed feed(a, b, static_cast<uint64_t>(k) * 2, shared, thread);
  MSCCLPP_UNROLL
  for (uint32_t s = 0; s < kBuffers - 1; ++s) {
    if (s < steps) feed.next(s * kBuffer);
    commit();
  }

  // From where this lane loads: of A rows 0 to 15, the left eight columns by lanes 0 to
  // 15; of B, which is stored transposed, two blocks of eight rows.
  const uint32_t turn = lane / 2 % 4;
  const uint32_t fromA = shared + (down + lane % 16) * (kStep * 2) + (lane / 16 ^ turn) * 16;
  const uint32_t fromB = shared + kSlice + (across + lane % 8 + lane / 16 * 8) * (kStep * 2) + (lane / 8 % 2 ^ turn) * 16;

  float sum[4][4][4] = {};
  uint32_t read = 0, write = (kBuffers - 1) * kBuffer;
  MSCCLPP_ROLLED
  for (uint32_t s = 0; s < steps; ++s) {
    arrived<kBuffers - 2>();
    mscclpp::block_sync();  // the slice is there for all, and nobody reads the buffer before it
    if (s + kBuffers - 1 < steps) feed.next(write);
    commit();
    MSCCLPP_UNROLL
    for (uint32_t part = 0; part < kStep / 16; ++part) {
      uint32_t ra[4][4], rb[2][4];
      MSCCLPP_UNROLL
      for (uint32_t i = 0; i < 4; ++i) load4(ra[i], ((fromA + read) ^ part * 32) + i * 16 * kStep * 2);
      MSCCLPP_UNROLL
      for (uint32_t j = 0; j < 2; ++j) load4(rb[j], ((fromB + read) ^ part * 32) + j * 16 * kStep * 2);
      MSCCLPP_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        MSCCLPP_UNROLL
        for (uint32_t j = 0; j < 4; ++j) multiply(sum[i][j], ra[i], rb[j / 2][j % 2 * 2], rb[j / 2][j % 2 * 2 + 1]);
      }
    }
    read = read == (kBuffers - 1) * kBuffer ? 0 : read + kBuffer;
    write = write == (kBuffers - 1) * kBuffer ? 0 : write + kBuffer;
  }

  // Pairs of elements are spread over the lanes: through shared memory they become
  // 16 bytes of a row, and those of a half warp a whole one.
  arrived<0>();
  mscclpp::block_sync();
  const uint32_t mine = shared + (down + lane / 4) * kRow + (across + lane % 4 * 2) * 2;
  MSCCLPP_UNROLL
  for (uint32_t i = 0; i < 4; ++i) {
    MSCCLPP_UNROLL
    for (uint32_t j = 0; j < 4; ++j) {
      put4(mine + i * 16 * kRow + j * 16, narrow2(sum[i][j][0], sum[i][j][1]));
      put4(mine + (i * 16 + 8) * kRow + j * 16, narrow2(sum[i][j][2], sum[i][j][3]));
    }
  }
  return Product{shared};
}

}  // namespace fused

#endif
