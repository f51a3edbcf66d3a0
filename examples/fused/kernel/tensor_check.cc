// The tile of tensor cores in the checking emulator, whose instructions_check.h stands for
// the instructions of the GPU.
#include <mscclpp/check.h>

#define FUSED_TENSOR
#include "fused.cu"

namespace {

float left(uint32_t row, uint32_t l) { return static_cast<float>((row * 7 + l * 3 + row / 16) % 11) - 5; }
float right(uint32_t column, uint32_t l) { return static_cast<float>((column * 5 + l + l / 8 + column / 8) % 13) - 6; }

// The multiplication alone, by two blocks, one of which makes two tiles.
void multiplication(mscclpp::check::Job& job, uint32_t k) {
  const uint32_t rows = fused::kTile, columns = 3 * fused::kTile;
  auto* const a = job.alloc<mscclpp::f16>(rows * k);
  auto* const b = job.alloc<mscclpp::f16>(columns * k);
  auto* const c = job.alloc<mscclpp::f16>(rows * columns);
  for (uint32_t i = 0; i < rows * k; ++i) a[i] = mscclpp::from_float<mscclpp::f16>(left(i / k, i % k));
  for (uint32_t i = 0; i < columns * k; ++i) b[i] = mscclpp::from_float<mscclpp::f16>(right(i / k, i % k));
  job.launch(0, 2, fused::kThreads, fused_gemm, FusedArgs{a, b, c, nullptr, 0, rows, columns, k, 0, {}, {}});
  job.run();
  for (uint32_t i = 0; i < rows * columns; ++i) {
    float sum = 0;
    for (uint32_t l = 0; l < k; ++l) sum += left(i / columns, l) * right(i % columns, l);
    const float got = mscclpp::to_float(c[i]), want = mscclpp::to_float(mscclpp::from_float<mscclpp::f16>(sum));
    job.expect(got == want, "k %u, element (%u, %u): %g, expected %g", k, i / columns, i % columns, static_cast<double>(got),
               static_cast<double>(want));
  }
}

void one_step(mscclpp::check::Job& job) { multiplication(job, 32); }
void buffers_go_around(mscclpp::check::Job& job) { multiplication(job, 160); }

}  // namespace

MSCCLPP_CHECK_MAIN({"one step", one_step}, {"buffers go around", buffers_go_around})
