// Compares averages of floats on GPUs, which are not computed by division, with division: bit by
// bit, for all exponents and for subnormal results.
#include <mscclpp/check.h>
#include <stdio.h>

using namespace mscclpp;

static uint64_t failures = 0;

static void compare(uint32_t bits, float by) {
  detail::Scalars<float> s(reduction(kAvg, 1, 1), 1);
  s.divisor = by;
  float sums[2] = {detail::as_float(bits), detail::as_float(bits ^ 0x80000000u)};
  for (float sum : sums) {
    const volatile float dividend = sum, divisor = by;
    const float want = dividend / divisor;
    float got = sum;
    detail::average<detail::kAnyOp, 1>(&got, s);
    if (detail::as_bits(got) == detail::as_bits(want) || (got != got && want != want)) continue;
    if (failures++ < 10) fprintf(stderr, "%a / %a: %a, expected %a\n", sum, by, got, want);
  }
}

int main() {
  const float divisors[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 24, 98, 127, 1000, 1024, 65535, 16777215, 4294967296.0f};
  for (float by : divisors) {
    uint32_t random = 12345;
    for (uint32_t exponent = 0; exponent < 256; ++exponent) {
      const uint32_t first = exponent << 23;
      for (uint32_t mantissa : {0u, 1u, 2u, 3u, 0x3fffffu, 0x400000u, 0x400001u, 0x7ffffeu, 0x7fffffu}) compare(first | mantissa, by);
      for (int i = 0; i < 500; ++i) {
        random = random * 1664525u + 1013904223u;
        compare(first | random >> 9, by);
      }
    }
    for (uint32_t bits = 0; bits < 100000; ++bits) compare(bits, by);
  }
  if (failures != 0) fprintf(stderr, "%llu differ\n", static_cast<unsigned long long>(failures));
  return failures != 0;
}
