#include "exact.h"

#include <math.h>
#include <string.h>

#include "values.h"

namespace ptx {

void ExactSum::add(double v) {
  if (v != v) nan_ = true;
  if (isinf(v)) infinite_[v < 0] = true;
  if (v == 0 || !isfinite(v)) return;
  int exponent;
  const double fraction = frexp(fabs(v), &exponent);             // [0.5, 1)
  const uint64_t mantissa = static_cast<uint64_t>(ldexp(fraction, 53));
  const int at = exponent - 53 - kLowest;
  unsigned __int128 wide = static_cast<unsigned __int128>(mantissa) << (at % 32);
  for (int k = at / 32; wide != 0; ++k, wide >>= 32) words_[k] += v < 0 ? -static_cast<int64_t>(wide & 0xffffffff) : static_cast<int64_t>(wide & 0xffffffff);
}

double ExactSum::rounded(int precision, int least, double largest) const {
  if (nan_ || (infinite_[0] && infinite_[1])) return NAN;
  if (infinite_[0] || infinite_[1]) return infinite_[1] ? -INFINITY : INFINITY;
  // Carries; the sign is that of the highest word.
  uint32_t words[kWords + 1] = {};
  int64_t carry = 0;
  for (int k = 0; k < kWords; ++k) {
    carry += words_[k];
    words[k] = static_cast<uint32_t>(carry);
    carry >>= 32;
  }
  const bool negative = carry < 0;
  if (negative) {
    uint64_t one = 1;
    for (int k = 0; k < kWords; ++k) {
      one += static_cast<uint32_t>(~words[k]);
      words[k] = static_cast<uint32_t>(one);
      one >>= 32;
    }
  }
  int top = kWords * 32 - 1;
  const auto bit = [&](int at) { return at >= 0 && (words[at / 32] >> (at % 32) & 1) != 0; };
  while (top >= 0 && !bit(top)) --top;
  if (top < 0) return 0;
  int low = top - precision + 1;                                  // of the result's mantissa
  if (low + kLowest < least) low = least - kLowest;
  uint64_t mantissa = 0;
  for (int at = top; at >= low; --at) mantissa = mantissa << 1 | static_cast<uint64_t>(bit(at));
  bool below = false;
  for (int at = low - 2; at >= 0 && !below; --at) below = bit(at);
  if (bit(low - 1) && (below || (mantissa & 1) != 0)) ++mantissa;
  const double v = ldexp(static_cast<double>(mantissa), low + kLowest);
  if (v > largest) return negative ? -INFINITY : INFINITY;
  return negative ? -v : v;
}

uint32_t ExactSum::as_half() const { return half_bits(rounded(11, -24, 65504)); }

uint32_t ExactSum::as_bfloat() const {
  const float f = static_cast<float>(rounded(8, -133, 3.38953138925153547590e38));
  if (f != f) return 0x7fff;
  uint32_t bits;
  memcpy(&bits, &f, 4);
  return bits >> 16;
}

}  // namespace ptx
