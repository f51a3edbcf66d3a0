// Threads, blocks and entry points.
//
// In production builds for the CPU a grid is one block of one thread, and the
// compiler knows it. A kernel has to be right for any grid and any block: split
// roles by block or by loop, never by warp with a wait between warps.
#ifndef MSCCLPP_THREAD_H_
#define MSCCLPP_THREAD_H_

#include "layout.h"
#include "records.h"
#include "target.h"

#if MSCCLPP_TARGET_CHECK
#include "check_hooks.h"
#endif

namespace mscclpp {

#if MSCCLPP_TARGET_CUDA
#if defined(__clang__)
MSCCLPP_DEVICE uint32_t thread_id() { return static_cast<uint32_t>(__nvvm_read_ptx_sreg_tid_x()); }
MSCCLPP_DEVICE uint32_t block_dim() { return static_cast<uint32_t>(__nvvm_read_ptx_sreg_ntid_x()); }
MSCCLPP_DEVICE uint32_t block_id() { return static_cast<uint32_t>(__nvvm_read_ptx_sreg_ctaid_x()); }
MSCCLPP_DEVICE uint32_t grid_dim() { return static_cast<uint32_t>(__nvvm_read_ptx_sreg_nctaid_x()); }
MSCCLPP_DEVICE void block_sync() { __syncthreads(); }
MSCCLPP_DEVICE bool block_sync_and(bool ok) { return __nvvm_bar0_and(ok ? 1 : 0) != 0; }
#else
MSCCLPP_DEVICE uint32_t thread_id() { return threadIdx.x; }
MSCCLPP_DEVICE uint32_t block_dim() { return blockDim.x; }
MSCCLPP_DEVICE uint32_t block_id() { return blockIdx.x; }
MSCCLPP_DEVICE uint32_t grid_dim() { return gridDim.x; }
MSCCLPP_DEVICE void block_sync() { __syncthreads(); }
MSCCLPP_DEVICE bool block_sync_and(bool ok) { return __syncthreads_and(ok) != 0; }
#endif

#elif MSCCLPP_TARGET_HIP
MSCCLPP_DEVICE uint32_t thread_id() { return __builtin_amdgcn_workitem_id_x(); }
MSCCLPP_DEVICE uint32_t block_dim() { return __builtin_amdgcn_workgroup_size_x(); }
MSCCLPP_DEVICE uint32_t block_id() { return __builtin_amdgcn_workgroup_id_x(); }
// Code object v5: the first hidden argument is the number of blocks in x.
MSCCLPP_DEVICE uint32_t grid_dim() {
  return *reinterpret_cast<const uint32_t*>((const void*)__builtin_amdgcn_implicitarg_ptr());
}
MSCCLPP_DEVICE void block_sync() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
MSCCLPP_DEVICE bool block_sync_and(bool ok) {
  static __attribute__((shared)) uint32_t failures;
  if (thread_id() == 0) failures = 0;
  block_sync();
  if (!ok) __hip_atomic_store(&failures, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
  block_sync();
  const bool all = failures == 0;
  block_sync();  // before the next use clears the word
  return all;
}

#elif MSCCLPP_TARGET_CHECK
inline uint32_t thread_id() { return check::thread_id(); }
inline uint32_t block_dim() { return check::block_dim(); }
inline uint32_t block_id() { return check::block_id(); }
inline uint32_t grid_dim() { return check::grid_dim(); }
inline void block_sync(MSCCLPP_AT_ONLY) { check::block_sync(true, where); }
inline bool block_sync_and(bool ok MSCCLPP_AT) { return check::block_sync(ok, where); }
inline uint64_t block_share(uint64_t value MSCCLPP_AT) { return check::block_share(value, where); }

#else
constexpr uint32_t thread_id() { return 0; }
constexpr uint32_t block_dim() { return 1; }
constexpr uint32_t block_id() { return 0; }
constexpr uint32_t grid_dim() { return 1; }
inline void block_sync() {}
inline bool block_sync_and(bool ok) { return ok; }
inline uint64_t block_share(uint64_t value) { return value; }
#endif

#if MSCCLPP_TARGET_GPU
// block_share is a barrier of the block that returns what thread 0 has passed. Another
// barrier has to follow before the next one.
MSCCLPP_DEVICE uint64_t block_share(uint64_t value) {
  static __attribute__((shared)) uint64_t word;
  if (thread_id() == 0) word = value;
  block_sync();
  return word;
}
#endif

MSCCLPP_DEVICE uint32_t global_thread() { return block_id() * block_dim() + thread_id(); }
MSCCLPP_DEVICE uint32_t global_threads() { return grid_dim() * block_dim(); }

}  // namespace mscclpp

// MSCCLPP_KERNEL(symbol, Args, args) { … } defines an entry point. Its one argument
// is a plain struct, passed as one block of bytes; the body sees it as args.
// Kernels are found by symbol, so one image must not have two of the same name.
#if MSCCLPP_TARGET_CUDA
#define MSCCLPP_KERNEL(symbol, Args, args) \
  extern "C" MSCCLPP_GLOBAL void __attribute__((launch_bounds(MSCCLPP_MAX_THREADS, 1))) symbol(const Args args)
#elif MSCCLPP_TARGET_HIP
#define MSCCLPP_KERNEL(symbol, Args, args)                                                         \
  extern "C" MSCCLPP_GLOBAL void __attribute__((amdgpu_flat_work_group_size(1, MSCCLPP_MAX_THREADS))) \
  symbol(const Args args)
#else
#define MSCCLPP_KERNEL(symbol, Args, args)                                                      \
  static inline void symbol##_body(const Args& args);                                           \
  extern "C" __attribute__((visibility("default"))) void symbol(const Args* a,                  \
                                                                const ::mscclpp::LaunchShape*) { \
    MSCCLPP_LAUNCH_RECORDS(*a)                                                                  \
    symbol##_body(*a);                                                                          \
  }                                                                                             \
  static inline void symbol##_body(const Args& args)
#endif

// Every image says which layouts it was built with. MSCCLPP_IMAGE stands in one
// source of each image; cmd/mscclpp-kernels adds it by itself.
//
// On GPUs it is no constant: one constant in an image makes every launch of every kernel
// of it take 0.3 µs longer on an H200.
#if MSCCLPP_TARGET_GPU
#define MSCCLPP_IMAGE() \
  extern "C" MSCCLPP_DEVICE_DATA __attribute__((used)) uint32_t mscclpp_abi = ::mscclpp::kABI;
#else
#define MSCCLPP_IMAGE() \
  extern "C" __attribute__((visibility("default"), used)) const uint32_t mscclpp_abi = ::mscclpp::kABI;
#endif

#endif  // MSCCLPP_THREAD_H_
