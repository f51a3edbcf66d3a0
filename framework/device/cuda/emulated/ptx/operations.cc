// Instructions that compute, and the table of all forms that are known.
#include <math.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "forms.h"
#include "machine.h"
#include "values.h"

namespace ptx {
namespace {

template <class T, class F>
void unary(Warp& w, const Instruction& i, uint32_t lanes) {
  const Source a = source(w, i.a);
  uint64_t* d = target(w, i.d);
  each_lane(lanes, [&](uint32_t l) { d[l] = bits(F::of(value<T>(a[l]))); });
  define(w, i.d, lanes, undefined(w, i.a));
}

template <class T, class F>
void binary(Warp& w, const Instruction& i, uint32_t lanes) {
  const Source a = source(w, i.a), b = source(w, i.b);
  const uint32_t u = undefined(w, i.a) | undefined(w, i.b);
  uint64_t* d = target(w, i.d);
  each_lane(lanes, [&](uint32_t l) { d[l] = bits(F::of(value<T>(a[l]), value<T>(b[l]))); });
  define(w, i.d, lanes, u);
}

template <class T, class F>
void ternary(Warp& w, const Instruction& i, uint32_t lanes) {
  const Source a = source(w, i.a), b = source(w, i.b), c = source(w, i.c);
  const uint32_t u = undefined(w, i.a) | undefined(w, i.b) | undefined(w, i.c);
  uint64_t* d = target(w, i.d);
  each_lane(lanes, [&](uint32_t l) { d[l] = bits(F::of(value<T>(a[l]), value<T>(b[l]), value<T>(c[l]))); });
  define(w, i.d, lanes, u);
}

// Integers wrap around: products are made in 64 bits, without sign.
template <class T> constexpr bool kFloat = std::is_floating_point_v<T>;
template <class T, class F>
T wrapped(T a, T b, F f) { return static_cast<T>(f(static_cast<uint64_t>(a), static_cast<uint64_t>(b))); }

struct Add {
  template <class T> static T of(T a, T b) {
    if constexpr (kFloat<T>) return a + b;
    else return wrapped(a, b, [](uint64_t x, uint64_t y) { return x + y; });
  }
};
struct Sub {
  template <class T> static T of(T a, T b) {
    if constexpr (kFloat<T>) return a - b;
    else return wrapped(a, b, [](uint64_t x, uint64_t y) { return x - y; });
  }
};
struct Mul {
  template <class T> static T of(T a, T b) {
    if constexpr (kFloat<T>) return a * b;
    else return wrapped(a, b, [](uint64_t x, uint64_t y) { return x * y; });
  }
};
struct MulHigh {
  template <class T> static T of(T a, T b) { return static_cast<T>((static_cast<unsigned __int128>(a) * b) >> (8 * sizeof(T))); }
};
struct MulAdd {
  template <class T> static T of(T a, T b, T c) {
    if constexpr (kFloat<T>) return std::fma(a, b, c);
    else return Add::of(Mul::of(a, b), c);
  }
};
// A division by zero gives all ones on this hardware.
struct Div {
  template <class T> static T of(T a, T b) {
    if constexpr (kFloat<T>) return a / b;
    else if (b == 0) return static_cast<T>(~0ull);
    else if (std::is_signed_v<T> && b == static_cast<T>(-1)) return Sub::of(static_cast<T>(0), a);
    else return static_cast<T>(a / b);
  }
};
struct Rem {
  template <class T> static T of(T a, T b) {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
};
struct Reciprocal { template <class T> static T of(T a) { return 1 / a; } };
struct SquareRoot { template <class T> static T of(T a) { return std::sqrt(a); } };
struct Neg {
  template <class T> static T of(T a) {
    if constexpr (kFloat<T>) return -a;
    else return Sub::of(static_cast<T>(0), a);
  }
};
// An operand that decides alone makes the result defined: compilers turn "a && b" into and.pred.
template <class T, class F>
void decided(Warp& w, const Instruction& i, uint32_t lanes) {
  const Source a = source(w, i.a), b = source(w, i.b);
  const uint32_t ua = undefined(w, i.a), ub = undefined(w, i.b);
  uint32_t u = ua | ub;
  if ((u & lanes) != 0) {
    each_lane(lanes & u, [&](uint32_t l) {
      const bool by_a = (ua >> l & 1) == 0 && value<T>(a[l]) == F::template kDecides<T>, by_b = (ub >> l & 1) == 0 && value<T>(b[l]) == F::template kDecides<T>;
      if (by_a || by_b) u &= ~(1u << l);
    });
  }
  uint64_t* d = target(w, i.d);
  each_lane(lanes, [&](uint32_t l) { d[l] = bits(F::of(value<T>(a[l]), value<T>(b[l]))); });
  define(w, i.d, lanes, u);
}
struct And {
  template <class T> static constexpr T kDecides = 0;
  template <class T> static T of(T a, T b) { return static_cast<T>(a & b); }
};
struct Or {
  template <class T> static constexpr T kDecides = static_cast<T>(~0ull);
  template <class T> static T of(T a, T b) { return static_cast<T>(a | b); }
};
struct Xor { template <class T> static T of(T a, T b) { return static_cast<T>(a ^ b); } };
struct Not {
  template <class T> static T of(T a) {
    if constexpr (std::is_same_v<T, bool>) return !a;
    else return static_cast<T>(~a);
  }
};
struct Min { template <class T> static T of(T a, T b) { return std::min(a, b); } };
struct Max { template <class T> static T of(T a, T b) { return std::max(a, b); } };
// Of floats a NaN gives way to a number, two become the one that the hardware makes, and +0 is larger than -0.
template <class F>
struct OfNumbers {
  template <class T> static T of(T a, T b) {
    if (a != a) return b != b ? value<T>(0x7fffffffu) : b;
    if (b != b) return a;
    if (a == b) return (F::of(1, 2) == 1) == std::signbit(a) ? a : b;
    return F::of(a, b);
  }
};
struct Same { template <class T> static T of(T a) { return a; } };

template <class T>
void shift_left(Warp& w, const Instruction& i, uint32_t lanes) {
  const Source a = source(w, i.a), b = source(w, i.b);
  const uint32_t u = undefined(w, i.a) | undefined(w, i.b);
  uint64_t* d = target(w, i.d);
  each_lane(lanes, [&](uint32_t l) {
    const uint32_t n = static_cast<uint32_t>(b[l]);
    d[l] = n >= 8 * sizeof(T) ? 0 : static_cast<T>(a[l] << n);
  });
  define(w, i.d, lanes, u);
}

template <class T>
void shift_right(Warp& w, const Instruction& i, uint32_t lanes) {
  const Source a = source(w, i.a), b = source(w, i.b);
  const uint32_t u = undefined(w, i.a) | undefined(w, i.b);
  uint64_t* d = target(w, i.d);
  each_lane(lanes, [&](uint32_t l) {
    const uint32_t most = 8 * sizeof(T) - 1, n = static_cast<uint32_t>(b[l]);
    const T v = value<T>(a[l]);
    if (n <= most) d[l] = bits(static_cast<T>(v >> n));
    else d[l] = std::is_signed_v<T> ? bits(static_cast<T>(v >> most)) : 0;
  });
  define(w, i.d, lanes, u);
}

template <class D, class S>
void multiply_wide(Warp& w, const Instruction& i, uint32_t lanes) {
  const Source a = source(w, i.a), b = source(w, i.b);
  const uint32_t u = undefined(w, i.a) | undefined(w, i.b);
  uint64_t* d = target(w, i.d);
  each_lane(lanes, [&](uint32_t l) { d[l] = bits(static_cast<D>(static_cast<D>(value<S>(a[l])) * static_cast<D>(value<S>(b[l])))); });
  define(w, i.d, lanes, u);
}

template <class T>
void extract(Warp& w, const Instruction& i, uint32_t lanes) {
  const Source a = source(w, i.a), b = source(w, i.b), c = source(w, i.c);
  const uint32_t u = undefined(w, i.a) | undefined(w, i.b) | undefined(w, i.c);
  uint64_t* d = target(w, i.d);
  each_lane(lanes, [&](uint32_t l) {
    constexpr uint32_t most = 8 * sizeof(T);
    const uint32_t from = b[l] & 255, n = c[l] & 255;
    // Of a signed number all bits above the highest one are its sign.
    const T v = from < most ? static_cast<T>(value<T>(a[l]) >> from) : std::is_signed_v<T> ? static_cast<T>(value<T>(a[l]) >> (most - 1)) : T{0};
    if (n == 0 || n >= most) d[l] = n == 0 ? 0 : bits(v);
    else d[l] = bits(static_cast<T>(static_cast<T>(static_cast<std::make_unsigned_t<T>>(v) << (most - n)) >> (most - n)));
  });
  define(w, i.d, lanes, u);
}

template <class T>
void insert(Warp& w, const Instruction& i, uint32_t lanes) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  constexpr uint64_t kAll = static_cast<T>(-1);
  const Source a = source(w, i.a), b = source(w, i.b), c = source(w, i.c), e = source(w, i.v[3]);
  const uint32_t u = undefined(w, i.a) | undefined(w, i.b) | undefined(w, i.c) | undefined(w, i.v[3]);
  uint64_t* d = target(w, i.d);
  each_lane(lanes, [&](uint32_t l) {
    const uint32_t at = c[l] & 255, n = e[l] & 255;
    const uint64_t mask = at >= kBits ? 0 : ((n >= kBits ? kAll : (1ull << n) - 1) << at) & kAll;
    d[l] = (b[l] & ~mask & kAll) | ((at >= kBits ? 0 : a[l] << at) & mask);
  });
  define(w, i.d, lanes, u);
}

void permute(Warp& w, const Instruction& i, uint32_t lanes) {
  const Source a = source(w, i.a), b = source(w, i.b), c = source(w, i.c);
  const uint32_t u = undefined(w, i.a) | undefined(w, i.b) | undefined(w, i.c);
  uint64_t* d = target(w, i.d);
  each_lane(lanes, [&](uint32_t l) {
    const uint64_t all = (b[l] << 32) | (a[l] & 0xffffffffull);
    uint64_t out = 0;
    for (uint32_t k = 0; k < 4; ++k) {
      const uint32_t pick = (c[l] >> (4 * k)) & 15;
      uint64_t byte = (all >> (8 * (pick & 7))) & 255;
      if ((pick & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
      out |= byte << (8 * k);
    }
    d[l] = out;
  });
  define(w, i.d, lanes, u);
}

void select(Warp& w, const Instruction& i, uint32_t lanes) {
  const Source a = source(w, i.a), b = source(w, i.b), c = source(w, i.c);
  const uint32_t ua = undefined(w, i.a), ub = undefined(w, i.b), uc = undefined(w, i.c);
  uint64_t* d = target(w, i.d);
  uint32_t first = 0;
  each_lane(lanes, [&](uint32_t l) {
    const bool yes = (c[l] & 1) != 0;
    first |= static_cast<uint32_t>(yes) << l;
    d[l] = yes ? a[l] : b[l];
  });
  if (i.bytes() == 4) each_lane(lanes, [&](uint32_t l) { d[l] &= 0xffffffffull; });
  if (i.bytes() == 2) each_lane(lanes, [&](uint32_t l) { d[l] &= 0xffffull; });
  define(w, i.d, lanes, (first & ua) | (~first & ub) | uc);
}

struct Eq { template <class T> static bool of(T a, T b) { return a == b; } };
struct Ne { template <class T> static bool of(T a, T b) { return a < b || a > b; } };
struct Lt { template <class T> static bool of(T a, T b) { return a < b; } };
struct Le { template <class T> static bool of(T a, T b) { return a <= b; } };
struct Gt { template <class T> static bool of(T a, T b) { return a > b; } };
struct Ge { template <class T> static bool of(T a, T b) { return a >= b; } };
struct Equ { template <class T> static bool of(T a, T b) { return !(a < b || a > b); } };
struct Neu { template <class T> static bool of(T a, T b) { return a != b; } };
struct Ltu { template <class T> static bool of(T a, T b) { return !(a >= b); } };
struct Leu { template <class T> static bool of(T a, T b) { return !(a > b); } };
struct Gtu { template <class T> static bool of(T a, T b) { return !(a <= b); } };
struct Geu { template <class T> static bool of(T a, T b) { return !(a < b); } };
struct Nan { template <class T> static bool of(T a, T b) { return a != a || b != b; } };
struct Num { template <class T> static bool of(T a, T b) { return a == a && b == b; } };

void split(Warp& w, const Instruction& i, uint32_t lanes) {
  const Source a = source(w, i.a);
  const uint32_t u = undefined(w, i.a), half = i.bytes() * 4;  // bits
  const uint64_t mask = (1ull << half) - 1;
  for (int k = 1; k >= 0; --k) {
    uint64_t* d = target(w, i.v[k]);
    each_lane(lanes, [&](uint32_t l) { d[l] = (a[l] >> (half * k)) & mask; });
    define(w, i.v[k], lanes, u);
  }
}

void join(Warp& w, const Instruction& i, uint32_t lanes) {
  const Source a = source(w, i.v[0]), b = source(w, i.v[1]);
  const uint32_t u = undefined(w, i.v[0]) | undefined(w, i.v[1]), half = i.bytes() * 4;
  const uint64_t mask = (1ull << half) - 1;
  uint64_t* d = target(w, i.d);
  each_lane(lanes, [&](uint32_t l) { d[l] = (a[l] & mask) | ((b[l] & mask) << half); });
  define(w, i.d, lanes, u);
}

void address_of(Warp& w, const Instruction& i, uint32_t lanes) {
  const uint64_t base = (i.base == Base::kShared ? w.block->shared_begin : w.block->grid->args_begin()) + static_cast<uint64_t>(i.offset);
  uint64_t* d = target(w, i.d);
  each_lane(lanes, [&](uint32_t l) { d[l] = base; });
  define(w, i.d, lanes, 0);
}

template <int kWhich>
void special(Warp& w, const Instruction& i, uint32_t lanes) {
  uint64_t* d = target(w, i.d);
  const uint64_t now = kWhich == 4 ? w.machine->time() : 0;
  each_lane(lanes, [&](uint32_t l) {
    switch (kWhich) {
      case 0: d[l] = w.first + l; break;
      case 1: d[l] = w.block->grid->launch.block; break;
      case 2: d[l] = w.block->id; break;
      case 3: d[l] = w.block->grid->launch.grid; break;
      case 5: d[l] = w.block->id % w.block->grid->launch.cluster; break;
      case 6: d[l] = w.block->grid->launch.cluster; break;
      default: d[l] = now;
    }
  });
  define(w, i.d, lanes, 0);
}

template <class F>
void compare(Forms& f, const std::string& name) {
  const std::string op = "setp." + name + ".";
  f[op + "u16"] = {binary<uint16_t, F>, Kind::kPlain, Type::kU16, Type::kU16};
  f[op + "u32"] = {binary<uint32_t, F>, Kind::kPlain, Type::kU32, Type::kU32};
  f[op + "u64"] = {binary<uint64_t, F>, Kind::kPlain, Type::kU64, Type::kU64};
  f[op + "s16"] = {binary<int16_t, F>, Kind::kPlain, Type::kS16, Type::kS16};
  f[op + "s32"] = {binary<int32_t, F>, Kind::kPlain, Type::kS32, Type::kS32};
  f[op + "s64"] = {binary<int64_t, F>, Kind::kPlain, Type::kS64, Type::kS64};
}
template <class F>
void compare_floats(Forms& f, const std::string& name) {
  f["setp." + name + ".f32"] = {binary<float, F>, Kind::kPlain, Type::kF32, Type::kF32};
  f["setp." + name + ".f64"] = {binary<double, F>, Kind::kPlain, Type::kF64, Type::kF64};
}
// Pairs of small floats, compared half by half: a mask.
template <double (*kValue)(uint32_t), class F>
void pairs(Warp& w, const Instruction& i, uint32_t lanes) {
  const Source a = source(w, i.a), b = source(w, i.b);
  const uint32_t u = undefined(w, i.a) | undefined(w, i.b);
  uint64_t* d = target(w, i.d);
  const auto half = [](uint64_t v, int k) { return kValue(static_cast<uint32_t>(v >> 16 * k) & 0xffff); };
  each_lane(lanes, [&](uint32_t l) {
    d[l] = (F::of(half(a[l], 0), half(b[l], 0)) ? 0xffffull : 0) | (F::of(half(a[l], 1), half(b[l], 1)) ? 0xffff0000ull : 0);
  });
  define(w, i.d, lanes, u);
}
template <class F>
void compare_pairs(Forms& f, const std::string& name) {
  f["set." + name + ".u32.f16x2"] = {pairs<half_value, F>, Kind::kPlain, Type::kU32, Type::kF16x2};
  f["set." + name + ".u32.bf16x2"] = {pairs<bfloat_value, F>, Kind::kPlain, Type::kU32, Type::kBf16x2};
}
template <class F>
void compare_bits(Forms& f, const std::string& name) {
  f["setp." + name + ".b16"] = {binary<uint16_t, F>, Kind::kPlain, Type::kB16, Type::kB16};
  f["setp." + name + ".b32"] = {binary<uint32_t, F>, Kind::kPlain, Type::kB32, Type::kB32};
  f["setp." + name + ".b64"] = {binary<uint64_t, F>, Kind::kPlain, Type::kB64, Type::kB64};
}

void put(Forms& f, const char* name, Handler run) {
  const std::string n = name;
  Type type = Type::kNone;
  parse_type(n.substr(n.find_last_of('.') + 1), &type);
  f[n] = {run, Kind::kPlain, type, type};
}

template <class F>
void put_signed(Forms& f, const std::string& op) {
  put(f, (op + "s16").c_str(), binary<int16_t, F>);
  put(f, (op + "s32").c_str(), binary<int32_t, F>);
  put(f, (op + "s64").c_str(), binary<int64_t, F>);
}
template <class F>
void put_unsigned(Forms& f, const std::string& op) {
  put(f, (op + "u16").c_str(), binary<uint16_t, F>);
  put(f, (op + "u32").c_str(), binary<uint32_t, F>);
  put(f, (op + "u64").c_str(), binary<uint64_t, F>);
}
template <class F>
void put_bits(Forms& f, const std::string& op) {
  put(f, (op + "pred").c_str(), decided<bool, F>);
  put(f, (op + "b16").c_str(), decided<uint16_t, F>);
  put(f, (op + "b32").c_str(), decided<uint32_t, F>);
  put(f, (op + "b64").c_str(), decided<uint64_t, F>);
}

}  // namespace

void add_operations(Forms* forms) {
  Forms& f = *forms;
  put_signed<Add>(f, "add."), put_signed<Sub>(f, "sub."), put_signed<Mul>(f, "mul.lo.");
  put_signed<Div>(f, "div."), put_signed<Rem>(f, "rem."), put_signed<Min>(f, "min."), put_signed<Max>(f, "max.");
  put_unsigned<Div>(f, "div."), put_unsigned<Rem>(f, "rem."), put_unsigned<Min>(f, "min."), put_unsigned<Max>(f, "max.");
  put_bits<And>(f, "and."), put_bits<Or>(f, "or."), put(f, "xor.pred", binary<bool, Xor>);
  put(f, "xor.b16", binary<uint16_t, Xor>), put(f, "xor.b32", binary<uint32_t, Xor>), put(f, "xor.b64", binary<uint64_t, Xor>);
  put(f, "add.f32", binary<float, Add>), put(f, "add.rn.f32", binary<float, Add>), put(f, "add.rn.f64", binary<double, Add>);
  put(f, "min.f32", binary<float, OfNumbers<Min>>), put(f, "max.f32", binary<float, OfNumbers<Max>>);
  put(f, "mul.rn.f32", binary<float, Mul>), put(f, "mul.rn.f64", binary<double, Mul>);
  put(f, "div.rn.f64", binary<double, Div>), put(f, "rcp.rn.f64", unary<double, Reciprocal>);
  put(f, "sub.rn.f32", binary<float, Sub>), put(f, "div.rn.f32", binary<float, Div>);
  put(f, "rcp.rn.f32", unary<float, Reciprocal>), put(f, "sqrt.rn.f32", unary<float, SquareRoot>);
  put(f, "fma.rn.f64", ternary<double, MulAdd>);
  put(f, "mul.hi.u32", binary<uint32_t, MulHigh>), put(f, "mul.hi.u64", binary<uint64_t, MulHigh>);
  put(f, "mul.wide.u16", multiply_wide<uint32_t, uint16_t>), put(f, "mul.wide.u32", multiply_wide<uint64_t, uint32_t>), put(f, "mul.wide.s32", multiply_wide<int64_t, int32_t>);
  put(f, "mad.lo.s32", ternary<int32_t, MulAdd>), put(f, "mad.lo.s64", ternary<int64_t, MulAdd>);
  put(f, "neg.s16", unary<int16_t, Neg>), put(f, "neg.s32", unary<int32_t, Neg>), put(f, "neg.s64", unary<int64_t, Neg>);
  put(f, "neg.f64", unary<double, Neg>), put(f, "neg.f32", unary<float, Neg>);
  put(f, "not.pred", unary<bool, Not>), put(f, "not.b16", unary<uint16_t, Not>), put(f, "not.b32", unary<uint32_t, Not>);
  put(f, "not.b64", unary<uint64_t, Not>);
  put(f, "shl.b16", shift_left<uint16_t>), put(f, "shl.b32", shift_left<uint32_t>), put(f, "shl.b64", shift_left<uint64_t>);
  put(f, "shr.u16", shift_right<uint16_t>), put(f, "shr.u32", shift_right<uint32_t>), put(f, "shr.u64", shift_right<uint64_t>);
  put(f, "shr.s16", shift_right<int16_t>), put(f, "shr.s32", shift_right<int32_t>), put(f, "shr.s64", shift_right<int64_t>);
  put(f, "bfe.u32", extract<uint32_t>), put(f, "bfe.u64", extract<uint64_t>), put(f, "bfe.s32", extract<int32_t>), put(f, "bfe.s64", extract<int64_t>), put(f, "prmt.b32", permute);
  put(f, "bfi.b32", insert<uint32_t>), put(f, "bfi.b64", insert<uint64_t>);
  for (const char* t : {"selp.b16", "selp.s16", "selp.u16", "selp.b32", "selp.b64", "selp.f32", "selp.f64", "selp.s32", "selp.u32", "selp.s64", "selp.u64"}) put(f, t, select);
  compare<Eq>(f, "eq"), compare<Ne>(f, "ne"), compare<Lt>(f, "lt"), compare<Le>(f, "le"), compare<Gt>(f, "gt"), compare<Ge>(f, "ge");
  compare_bits<Eq>(f, "eq"), compare_bits<Ne>(f, "ne");
  compare_floats<Eq>(f, "eq"), compare_floats<Ne>(f, "ne"), compare_floats<Lt>(f, "lt"), compare_floats<Le>(f, "le");
  compare_floats<Gt>(f, "gt"), compare_floats<Ge>(f, "ge"), compare_floats<Equ>(f, "equ"), compare_floats<Neu>(f, "neu");
  compare_floats<Ltu>(f, "ltu"), compare_floats<Leu>(f, "leu"), compare_floats<Gtu>(f, "gtu"), compare_floats<Geu>(f, "geu");
  compare_floats<Nan>(f, "nan"), compare_floats<Num>(f, "num");
  compare_pairs<Lt>(f, "lt"), compare_pairs<Nan>(f, "nan");
  put(f, "mov.pred", unary<bool, Same>);
  for (const char* t : {"mov.b16", "mov.u16"}) put(f, t, unary<uint16_t, Same>);
  for (const char* t : {"mov.b32", "mov.u32", "mov.f32"}) put(f, t, unary<uint32_t, Same>);
  for (const char* t : {"mov.b64", "mov.u64", "mov.f64", "cvta.to.global.u64", "cvta.global.u64", "cvta.shared.u64", "cvta.to.shared.u64"}) put(f, t, unary<uint64_t, Same>);
  f["mov.split"] = {split, Kind::kPlain, Type::kNone, Type::kNone};
  f["mov.join"] = {join, Kind::kPlain, Type::kNone, Type::kNone};
  f["mov.address"] = {address_of, Kind::kPlain, Type::kB64, Type::kNone};
  f["%tid.x"] = {special<0>, Kind::kPlain, Type::kU32, Type::kNone};
  f["%ntid.x"] = {special<1>, Kind::kPlain, Type::kU32, Type::kNone};
  f["%ctaid.x"] = {special<2>, Kind::kPlain, Type::kU32, Type::kNone};
  f["%nctaid.x"] = {special<3>, Kind::kPlain, Type::kU32, Type::kNone};
  f["%cluster_ctarank"] = {special<5>, Kind::kPlain, Type::kU32, Type::kNone};
  f["%cluster_nctarank"] = {special<6>, Kind::kPlain, Type::kU32, Type::kNone};
  f["%globaltimer"] = {special<4>, Kind::kPlain, Type::kU64, Type::kNone};
}

}  // namespace ptx
