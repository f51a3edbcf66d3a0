// The four targets of one source. Exactly one of these is 1, the others are not
// defined:
//
//   MSCCLPP_TARGET_CUDA   clang -x cuda (no toolkit needed), or nvcc
//   MSCCLPP_TARGET_HIP    clang -x hip (no toolkit needed)
//   MSCCLPP_TARGET_CPU    any C++17 compiler: a launch is a call, one thread
//   MSCCLPP_TARGET_CHECK  the same with -DMSCCLPP_CHECK: threads are fibers
#ifndef MSCCLPP_TARGET_H_
#define MSCCLPP_TARGET_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__CUDA__) || defined(__CUDACC__)
#define MSCCLPP_TARGET_CUDA 1
#define MSCCLPP_WARP 32u
#elif defined(__HIP__)
#define MSCCLPP_TARGET_HIP 1
#define MSCCLPP_WARP 64u
#elif defined(MSCCLPP_CHECK)
#define MSCCLPP_TARGET_CHECK 1
#define MSCCLPP_WARP 4u  // small, so that small blocks have several
#else
#define MSCCLPP_TARGET_CPU 1
#define MSCCLPP_WARP 1u
#endif

#if MSCCLPP_TARGET_CUDA || MSCCLPP_TARGET_HIP
#define MSCCLPP_TARGET_GPU 1
#if defined(__clang__)
#define MSCCLPP_DEVICE __attribute__((device)) inline __attribute__((always_inline))
#define MSCCLPP_DEVICE_DATA __attribute__((device))
#define MSCCLPP_GLOBAL __attribute__((global))
#else
#define MSCCLPP_DEVICE __device__ __forceinline__
#define MSCCLPP_DEVICE_DATA __device__
#define MSCCLPP_GLOBAL __global__
#endif
#else
#define MSCCLPP_DEVICE inline
#define MSCCLPP_DEVICE_DATA
#endif

#if defined(__clang__)
#define MSCCLPP_UNROLL _Pragma("unroll")
#define MSCCLPP_ROLLED _Pragma("nounroll")
#define MSCCLPP_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__) && !MSCCLPP_TARGET_GPU
#define MSCCLPP_UNROLL
#define MSCCLPP_ROLLED
#define MSCCLPP_INDEPENDENT _Pragma("GCC ivdep")
#else
#define MSCCLPP_UNROLL _Pragma("unroll")
#define MSCCLPP_ROLLED _Pragma("unroll 1")
#define MSCCLPP_INDEPENDENT
#endif

// Threads of a block for which GPU kernels are compiled. A source may define a
// smaller number before it includes anything.
#ifndef MSCCLPP_MAX_THREADS
#define MSCCLPP_MAX_THREADS 1024
#endif

// The place of a call, in checking builds only. Functions that may wait end their
// parameters with MSCCLPP_AT, and hand it on with MSCCLPP_HERE.
#if MSCCLPP_TARGET_CHECK
namespace mscclpp {
struct Where {
  const char* file;
  int line;
  static constexpr Where current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return Where{file, line};
  }
};
}  // namespace mscclpp
#define MSCCLPP_AT , ::mscclpp::Where where = ::mscclpp::Where::current()
#define MSCCLPP_AT_ONLY ::mscclpp::Where where = ::mscclpp::Where::current()
#define MSCCLPP_HERE , where
#define MSCCLPP_HERE_ONLY where
#else
#define MSCCLPP_AT
#define MSCCLPP_AT_ONLY
#define MSCCLPP_HERE
#define MSCCLPP_HERE_ONLY
#endif

#endif  // MSCCLPP_TARGET_H_
