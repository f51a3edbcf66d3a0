// One tile without tensor cores, by any number of threads: for CPUs, and to check what
// the channels do.
#ifndef FUSED_PLAIN_H_
#define FUSED_PLAIN_H_

#include <mscclpp/device.h>

namespace fused {

#ifndef FUSED_TILE
#define FUSED_TILE 128
#endif
constexpr uint32_t kTile = FUSED_TILE;

// A tile that is multiplied as it is asked for.
struct Product {
  const mscclpp::f16* a;
  const mscclpp::f16* b;
  uint32_t k;

  template <class F>
  MSCCLPP_DEVICE void each(F store) const {
    for (uint32_t i = mscclpp::thread_id(); i < kTile * kTile / 8; i += mscclpp::block_dim()) {
      const uint32_t row = i / (kTile / 8), column = i % (kTile / 8) * 8;
      store(row, column, mscclpp::Vec16{two(row, column), two(row, column + 2), two(row, column + 4), two(row, column + 6)});
    }
  }

 private:
  MSCCLPP_DEVICE uint32_t two(uint32_t row, uint32_t column) const { return one(row, column) | one(row, column + 1) << 16; }
  MSCCLPP_DEVICE uint32_t one(uint32_t row, uint32_t column) const {
    const mscclpp::f16* const x = a + static_cast<uint64_t>(row) * k;
    const mscclpp::f16* const y = b + static_cast<uint64_t>(column) * k;
    float sum = 0;
    for (uint32_t i = 0; i < k; ++i) sum += mscclpp::to_float(x[i]) * mscclpp::to_float(y[i]);
    return mscclpp::from_float<mscclpp::f16>(sum).bits;
  }
};

MSCCLPP_DEVICE Product multiply_tile(const char* a, const char* b, uint32_t k) {
  return Product{reinterpret_cast<const mscclpp::f16*>(a), reinterpret_cast<const mscclpp::f16*>(b), k};
}

}  // namespace fused

#endif
