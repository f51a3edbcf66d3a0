// Multicast: a store reaches all copies of a window, a load reduces over them.
#include <string.h>

#include "exact.h"
#include "forms.h"
#include "machine.h"
#include "race.h"
#include "values.h"

namespace ptx {
namespace {

// The window behind an address, which has to be aligned to the whole access.
const Region& window(Warp& w, const Instruction& i, uint32_t lane, uint64_t at, uint64_t bytes) {
  const Region& region = w.machine->region(w, i, lane, at, bytes);
  if (!region.window()) w.fail(i, lane, "multimem on memory that is no multicast window");
  w.machine->counts.multimem++;
  return region;
}

uint64_t word(const char* at, int bytes) {
  if (bytes == 8) return __atomic_load_n(reinterpret_cast<const uint64_t*>(at), __ATOMIC_ACQUIRE);
  return __atomic_load_n(reinterpret_cast<const uint32_t*>(at), __ATOMIC_ACQUIRE);
}

void put_word(char* at, uint64_t v, int bytes) {
  if (bytes == 8) __atomic_store_n(reinterpret_cast<uint64_t*>(at), v, __ATOMIC_RELEASE);
  else __atomic_store_n(reinterpret_cast<uint32_t*>(at), static_cast<uint32_t>(v), __ATOMIC_RELEASE);
}

uint64_t sum(Type type, int bytes, const std::vector<char*>& copies, uint64_t offset) {
  if (type == Type::kF32 || type == Type::kF64) {
    ExactSum exact;
    for (const char* c : copies) {
      const uint64_t v = word(c + offset, bytes);
      exact.add(type == Type::kF32 ? static_cast<double>(value<float>(v)) : value<double>(v));
    }
    return type == Type::kF32 ? bits(exact.as_float()) : bits(exact.as_double());
  }
  if (type == Type::kF16x2 || type == Type::kBf16x2) {
    ExactSum low, high;
    const auto of = type == Type::kF16x2 ? half_value : bfloat_value;
    for (const char* c : copies) {
      const uint32_t v = static_cast<uint32_t>(word(c + offset, 4));
      low.add(of(v & 0xffff));
      high.add(of(v >> 16));
    }
    if (type == Type::kF16x2) return low.as_half() | static_cast<uint64_t>(high.as_half()) << 16;
    return low.as_bfloat() | static_cast<uint64_t>(high.as_bfloat()) << 16;
  }
  uint64_t all = 0;
  for (const char* c : copies) all += word(c + offset, bytes);
  return bytes == 8 ? all : all & 0xffffffffull;
}

// Whether the first of two elements takes the place of the second in a minimum. A NaN does not, and zeros are in the order of their signs.
bool below(Type type, uint64_t a, uint64_t b) {
  switch (type) {
    case Type::kS32: return static_cast<int32_t>(a) < static_cast<int32_t>(b);
    case Type::kS64: return static_cast<int64_t>(a) < static_cast<int64_t>(b);
    case Type::kF16x2: case Type::kBf16x2: {
      const auto of = type == Type::kF16x2 ? half_value : bfloat_value;
      const double x = of(static_cast<uint32_t>(a)), y = of(static_cast<uint32_t>(b));
      return x != x ? false : y != y || x < y || (x == y && (a & 0x8000) > (b & 0x8000));
    }
    default: return a < b;
  }
}

// The minimum or maximum of one element; the width of elements is that of the type, or half a word.
uint64_t extreme(Type type, bool most, const std::vector<uint64_t>& values, int shift, uint64_t mask) {
  uint64_t best = values[0] >> shift & mask;
  const bool floats = type == Type::kF16x2 || type == Type::kBf16x2;
  for (size_t k = 1; k < values.size(); ++k) {
    const uint64_t v = values[k] >> shift & mask;
    bool better = most ? below(type, best, v) : below(type, v, best);
    if (floats && most) {  // a NaN gives way to the other one here, too
      const auto of = type == Type::kF16x2 ? half_value : bfloat_value;
      const double old = of(static_cast<uint32_t>(best)), now = of(static_cast<uint32_t>(v));
      better = now == now && (old != old || better);
    }
    if (better) best = v;
  }
  return best;
}

uint64_t extremes(Type type, bool most, int bytes, const std::vector<char*>& copies, uint64_t offset) {
  std::vector<uint64_t> values;
  for (const char* c : copies) values.push_back(word(c + offset, bytes));
  if (type == Type::kF16x2 || type == Type::kBf16x2) {
    return extreme(type, most, values, 0, 0xffff) | extreme(type, most, values, 16, 0xffff) << 16;
  }
  return extreme(type, most, values, 0, bytes == 8 ? ~0ull : 0xffffffffull);
}

template <class F>
void each_access(Warp& w, const Instruction& i, uint32_t lanes, F f) {
  if (const uint32_t bad = undefined(w, i.a) & lanes) w.fail(i, static_cast<uint32_t>(__builtin_ctz(bad)), "the address was never set");
  const Source a = source(w, i.a);
  const uint64_t all = static_cast<uint64_t>(i.bytes()) * i.vector;
  each_lane(lanes, [&](uint32_t l) {
    const uint64_t at = a[l] + static_cast<uint64_t>(i.offset);
    const Region& region = window(w, i, l, at, all);
    if (Races* r = w.machine->races) {
      for (char* c : region.copies) r->multimem(w, i, l, reinterpret_cast<uint64_t>(c) + (at - region.begin), all);
      r->after_multimem(w, l);
    }
    f(l, region, at - region.begin);
  });
}

template <class F>
void load_reduced(Warp& w, const Instruction& i, uint32_t lanes, F reduced) {
  each_access(w, i, lanes, [&](uint32_t l, const Region& region, uint64_t offset) {
    for (int k = 0; k < i.vector; ++k) target(w, i.v[k])[l] = reduced(region.copies, offset + static_cast<uint64_t>(k * i.bytes()));
  });
  for (int k = 0; k < i.vector; ++k) define(w, i.v[k], lanes, 0);
}

}  // namespace

void multimem_load(Warp& w, const Instruction& i, uint32_t lanes) {
  load_reduced(w, i, lanes, [&](const std::vector<char*>& c, uint64_t at) { return sum(i.type, i.bytes(), c, at); });
}
void multimem_min(Warp& w, const Instruction& i, uint32_t lanes) {
  load_reduced(w, i, lanes, [&](const std::vector<char*>& c, uint64_t at) { return extremes(i.type, false, i.bytes(), c, at); });
}
void multimem_max(Warp& w, const Instruction& i, uint32_t lanes) {
  load_reduced(w, i, lanes, [&](const std::vector<char*>& c, uint64_t at) { return extremes(i.type, true, i.bytes(), c, at); });
}

void multimem_store(Warp& w, const Instruction& i, uint32_t lanes) {
  Source v[4];
  for (int k = 0; k < i.vector; ++k) {
    if (const uint32_t bad = undefined(w, i.v[k]) & lanes) w.fail(i, static_cast<uint32_t>(__builtin_ctz(bad)), "what is stored was never set");
    v[k] = source(w, i.v[k]);
  }
  each_access(w, i, lanes, [&](uint32_t l, const Region& region, uint64_t offset) {
    for (char* c : region.copies) {
      for (int k = 0; k < i.vector; ++k) put_word(c + offset + k * i.bytes(), v[k][l], i.bytes());
    }
  });
}

void multimem_add(Warp& w, const Instruction& i, uint32_t lanes) {
  if (const uint32_t bad = undefined(w, i.b) & lanes) w.fail(i, static_cast<uint32_t>(__builtin_ctz(bad)), "what is added was never set");
  const Source b = source(w, i.b);
  each_access(w, i, lanes, [&](uint32_t l, const Region& region, uint64_t offset) {
    for (char* c : region.copies) {
      if (i.bytes() == 8) __atomic_fetch_add(reinterpret_cast<uint64_t*>(c + offset), b[l], __ATOMIC_ACQ_REL);
      else __atomic_fetch_add(reinterpret_cast<uint32_t*>(c + offset), static_cast<uint32_t>(b[l]), __ATOMIC_ACQ_REL);
    }
  });
}

}  // namespace ptx
