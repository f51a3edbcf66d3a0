// Broadcast and reduce, in which one rank has, or gets, everything.
#ifndef MSCCLPP_COLLECTIVES_ROOTED_H_
#define MSCCLPP_COLLECTIVES_ROOTED_H_

#include "links.h"

namespace mscclpp {
namespace collectives {

// broadcast_chunk: the root stages each chunk once, and all others read it.
MSCCLPP_DEVICE void broadcast_chunk(const Args& a) {
  const Common& c = a.common;
  if (!agree(c)) return;
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint32_t tid = thread_id(), threads = block_dim();
  for (uint32_t lane = block_id(); lane < c.lanes; lane += grid_dim()) {
    Stage stage(c, lane);
    const Steps steps{a.count * a.element, a.chunk, lane, c.lanes};
    const uint64_t n = steps.size();
    for (uint64_t k = 0; k < n; ++k) {
      const uint64_t at = steps.first(k), bytes = steps.count(k);
      if (c.rank == a.root) {
        char* slot = stage.slot(k);
        if (slot == nullptr) return;
        copy(slot, in + at, bytes, tid, threads);
        stage.publish(k);
        if (out != in) copy(out + at, in + at, bytes, tid, threads);
      } else {
        if (!stage.wait(a.root, k)) return;
        copy(out + at, stage.data(a.root, k), bytes, tid, threads);
        stage.release(a.root, k);
      }
    }
    stage.close_one(a.root, n);
  }
}

// reduce_chunk: all others send to the root, which reduces in rank order.
template <class T>
MSCCLPP_DEVICE void reduce_chunk(const Args& a) {
  const Common& c = a.common;
  if (!agree(c)) return;
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint32_t tid = thread_id(), threads = block_dim();
  for (uint32_t lane = block_id(); lane < c.lanes; lane += grid_dim()) {
    const Steps steps{a.count, Pipe::payload(c) / sizeof(T), lane, c.lanes};
    for (uint64_t k = 0; k < steps.size(); ++k) {
      const uint64_t at = steps.first(k) * sizeof(T);
      if (c.rank != a.root) {
        if (!Pipe::wait_room(c, lane, a.root)) return;
        copy(Pipe::data(Pipe::to(c, lane, a.root)), in + at, steps.count(k) * sizeof(T), tid, threads);
        Pipe::put(c, lane, a.root);
        continue;
      }
      for (uint32_t r = 0; r < c.ranks; ++r) {
        if (r != c.rank && !Pipe::wait_ready(c, lane, r)) return;
      }
      const auto inputs = [&](uint32_t r) MSCCLPP_LAMBDA { return r == c.rank ? in + at : Pipe::data(Pipe::from(c, lane, r)); };
      reduce_step<T>(out + at, inputs, c.ranks, steps.count(k), reduction_of(a));
      for (uint32_t r = 0; r < c.ranks; ++r) {
        if (r != c.rank) Pipe::take(c, lane, r);
      }
    }
  }
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_ROOTED_H_
