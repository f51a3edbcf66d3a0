// instructions.h for the checking emulator: lanes exchange their registers through memory,
// and copies arrive as late as they may. So the checking emulator shows whether every
// element is multiplied by its counterpart, and every slice is there in time.
#ifndef FUSED_INSTRUCTIONS_H_
#define FUSED_INSTRUCTIONS_H_

#include <map>
#include <vector>

#include <mscclpp/check.h>

namespace fused {
namespace tensor {

// The state that a block of threads shares. One kernel at a time.
struct Processor {
  struct Copy { uint32_t to; const char* from; };
  struct Lane {
    uint32_t address, a[4], b[2];
    std::vector<std::vector<Copy>> groups{1};  // the last is not committed yet
  };
  std::vector<char> memory;
  std::map<uint32_t, Lane> lanes;

  static Processor& here() {
    static std::map<uint32_t, Processor> all;  // by block
    return all[mscclpp::block_id()];
  }
  Lane& lane(uint32_t thread) { return lanes[thread]; }
  Lane& own() { return lanes[mscclpp::thread_id()]; }
  template <class T>
  T& at(uint32_t address) { return *reinterpret_cast<T*>(memory.data() + address); }
};

template <uint32_t Bytes>
uint32_t shared_memory() {
  Processor& p = Processor::here();
  if (p.memory.empty()) p.memory.resize(Bytes);
  return 0;
}

inline void copy16(uint32_t to, const char* from) { Processor::here().own().groups.back().push_back({to, from}); }
inline void commit() { Processor::here().own().groups.emplace_back(); }
template <int N>
void arrived() {
  Processor& p = Processor::here();
  auto& groups = p.own().groups;
  while (groups.size() > N + 1) {
    for (const auto& c : groups.front()) memcpy(&p.at<char>(c.to), c.from, 16);
    groups.erase(groups.begin());
  }
}

inline void load4(uint32_t (&r)[4], uint32_t from) {
  Processor& p = Processor::here();
  const uint32_t thread = mscclpp::thread_id(), lane = thread % 32, first = thread - lane;
  p.own().address = from;
  mscclpp::block_sync();
  for (uint32_t i = 0; i < 4; ++i) r[i] = p.at<uint32_t>(p.lane(first + i * 8 + lane / 4).address + lane % 4 * 4);
  mscclpp::block_sync();
}

inline float element(uint32_t pair, uint32_t i) {
  return mscclpp::to_float(mscclpp::f16{static_cast<uint16_t>(i % 2 == 0 ? pair : pair >> 16)});
}

// d += a times the transposed b, where row r and column c of a quarter of a are in lane
// 4 * r + c / 2.
inline void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  Processor& p = Processor::here();
  const uint32_t thread = mscclpp::thread_id(), lane = thread % 32, first = thread - lane;
  memcpy(p.own().a, a, sizeof a);
  p.own().b[0] = b0;
  p.own().b[1] = b1;
  mscclpp::block_sync();
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t row = lane / 4, column = lane % 4 * 2 + i % 2, below = i / 2;
    for (uint32_t k = 0; k < 16; ++k) {
      const uint32_t holder = k % 8 / 2, right = k / 8;
      d[i] += element(p.lane(first + row * 4 + holder).a[below + 2 * right], k) *
              element(p.lane(first + column * 4 + holder).b[right], k);
    }
  }
  mscclpp::block_sync();
}

inline uint32_t narrow2(float low, float high) {
  return mscclpp::from_float<mscclpp::f16>(low).bits | static_cast<uint32_t>(mscclpp::from_float<mscclpp::f16>(high).bits) << 16;
}
inline void put4(uint32_t to, uint32_t v) { Processor::here().at<uint32_t>(to) = v; }
inline mscclpp::Vec16 get16(uint32_t from) { return Processor::here().at<mscclpp::Vec16>(from); }

}  // namespace tensor
}  // namespace fused

#endif
