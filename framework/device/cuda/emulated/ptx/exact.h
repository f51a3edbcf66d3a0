// Sums of floats without an order: the exact sum, rounded once to nearest even. That is what an emulated switch
// returns, so that nobody can rely on an order of additions which hardware does not have.
#ifndef EMULATED_PTX_EXACT_H_
#define EMULATED_PTX_EXACT_H_

#include <stdint.h>

namespace ptx {

class ExactSum {
 public:
  void add(double v);
  // With so many bits of mantissa, the hidden one included, and the exponent of the least subnormal.
  double rounded(int precision, int least, double largest) const;
  float as_float() const { return static_cast<float>(rounded(24, -149, 3.40282346638528859812e38)); }
  double as_double() const { return rounded(53, -1074, 1.79769313486231570815e308); }
  uint32_t as_half() const;
  uint32_t as_bfloat() const;

 private:
  static constexpr int kWords = 70, kLowest = -1088;  // 32 bits a word
  int64_t words_[kWords] = {};
  bool nan_ = false;
  bool infinite_[2] = {};   // positive, negative
};

}  // namespace ptx

#endif  // EMULATED_PTX_EXACT_H_
