// The blocks that have a row together: a cluster, where the hardware has clusters, or one block. They add up over the row, and all
// threads get the same result, since all read the same parts in the same order.
#ifndef MSCCLPP_INFERENCE_TEAM_H_
#define MSCCLPP_INFERENCE_TEAM_H_

#include "norm_args.h"
#include <mscclpp/device.h>

#if MSCCLPP_TARGET_CUDA && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define MSCCLPP_CLUSTERS 1
#endif

namespace mscclpp {
namespace inference {

#if !MSCCLPP_TARGET_CPU

MSCCLPP_DEVICE float larger(float a, float b) { return a > b ? a : b; }

#if MSCCLPP_TARGET_CUDA
// Shared memory of a block. Parts of sums lie in two places by turns: a warp that is still reading the parts of one round has not sent its
// own of the next, for which the others wait before they write to the same place again.
struct Shared {
  static constexpr uint32_t kMostParts = 128, kMostPeers = 128;
  alignas(16) float parts[2][2 * kMostParts];
  uint64_t arrived[2];  // mbarriers
  char* peers[kMostPeers];
  uint64_t begun;
};

MSCCLPP_DEVICE float shuffled(float v, uint32_t distance) {
  float other;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, -1;" : "=f"(other) : "f"(v), "r"(distance));
  return other;
}
#endif

#if MSCCLPP_CLUSTERS
// Addresses of shared memory, as instructions for clusters take them.
MSCCLPP_DEVICE uint64_t shared_address(const void* p) { return reinterpret_cast<uint64_t>((const __attribute__((address_space(3))) void*)p); }
MSCCLPP_DEVICE uint64_t shared_of(uint64_t own, uint32_t block) {
  uint64_t at;
  asm volatile("mapa.shared::cluster.u64 %0, %1, %2;" : "=l"(at) : "l"(own), "r"(block));
  return at;
}
MSCCLPP_DEVICE void send_part(uint64_t to, uint64_t arrived, float v) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
               : : "l"(to), "r"(__builtin_bit_cast(uint32_t, v)), "l"(arrived) : "memory");
}
MSCCLPP_DEVICE bool phase_ended(uint64_t arrived, uint32_t parity) {
  uint32_t yes;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(yes) : "l"(arrived), "r"(parity) : "memory");
  return yes != 0;
}
#endif

struct Team {
  uint32_t rank = 0, size = 1;  // of the block, among those of the row
  uint32_t index, count;        // of the team, among all
  uint32_t launch;              // its number
  uint32_t round = 0;
  float* room;                  // words of this block, where a target has no shared memory
  char* const* peers;
#if MSCCLPP_TARGET_CUDA
  Shared* shared;
#endif

  // It touches nothing that an earlier kernel reads or writes behind its own beginning. Launches begin in their order: all blocks of those
  // before have added their parts to the state, as each calls release_next behind that.
  MSCCLPP_DEVICE Team(const NormArgs& a) : index(block_id()), count(grid_dim()), room(a.room + static_cast<uint64_t>(block_id()) * block_dim()), peers(a.peers) {
    const uint64_t others = grid_dim() - 1;
    uint64_t begun = 0;
    if (thread_id() == 0) begun = fetch_add_relaxed_device(&a.state->begun, block_id() < others ? uint64_t{1} : kLaunch - others);
#if MSCCLPP_TARGET_CUDA
    static __attribute__((shared)) Shared memory;
    shared = &memory;
    for (uint32_t r = thread_id(); r < a.ranks; r += block_dim()) memory.peers[r] = a.peers[r];
    for (uint32_t i = 4 * thread_id(); i < 4 * Shared::kMostParts; i += 4 * block_dim()) *reinterpret_cast<Vec16*>(memory.parts[0] + i) = Vec16{0, 0, 0, 0};
    peers = memory.peers;
#endif
#if MSCCLPP_CLUSTERS
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    index /= size, count /= size;
    if (size > 1) {
      if (thread_id() == 0) {
        memory.begun = begun;
        for (uint32_t k = 0; k < 2; ++k) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" : : "l"(shared_address(&memory.arrived[k])) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
      }
      // All blocks run, and their barriers are ready.
      asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" : : : "memory");
      launch = static_cast<uint32_t>(memory.begun / kLaunch) + 1;
      return;
    }
#endif
    launch = static_cast<uint32_t>(block_share(begun) / kLaunch) + 1;
  }

  MSCCLPP_DEVICE char* peer(uint32_t r) const { return peers[r]; }
  MSCCLPP_DEVICE uint32_t thread() const { return rank * block_dim() + thread_id(); }
  MSCCLPP_DEVICE uint32_t threads() const { return size * block_dim(); }

  // Adds the first values of all threads up, and finds the largest of the others, which are 0 or more, if there are two.
  template <bool kTwo>
  MSCCLPP_DEVICE void combine(float& sum, float& most) {
#if MSCCLPP_TARGET_CUDA
    const uint32_t warps = (block_dim() + MSCCLPP_WARP - 1) / MSCCLPP_WARP, lane = thread_id() % MSCCLPP_WARP, warp = thread_id() / MSCCLPP_WARP;
    MSCCLPP_UNROLL
    for (uint32_t i = 16; i > 0; i /= 2) {
      sum += shuffled(sum, i);
      if (kTwo) most = larger(most, shuffled(most, i));
    }
    const uint32_t turn = round++ % 2, parts = size * warps;
    float* all = shared->parts[turn];
    float* mine = all + rank * warps + warp;
#if MSCCLPP_CLUSTERS
    if (size > 1) {
      const uint64_t arrived = shared_address(&shared->arrived[turn]);
      if (thread_id() == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "l"(arrived), "r"(parts * (kTwo ? 8 : 4)) : "memory");
      }
      if (lane < size) {
        const uint64_t to = shared_of(shared_address(mine), lane), told = shared_of(arrived, lane);
        send_part(to, told, sum);
        if (kTwo) send_part(to + 4 * Shared::kMostParts, told, most);
      }
      // The wait ends: all warps send their parts, also those that have left a wait for another rank.
      while (!phase_ended(arrived, (round - 1) / 2 % 2)) {
      }
      read<kTwo>(all, parts, sum, most);
      return;
    }
#endif
    if (lane == 0) {
      mine[0] = sum;
      if (kTwo) mine[Shared::kMostParts] = most;
    }
    block_sync();
    read<kTwo>(all, parts, sum, most);
#else
    sum = gather(sum, [](float x, float y) { return x + y; });
    if (kTwo) most = gather(most, larger);
    ++round;
#endif
  }

 private:
#if MSCCLPP_TARGET_CUDA
  // Behind the last part are zeros, up to a multiple of four.
  template <bool kTwo>
  MSCCLPP_DEVICE static void read(const float* all, uint32_t parts, float& sum, float& most) {
    struct Four { float v[4]; };
    float s[4] = {}, m[4] = {};
    MSCCLPP_ROLLED
    for (uint32_t p = 0; p < parts; p += 8) {
      MSCCLPP_UNROLL
      for (uint32_t q = 0; q < 8; q += 4) {
        if (p + q >= parts) continue;
        const Four some = __builtin_bit_cast(Four, *reinterpret_cast<const Vec16*>(all + p + q));
        MSCCLPP_UNROLL
        for (uint32_t k = 0; k < 4; ++k) s[k] += some.v[k];
        if (!kTwo) continue;
        const Four large = __builtin_bit_cast(Four, *reinterpret_cast<const Vec16*>(all + Shared::kMostParts + p + q));
        MSCCLPP_UNROLL
        for (uint32_t k = 0; k < 4; ++k) m[k] = larger(m[k], large.v[k]);
      }
    }
    sum = (s[0] + s[1]) + (s[2] + s[3]);
    if (kTwo) most = larger(larger(m[0], m[1]), larger(m[2], m[3]));
  }
#else
  template <class F>
  MSCCLPP_DEVICE float gather(float v, F f) {
#if MSCCLPP_TARGET_HIP
    static __attribute__((shared)) float all[MSCCLPP_MAX_THREADS];
    const uint32_t tid = thread_id();
    all[tid] = v;
    block_sync();
    for (uint32_t n = block_dim(); n > 1;) {
      const uint32_t half = (n + 1) / 2;
      if (tid + half < n) all[tid] = f(all[tid], all[tid + half]);
      block_sync();
      n = half;
    }
    v = all[0];
    block_sync();
    return v;
#else
    room[thread_id()] = v;
    block_sync();
    v = room[0];
    for (uint32_t t = 1; t < block_dim(); ++t) v = f(v, room[t]);
    block_sync();
    return v;
#endif
  }
#endif
};
#endif

}  // namespace inference
}  // namespace mscclpp
#endif  // MSCCLPP_INFERENCE_TEAM_H_
