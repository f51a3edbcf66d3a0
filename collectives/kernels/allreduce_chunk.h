// All-reduce through stages, for any size.
#ifndef MSCCLPP_COLLECTIVES_ALLREDUCE_CHUNK_H_
#define MSCCLPP_COLLECTIVES_ALLREDUCE_CHUNK_H_

#include "links.h"

namespace mscclpp {
namespace collectives {

// allreduce_allpair_chunk: every rank stages a chunk, and reduces the chunks of
// all. There is one exchange for each chunk, and staging chunk k + 1 overlaps with the
// peers' reading of chunk k.
template <class T>
MSCCLPP_DEVICE void allreduce_allpair_chunk(const Args& a) {
  const Common& c = a.common;
  if (!agree(c)) return;
  for (uint32_t lane = block_id(); lane < c.lanes; lane += grid_dim()) {
    Stage stage(c, lane);
    const Steps steps{a.count, a.chunk / sizeof(T), lane, c.lanes};
    const uint64_t n = steps.size();
    const char* in = static_cast<const char*>(a.input);
    char* out = static_cast<char*>(a.output);
    for (uint64_t k = 0; k <= n; ++k) {
      if (k < n) {
        char* slot = stage.slot(k);
        if (slot == nullptr) return;
        copy(slot, in + steps.first(k) * sizeof(T), steps.count(k) * sizeof(T), thread_id(), block_dim());
        stage.publish(k);
      }
      if (k == 0) continue;
      const uint64_t j = k - 1, at = steps.first(j) * sizeof(T);
      if (!stage.wait_all(j)) return;
      const auto inputs = [&](uint32_t r) MSCCLPP_LAMBDA { return r == c.rank ? in + at : stage.data(r, j); };
      reduce_step<T>(out + at, inputs, c.ranks, steps.count(j), reduction_of(a));
      stage.release_all(j);
    }
    stage.close(n);
  }
}

// allreduce_twophase_chunk: every rank stages a step, reduces its own slice of it
// from the stages of all, stages the result, and collects the results of the
// others. It copies and computes less than allpair, for two exchanges.
//
// Inputs of step k and results of step k go through one stage, in the order
//
//	I0  I1 R0  I2 R1  I3 R2  …
//
// in which a rank also consumes those of the others. So three slots let every rank
// run one step ahead, and with a fourth slow ranks do not delay fast ones.
template <class T>
MSCCLPP_DEVICE void allreduce_twophase_chunk(const Args& a) {
  const Common& c = a.common;
  if (!agree(c)) return;
  for (uint32_t lane = block_id(); lane < c.lanes; lane += grid_dim()) {
    Stage stage(c, lane);
    const Steps steps{a.count, a.chunk / sizeof(T), lane, c.lanes};
    const uint64_t n = steps.size();
    const char* in = static_cast<const char*>(a.input);
    char* out = static_cast<char*>(a.output);
    const uint32_t tid = thread_id(), threads = block_dim();

    auto input_number = [](uint64_t k) { return k == 0 ? 0 : 2 * k - 1; };
    auto result_number = [n](uint64_t k) MSCCLPP_LAMBDA { return k + 1 < n ? 2 * k + 2 : 2 * n - 1; };
    auto slice = [&](uint64_t k, uint32_t r) MSCCLPP_LAMBDA { return slice_of(steps.count(k), r, c.ranks, sizeof(T)); };
    // A rank reads no input of its own from its stage, so that slice is left out.
    auto stage_input = [&](uint64_t k) MSCCLPP_LAMBDA {
      char* slot = stage.slot(input_number(k));
      if (slot == nullptr) return false;
      const char* from = in + steps.first(k) * sizeof(T);
      const Slice own = slice(k, c.rank);
      const uint64_t before = own.first * sizeof(T), behind = (own.first + own.count) * sizeof(T);
      copy(slot, from, before, tid, threads);
      copy(slot + behind, from + behind, steps.count(k) * sizeof(T) - behind, tid, threads);
      stage.publish(input_number(k));
      return true;
    };
    auto reduce_own = [&](uint64_t k) MSCCLPP_LAMBDA {
      if (!stage.wait_all(input_number(k))) return false;
      char* slot = stage.slot(result_number(k));
      if (slot == nullptr) return false;
      const Slice own = slice(k, c.rank);
      const uint64_t at = own.first * sizeof(T), bytes = own.count * sizeof(T);
      const uint64_t step = steps.first(k) * sizeof(T);
      const auto inputs = [&](uint32_t r) MSCCLPP_LAMBDA { return r == c.rank ? in + step + at : stage.data(r, input_number(k)) + at; };
      reduce_step<T>(out + step + at, inputs, c.ranks, own.count, reduction_of(a));
      block_sync();
      copy(slot, out + step + at, bytes, tid, threads);
      stage.release_all(input_number(k));
      stage.publish(result_number(k));
      return true;
    };
    auto collect = [&](uint64_t k) MSCCLPP_LAMBDA {
      for (uint32_t i = 1; i < c.ranks; ++i) {
        const uint32_t peer = (c.rank + MSCCLPP_TURN(i, c.ranks)) % c.ranks;
        if (!stage.wait(peer, result_number(k))) return false;
        const Slice theirs = slice(k, peer);
        copy(out + (steps.first(k) + theirs.first) * sizeof(T), stage.data(peer, result_number(k)), theirs.count * sizeof(T), tid, threads);
      }
      stage.release_all(result_number(k));
      return true;
    };

    if (n > 0 && !stage_input(0)) return;
    for (uint64_t k = 0; k < n; ++k) {
      if (k + 1 < n && !stage_input(k + 1)) return;
      if (!reduce_own(k)) return;
      if (k > 0 && !collect(k - 1)) return;
    }
    if (n > 0 && !collect(n - 1)) return;
    stage.close(2 * n);
  }
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_ALLREDUCE_CHUNK_H_
