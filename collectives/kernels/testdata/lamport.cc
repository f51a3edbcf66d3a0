// Reductions by packets without a flag in the checking emulator: two, three, four and eight ranks with grids of different shapes,
// calls one after another as in a stream, of sizes that end within a unit, from buffers of any alignment, some in
// place. Some elements are the sentinel, or look like a part of it. Behind the calls nothing is left in the areas.
#define MSCCLPP_TYPE 2
#include <mscclpp/check.h>

#include "../lamport_family.h"

using namespace mscclpp;
using namespace mscclpp::collectives;

namespace {

constexpr uint32_t kCalls = 6;
constexpr uint64_t kCounts[kCalls] = {1, 130, 0, 257, 16, 129};
constexpr uint64_t kMost = 257 * kLLRanks + 16, kSlot = 4096;

enum Shape { kOneShot, kScatter, kRooted };

template <class T, Shape kShape>
void kernel(const LLArgs& a) {
  if constexpr (kShape == kOneShot) {
    MSCCLPP_LAMPORT(lamport_allreduce, T, a)
  } else if constexpr (kShape == kScatter) {
    MSCCLPP_LAMPORT(lamport_reducescatter, T, a)
  } else {
    MSCCLPP_LAMPORT(lamport_reduce, T, a)
  }
}

struct Sequence {
  void (*kernel)(const LLArgs&);
  LLArgs calls[kCalls];
  GridBarrier* stream;
};

void sequence(const Sequence* s, const LaunchShape*) {
  for (const LLArgs& call : s->calls) {
    s->kernel(call);
    if (!grid_sync(s->stream, call.control)) return;
  }
}

// Whole numbers, whose sums have no error, and now and then a NaN of all ones.
template <class T>
T value(uint32_t rank, uint32_t call, uint64_t i) {
  if (i % 61 == 3 && rank == call % 2) {
    T ones;
    memset(static_cast<void*>(&ones), 0xff, sizeof(T));
    return ones;
  }
  return narrow_element<T>(static_cast<Accumulator<T>>((rank * 3 + call * 5 + i) % 7));
}

// An f64 whose lower half is the sentinel is a number.
template <>
double value<double>(uint32_t rank, uint32_t call, uint64_t i) {
  if (i % 61 == 3 && rank == call % 2) return __builtin_bit_cast(double, ~0ull);
  return __builtin_bit_cast(double, uint64_t(0x3ff00000u + (rank + call + i) % 4) << 32 | 0xffffffffu);
}

template <class T>
bool is_nan(T v) { return widen_element(v) != widen_element(v); }

template <class T, Shape kShape>
void collective(check::Job& job, uint32_t ranks, Check check, uint32_t op, bool one = false) {
  const uint64_t area = ranks * sizeof(Mailbox), half = (one ? 1 : ranks) * kSlot;
  std::vector<char*> scratch;
  for (uint32_t r = 0; r < ranks; ++r) {
    scratch.push_back(job.alloc<char>(area + 2 * half));
    memset(scratch[r] + area, 0xff, 2 * half);
  }
  std::vector<Sequence> s(ranks);
  std::vector<std::vector<T*>> out(ranks);
  for (uint32_t r = 0; r < ranks; ++r) {
    s[r].kernel = kernel<T, kShape>;
    s[r].stream = job.alloc<GridBarrier>(1);
    State* state = job.alloc<State>(1);
    for (uint32_t k = 0; k < kCalls; ++k) {
      LLArgs& a = s[r].calls[k];
      memset(static_cast<void*>(&a), 0, sizeof(a));
      a.control = job.control(r);
      a.state = a.notes = state;
      a.rank = r;
      a.ranks = ranks;
      a.check = check;
      a.release = k % 3;
      a.area = area;
      a.half = half;
      a.slot = one ? 0 : kSlot;
      a.count = kCounts[k];
      a.op = op;
      a.element = sizeof(T);
      a.scale = 2;
      a.signature.count = a.count;
      a.signature.root = k % ranks;
      const uint64_t given = kShape == kScatter ? a.count * ranks : a.count;
      for (uint32_t p = 0; p < ranks; ++p) a.scratch[p] = reinterpret_cast<uint64_t>(scratch[p]);
      const uint32_t shift = k == 3 ? r % 3 : 0;  // ranks need not be aligned alike
      T* in = job.alloc<T>(kMost) + shift;
      for (uint64_t i = 0; i < given; ++i) in[i] = value<T>(r, k, i);
      out[r].push_back(k % 2 == 1 ? in + (kShape == kScatter ? r * a.count : 0) : job.alloc<T>(kMost) + shift);
      a.input = in;
      a.output = out[r][k];
    }
  }
  for (uint32_t r = 0; r < ranks; ++r) job.launch(r, 1 + r % 3, r % 2 == 0 ? 4 : 3, sequence, s[r]);
  job.run();
  for (uint32_t r = 0; r < ranks; ++r) {
    for (uint32_t k = 0; k < kCalls; ++k) {
      if (kShape == kRooted && r != k % ranks) continue;
      for (uint64_t i = 0; i < kCounts[k]; ++i) {
        Accumulator<T> want = 0;
        bool nan = false;
        for (uint32_t p = 0; p < ranks; ++p) {
          const T x = value<T>(p, k, kShape == kScatter ? r * kCounts[k] + i : i);
          nan = nan || is_nan(x);
          want += widen_element(x) * (op == kPreMulSum ? 2 : 1);
        }
        if (op == kAvg) want /= static_cast<Accumulator<T>>(ranks);
        const T expected = narrow_element<T>(want), got = out[r][k][i];
        const bool same = memcmp(&got, &expected, sizeof(T)) == 0, alike = kShape >= kScatter || memcmp(&got, &out[0][k][i], sizeof(T)) == 0;
        job.expect(alike && (nan ? is_nan(got) : same), "rank %u of %u, call %u, element %llu", r, ranks, k, (unsigned long long)i);
      }
    }
    for (uint64_t i = area; i < area + 2 * half; ++i) {
      job.expect(scratch[r][i] == char(0xff), "rank %u of %u: byte %llu of the area is not empty", r, ranks, (unsigned long long)(i - area));
    }
  }
}

template <class T, Shape kShape>
void all(check::Job& job) {
  collective<T, kShape>(job, 4, kCheckCompare, kSum);
  collective<T, kShape>(job, 3, kCheckPublish, kSum);
  collective<T, kShape>(job, 2, kCheckNever, kSum);
  collective<T, kShape>(job, 2, kCheckNever, kSum, true);
  collective<T, kShape>(job, 8, kCheckNever, kSum);
  collective<T, kShape>(job, 3, kCheckNever, kAvg);
  collective<T, kShape>(job, 2, kCheckNever, kPreMulSum);
}

// A packet carries everything but the sentinel as it is, and in its place a NaN.
template <class T>
void carries(check::Job& job) {
  constexpr uint32_t kPatterns = sizeof(T) == 1 ? 1u << 8 : 1u << 16;
  for (uint32_t other : {0u, 1u, 0x7fu, 0x80u, 0xffu, 0x7fffu, 0xffffu}) {
    for (uint32_t i = 0; i < kPatterns; ++i) {
      uint8_t bytes[16], before[16];
      for (uint32_t k = 0; k < 16; ++k) bytes[k] = static_cast<uint8_t>((k / sizeof(T) % 2 == 0 ? i : other) >> (8 * (k % sizeof(T) % 2)));
      memcpy(before, bytes, 16);
      Vec16 v;
      memcpy(&v, bytes, 16);
      v = Sentinel<T>::scrub(v);
      memcpy(bytes, &v, 16);
      job.expect(Sentinel<T>::arrived(v), "pattern %x and %x: its packet never arrives", i, other);
      for (uint32_t k = 0; k < 16 / sizeof(T); ++k) {
        T x, y;
        memcpy(static_cast<void*>(&x), before + k * sizeof(T), sizeof(T));
        memcpy(static_cast<void*>(&y), bytes + k * sizeof(T), sizeof(T));
        job.expect(memcmp(&x, &y, sizeof(T)) == 0 || (is_nan(x) && is_nan(y)), "pattern %x and %x become something else", i, other);
      }
    }
  }
}

// A packet has not arrived before each of its words has.
template <class T>
void missing(check::Job& job) {
  constexpr uint32_t kWord = sizeof(T) == 8 ? 8 : 4;
  for (uint32_t first = 0; first < 16; first += kWord) {
    uint8_t bytes[16] = {};
    memset(bytes + first, 0xff, kWord);
    Vec16 v;
    memcpy(&v, bytes, 16);
    job.expect(!Sentinel<T>::arrived(v), "a packet without its word at %u has arrived", first);
  }
}

template <class T>
void packets(check::Job& job) {
  carries<T>(job);
  missing<T>(job);
}

}  // namespace

MSCCLPP_CHECK_MAIN({"oneshot bf16", all<bf16, kOneShot>}, {"oneshot f64", all<double, kOneShot>},
                   {"reduce-scatter bf16", all<bf16, kScatter>}, {"reduce bf16", all<bf16, kRooted>},
                   {"packets", [](check::Job& job) {
                      packets<float>(job);
                      packets<f16>(job);
                      packets<bf16>(job);
                      packets<e4m3>(job);
                      packets<e5m2>(job);
                      packets<double>(job);
                    }})
