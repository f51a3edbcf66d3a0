// Loads, stores and atomic operations. Each is one access of the host, so that kernels of other processes and threads
// see values of up to 8 bytes whole. The threads of a warp store lines from their first word to their last and load
// them from the last to the first: a reader that sees the flag at the end of a line sees the line.
#include "forms.h"
#include "machine.h"
#include "race.h"

namespace ptx {
namespace {

template <class T>
uint64_t get(uint64_t at) { return __atomic_load_n(reinterpret_cast<const T*>(at), __ATOMIC_ACQUIRE); }
template <class T>
void put(uint64_t at, uint64_t v) { __atomic_store_n(reinterpret_cast<T*>(at), static_cast<T>(v), __ATOMIC_RELEASE); }

uint64_t get(uint64_t at, int bytes) {
  switch (bytes) {
    case 1: return get<uint8_t>(at);
    case 2: return get<uint16_t>(at);
    case 4: return get<uint32_t>(at);
    default: return get<uint64_t>(at);
  }
}

void put(uint64_t at, uint64_t v, int bytes) {
  switch (bytes) {
    case 1: return put<uint8_t>(at, v);
    case 2: return put<uint16_t>(at, v);
    case 4: return put<uint32_t>(at, v);
    default: return put<uint64_t>(at, v);
  }
}

uint64_t address(const Warp& w, const Instruction& i, const Source& a, uint32_t lane) {
  const uint64_t base = i.base == Base::kShared ? w.block->shared_begin : i.base == Base::kEntry ? w.block->grid->args_begin() : a[lane];
  return base + static_cast<uint64_t>(i.offset);
}

void defined(Warp& w, const Instruction& i, Operand o, uint32_t lanes, const char* what) {
  if (const uint32_t bad = undefined(w, o) & lanes) w.fail(i, static_cast<uint32_t>(__builtin_ctz(bad)), std::string(what) + " was never set");
}

template <class F>
void each_lane_down(uint32_t lanes, F f) {
  for (uint32_t m = lanes; m != 0;) {
    const uint32_t l = 31 - static_cast<uint32_t>(__builtin_clz(m));
    m &= ~(1u << l);
    f(l);
  }
}

uint64_t extended(const Instruction& i, uint64_t v) {
  if (!is_signed(i.type) || i.bytes() * 8 >= i.width) return v;
  const int unused = 64 - i.bytes() * 8;
  const uint64_t all = static_cast<uint64_t>(static_cast<int64_t>(v << unused) >> unused);
  return i.width >= 64 ? all : all & ((1ull << i.width) - 1);
}

}  // namespace

void load(Warp& w, const Instruction& i, uint32_t lanes) {
  defined(w, i, i.a, lanes, "the address");
  const Source a = source(w, i.a);
  const int size = i.bytes();
  const auto one = [&](uint32_t l) {
    const uint64_t from = address(w, i, a, l), all = static_cast<uint64_t>(size) * i.vector;
    const Region& region = w.machine->region(w, i, l, from, all);
    if (region.window()) w.fail(i, l, "a plain access to a multicast window");
    // A planted weakening that passes does not wait, so it learns nothing from what is there.
    if (Races* r = w.machine->races; r != nullptr && !i.passes) r->load(w, i, l, from, all);
    // As many bytes at once as there are, up to 8: a packet is whole.
    if (i.vector > 1 && size == 4) {
      for (int k = i.vector - 2; k >= 0; k -= 2) {
        const uint64_t both = get<uint64_t>(from + 4 * k);
        target(w, i.v[k])[l] = both & 0xffffffffull;
        target(w, i.v[k + 1])[l] = both >> 32;
      }
      return;
    }
    for (int k = 0; k < i.vector; ++k) target(w, i.v[k])[l] = i.passes ? ~0ull >> (64 - 8 * size) : extended(i, get(from + k * size, size));
  };
  if (i.is_volatile) each_lane_down(lanes, one);
  else each_lane(lanes, one);
  for (int k = 0; k < i.vector; ++k) define(w, i.v[k], lanes, 0);
}

void load_parameter(Warp& w, const Instruction& i, uint32_t lanes) {
  defined(w, i, i.a, lanes, "the address");
  const Source a = source(w, i.a);
  const int size = i.bytes();
  const uint64_t begin = w.block->grid->args_begin(), end = begin + w.block->grid->launch.arguments.size();
  each_lane(lanes, [&](uint32_t l) {
    const uint64_t from = address(w, i, a, l);
    if (from < begin || from + static_cast<uint64_t>(size) * i.vector > end) w.fail(i, l, "outside of the parameters");
    for (int k = 0; k < i.vector; ++k) target(w, i.v[k])[l] = extended(i, get(from + k * size, size));
  });
  for (int k = 0; k < i.vector; ++k) define(w, i.v[k], lanes, 0);
}

void store(Warp& w, const Instruction& i, uint32_t lanes) {
  defined(w, i, i.a, lanes, "the address");
  const Source a = source(w, i.a);
  const int size = i.bytes();
  Source v[4];
  for (int k = 0; k < i.vector; ++k) {
    // The last packets of a message are filled up with whatever there is: those who poll do not use it.
    if (!i.is_volatile) defined(w, i, i.v[k], lanes, "what is stored");
    v[k] = source(w, i.v[k]);
  }
  each_lane(lanes, [&](uint32_t l) {
    const uint64_t to = address(w, i, a, l), all = static_cast<uint64_t>(size) * i.vector;
    const Region& region = w.machine->region(w, i, l, to, all);
    if (region.window()) w.fail(i, l, "a plain access to a multicast window");
    if (Races* r = w.machine->races) r->store(w, i, l, to, all);
    if (i.vector > 1 && size == 4) {
      for (int k = 0; k < i.vector; k += 2) put<uint64_t>(to + 4 * k, (v[k][l] & 0xffffffffull) | v[k + 1][l] << 32);
      return;
    }
    for (int k = 0; k < i.vector; ++k) put(to + k * size, v[k][l], size);
  });
}

// atom.add and red.add.
void atomic_add(Warp& w, const Instruction& i, uint32_t lanes) {
  defined(w, i, i.a, lanes, "the address");
  defined(w, i, i.b, lanes, "what is added");
  const Source a = source(w, i.a), b = source(w, i.b);
  each_lane(lanes, [&](uint32_t l) {
    const uint64_t at = address(w, i, a, l);
    if (w.machine->region(w, i, l, at, i.bytes()).window()) w.fail(i, l, "a plain access to a multicast window");
    if (Races* r = w.machine->races) r->update(w, i, l, at, i.bytes());
    const uint64_t old = i.bytes() == 8 ? __atomic_fetch_add(reinterpret_cast<uint64_t*>(at), b[l], __ATOMIC_ACQ_REL)
                                        : __atomic_fetch_add(reinterpret_cast<uint32_t*>(at), static_cast<uint32_t>(b[l]), __ATOMIC_ACQ_REL);
    if (i.d.present()) target(w, i.d)[l] = old;
  });
  if (i.d.present()) define(w, i.d, lanes, 0);
}

void compare_and_swap(Warp& w, const Instruction& i, uint32_t lanes) {
  defined(w, i, i.a, lanes, "the address");
  defined(w, i, i.b, lanes, "what is expected");
  defined(w, i, i.c, lanes, "what is stored");
  const Source a = source(w, i.a), b = source(w, i.b), c = source(w, i.c);
  each_lane(lanes, [&](uint32_t l) {
    const uint64_t at = address(w, i, a, l);
    if (w.machine->region(w, i, l, at, i.bytes()).window()) w.fail(i, l, "a plain access to a multicast window");
    if (Races* r = w.machine->races) r->update(w, i, l, at, i.bytes());
    uint64_t old = b[l];
    if (i.bytes() == 8) {
      __atomic_compare_exchange_n(reinterpret_cast<uint64_t*>(at), &old, c[l], false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    } else {
      uint32_t low = static_cast<uint32_t>(old);
      __atomic_compare_exchange_n(reinterpret_cast<uint32_t*>(at), &low, static_cast<uint32_t>(c[l]), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
      old = low;
    }
    target(w, i.d)[l] = old;
  });
  define(w, i.d, lanes, 0);
}

}  // namespace ptx
