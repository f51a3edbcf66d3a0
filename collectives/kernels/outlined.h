// Functions that several places of a kernel call, and that are not inlined on GPUs: else
// images would hold the same loops many times over. They take plain values only, because
// a reference into the kernel's argument would have all of it copied to local memory. On
// AMD the larger ones are inlined all the same, because a call of a function with many
// registers saves some in memory.
#ifndef MSCCLPP_COLLECTIVES_OUTLINED_H_
#define MSCCLPP_COLLECTIVES_OUTLINED_H_

#include <mscclpp/device.h>

#include "args.h"

#if MSCCLPP_TARGET_GPU
#define MSCCLPP_OUTLINED __attribute__((device, noinline)) inline
#if MSCCLPP_TARGET_CUDA
#define MSCCLPP_OUTLINED_LARGE MSCCLPP_OUTLINED
#else
#define MSCCLPP_OUTLINED_LARGE MSCCLPP_DEVICE
#endif
// Stands behind the parameters of a lambda, so that it is inlined like any other function.
#define MSCCLPP_LAMBDA __attribute__((always_inline))
#else
#define MSCCLPP_OUTLINED inline
#define MSCCLPP_OUTLINED_LARGE inline
#define MSCCLPP_LAMBDA
#endif

// Kernels that are for GPUs alone. An image for the CPU that stands for one of a GPU,
// as with an emulated driver, has them too.
#if !MSCCLPP_TARGET_CPU || MSCCLPP_STANDS_FOR_GPU
#define MSCCLPP_GPU_KERNELS 1
#endif

namespace mscclpp {
namespace collectives {

MSCCLPP_DEVICE Reduction reduction_of(const Args& a) { return reduction(ReduceOp(a.op), a.scale); }

#if MSCCLPP_TARGET_GPU
// In place of mscclpp::copy for all that is in this namespace.
MSCCLPP_OUTLINED void copy(void* dst, const void* src, size_t bytes, uint32_t tid, uint32_t nthreads) {
  mscclpp::copy(dst, src, bytes, tid, nthreads);
}

template <class T>
MSCCLPP_OUTLINED_LARGE void reduce_listed(void* out, const char* const* inputs, uint32_t n, uint64_t count, uint32_t op, double scale,
                                          uint32_t divisor, uint32_t partial) {
  reduce_n<T>(out, inputs, n, count, reduction(ReduceOp(op), scale, divisor, partial), thread_id(), block_dim());
}

// The addresses of a step's inputs. A thread that computed them for each word that it
// reduces would divide more than it adds.
MSCCLPP_DEVICE const char** listed_inputs() {
  static __attribute__((shared)) const char* inputs[kMaxRanks];
  return inputs;
}
#endif

// reduce_step is reduce_n by all threads of the block. inputs is a function from the
// input's number, below kMaxRanks, to its address.
template <class T, class Inputs>
MSCCLPP_DEVICE void reduce_step(void* out, const Inputs& inputs, uint32_t n, uint64_t count, const Reduction& r) {
#if MSCCLPP_TARGET_GPU
  const char** list = listed_inputs();
  block_sync();  // all have done the step before
  for (uint32_t i = thread_id(); i < n; i += block_dim()) list[i] = inputs(i);
  block_sync();
  reduce_listed<T>(out, list, n, count, r.op, r.scale, r.divisor, r.partial);
#else
  reduce_n<T>(out, inputs, n, count, r, thread_id(), block_dim());
#endif
}

// wait_word waits until *word has reached value.
MSCCLPP_OUTLINED bool wait_word(const WaitControl* control, const uint64_t* word, uint64_t value, uint32_t kernel, uint32_t what,
                                uint32_t peer, uint32_t* left) {
  return MSCCLPP_ACQUIRED(wait_until(control, WaitSite{kernel, what, peer, value, left},
                             [&](uint64_t& seen) MSCCLPP_LAMBDA { return (seen = MSCCLPP_POLL(word)) >= value; }));
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_OUTLINED_H_
