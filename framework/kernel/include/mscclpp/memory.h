// Ordered loads, stores and additions, and 16-byte accesses.
//
// Scope is the whole system (peers, host, NIC) unless the name ends in _device:
// then it is the threads of this rank. On NVIDIA every one is inline PTX, because
// LLVM 19 drops order and scope of its own atomics there.
#ifndef MSCCLPP_MEMORY_H_
#define MSCCLPP_MEMORY_H_

#include "target.h"
#include "thread.h"

namespace mscclpp {

struct alignas(16) Vec16 {
  uint32_t x, y, z, w;
};

#if MSCCLPP_TARGET_CUDA

#define MSCCLPP_PTX_LOAD(name, order, T, type, reg)                                           \
  MSCCLPP_DEVICE T name(const T* p) {                                                         \
    T v;                                                                                      \
    asm volatile("ld." order ".global." type " %0, [%1];" : "=" reg(v) : "l"(p) : "memory"); \
    return v;                                                                                 \
  }
#define MSCCLPP_PTX_STORE(name, order, T, type, reg)                                         \
  MSCCLPP_DEVICE void name(T* p, T v) {                                                      \
    asm volatile("st." order ".global." type " [%0], %1;" : : "l"(p), reg(v) : "memory");   \
  }
#define MSCCLPP_PTX_ADD(name, order, T, type, reg)                                               \
  MSCCLPP_DEVICE void name(T* p, T v) {                                                          \
    asm volatile("red." order ".global.add." type " [%0], %1;" : : "l"(p), reg(v) : "memory"); \
  }
#define MSCCLPP_PTX_FETCH_ADD(name, order, T, type, reg)                                            \
  MSCCLPP_DEVICE T name(T* p, T v) {                                                                \
    T old;                                                                                          \
    asm volatile("atom." order ".global.add." type " %0, [%1], %2;"                                 \
                 : "=" reg(old)                                                                     \
                 : "l"(p), reg(v)                                                                   \
                 : "memory");                                                                       \
    return old;                                                                                     \
  }
#define MSCCLPP_PTX_CAS(name, order, T, type, reg)                                        \
  MSCCLPP_DEVICE T name(T* p, T expected, T desired) {                                    \
    T old;                                                                                \
    asm volatile("atom." order ".global.cas." type " %0, [%1], %2, %3;"                   \
                 : "=" reg(old)                                                           \
                 : "l"(p), reg(expected), reg(desired)                                    \
                 : "memory");                                                             \
    return old;                                                                           \
  }
#define MSCCLPP_PTX_ALL(T, u, b, reg)                                      \
  MSCCLPP_PTX_LOAD(load_acquire, "acquire.sys", T, u, reg)                 \
  MSCCLPP_PTX_LOAD(load_relaxed, "relaxed.sys", T, u, reg)                 \
  MSCCLPP_PTX_LOAD(load_acquire_device, "acquire.gpu", T, u, reg)          \
  MSCCLPP_PTX_LOAD(load_relaxed_device, "relaxed.gpu", T, u, reg)          \
  MSCCLPP_PTX_STORE(store_release, "release.sys", T, u, reg)               \
  MSCCLPP_PTX_STORE(store_relaxed, "relaxed.sys", T, u, reg)               \
  MSCCLPP_PTX_STORE(store_release_device, "release.gpu", T, u, reg)        \
  MSCCLPP_PTX_STORE(store_relaxed_device, "relaxed.gpu", T, u, reg)        \
  MSCCLPP_PTX_ADD(add_release, "release.sys", T, u, reg)                   \
  MSCCLPP_PTX_ADD(add_relaxed, "relaxed.sys", T, u, reg)                   \
  MSCCLPP_PTX_FETCH_ADD(fetch_add_relaxed_device, "relaxed.gpu", T, u, reg) \
  MSCCLPP_PTX_FETCH_ADD(fetch_add_acq_rel_device, "acq_rel.gpu", T, u, reg) \
  MSCCLPP_PTX_CAS(compare_exchange_device, "relaxed.gpu", T, b, reg)
MSCCLPP_PTX_ALL(uint32_t, "u32", "b32", "r")
MSCCLPP_PTX_ALL(uint64_t, "u64", "b64", "l")

MSCCLPP_DEVICE void fence_system() { asm volatile("fence.acq_rel.sys;" : : : "memory"); }
MSCCLPP_DEVICE void fence_device() { asm volatile("fence.acq_rel.gpu;" : : : "memory"); }

// Plain, and never split in four as LLVM does with vectors.
MSCCLPP_DEVICE Vec16 load16(const void* p) {
  Vec16 v;
  asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
  return v;
}
MSCCLPP_DEVICE void store16(void* p, Vec16 v) {
  asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" : : "l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

// Packets: polled, so volatile; atomic in units of 8 bytes.
MSCCLPP_DEVICE Vec16 load16_packet(const void* p) {
  Vec16 v;
  asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
  return v;
}
MSCCLPP_DEVICE void store16_packet(void* p, Vec16 v) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1,%2,%3,%4};" : : "l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
MSCCLPP_DEVICE uint64_t load8_packet(const void* p) {
  uint32_t lo, hi;
  asm volatile("ld.volatile.global.v2.u32 {%0,%1}, [%2];" : "=r"(lo), "=r"(hi) : "l"(p) : "memory");
  return static_cast<uint64_t>(hi) << 32 | lo;
}
MSCCLPP_DEVICE void store8_packet(void* p, uint64_t v) {
  asm volatile("st.volatile.global.v2.u32 [%0], {%1,%2};"
               : : "l"(p), "r"(static_cast<uint32_t>(v)), "r"(static_cast<uint32_t>(v >> 32)) : "memory");
}

#else  // HIP, CPU and checking builds: the compiler's atomics keep order and scope

#if MSCCLPP_TARGET_HIP
#define MSCCLPP_LOAD(p, order, scope) __hip_atomic_load(p, order, scope)
#define MSCCLPP_STORE(p, v, order, scope) detail::store<order, scope>(p, v)
#define MSCCLPP_FETCH_ADD(p, v, order, scope) detail::fetch_add<order, scope>(p, v)
#define MSCCLPP_SYSTEM __HIP_MEMORY_SCOPE_SYSTEM
#define MSCCLPP_AGENT __HIP_MEMORY_SCOPE_AGENT
#define MSCCLPP_POINT()

namespace detail {

// A release on AMD is a write-back of the second cache, a wait until it has ended, and the store. Clang 19 leaves the wait out
// where no load or store of the wave is under way, since it does not count write-backs. So a fence, and a wait that the
// compiler does not look into, stand before a store or an addition without order.
template <int scope>
MSCCLPP_DEVICE void release() {
  if (scope == MSCCLPP_SYSTEM) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
  } else {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
  }
  asm volatile("s_waitcnt vmcnt(0)" : : : "memory");
}
template <int scope>
MSCCLPP_DEVICE void acquire() {
  if (scope == MSCCLPP_SYSTEM) {
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
  } else {
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
  }
}
template <int order, int scope, class T>
MSCCLPP_DEVICE void store(T* p, T v) {
  if (order == __ATOMIC_RELEASE) release<scope>();
  __hip_atomic_store(p, v, __ATOMIC_RELAXED, scope);
}
template <int order, int scope, class T>
MSCCLPP_DEVICE T fetch_add(T* p, T v) {
  if (order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL) release<scope>();
  const T was = __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, scope);
  if (order == __ATOMIC_ACQ_REL) acquire<scope>();
  return was;
}

}  // namespace detail
#else
#define MSCCLPP_LOAD(p, order, scope) __atomic_load_n(p, order)
#define MSCCLPP_STORE(p, v, order, scope) __atomic_store_n(p, v, order)
#define MSCCLPP_FETCH_ADD(p, v, order, scope) __atomic_fetch_add(p, v, order)
#if MSCCLPP_TARGET_CHECK
#define MSCCLPP_POINT() check::point()
#else
#define MSCCLPP_POINT()
#endif
#endif

#define MSCCLPP_MEMORY_LOAD(name, T, order, scope) \
  MSCCLPP_DEVICE T name(const T* p) {              \
    MSCCLPP_POINT();                               \
    return MSCCLPP_LOAD(const_cast<T*>(p), order, scope); \
  }
#define MSCCLPP_MEMORY_STORE(name, T, order, scope) \
  MSCCLPP_DEVICE void name(T* p, T v) {             \
    MSCCLPP_POINT();                                \
    MSCCLPP_STORE(p, v, order, scope);              \
  }
#define MSCCLPP_MEMORY_ADD(name, T, order, scope) \
  MSCCLPP_DEVICE void name(T* p, T v) {           \
    MSCCLPP_POINT();                              \
    (void)MSCCLPP_FETCH_ADD(p, v, order, scope);  \
  }
#define MSCCLPP_MEMORY_FETCH_ADD(name, T, order, scope) \
  MSCCLPP_DEVICE T name(T* p, T v) {                    \
    MSCCLPP_POINT();                                    \
    return MSCCLPP_FETCH_ADD(p, v, order, scope);       \
  }
#define MSCCLPP_MEMORY_ALL(T)                                                             \
  MSCCLPP_MEMORY_LOAD(load_acquire, T, __ATOMIC_ACQUIRE, MSCCLPP_SYSTEM)                  \
  MSCCLPP_MEMORY_LOAD(load_relaxed, T, __ATOMIC_RELAXED, MSCCLPP_SYSTEM)                  \
  MSCCLPP_MEMORY_LOAD(load_acquire_device, T, __ATOMIC_ACQUIRE, MSCCLPP_AGENT)            \
  MSCCLPP_MEMORY_LOAD(load_relaxed_device, T, __ATOMIC_RELAXED, MSCCLPP_AGENT)            \
  MSCCLPP_MEMORY_STORE(store_release, T, __ATOMIC_RELEASE, MSCCLPP_SYSTEM)                \
  MSCCLPP_MEMORY_STORE(store_relaxed, T, __ATOMIC_RELAXED, MSCCLPP_SYSTEM)                \
  MSCCLPP_MEMORY_STORE(store_release_device, T, __ATOMIC_RELEASE, MSCCLPP_AGENT)          \
  MSCCLPP_MEMORY_STORE(store_relaxed_device, T, __ATOMIC_RELAXED, MSCCLPP_AGENT)          \
  MSCCLPP_MEMORY_ADD(add_release, T, __ATOMIC_RELEASE, MSCCLPP_SYSTEM)                    \
  MSCCLPP_MEMORY_ADD(add_relaxed, T, __ATOMIC_RELAXED, MSCCLPP_SYSTEM)                    \
  MSCCLPP_MEMORY_FETCH_ADD(fetch_add_relaxed_device, T, __ATOMIC_RELAXED, MSCCLPP_AGENT)  \
  MSCCLPP_MEMORY_FETCH_ADD(fetch_add_acq_rel_device, T, __ATOMIC_ACQ_REL, MSCCLPP_AGENT)  \
  MSCCLPP_DEVICE T compare_exchange_device(T* p, T expected, T desired) {                 \
    MSCCLPP_POINT();                                                                      \
    MSCCLPP_CAS(p, expected, desired);                                                    \
    return expected;                                                                      \
  }
#if MSCCLPP_TARGET_HIP
#define MSCCLPP_CAS(p, expected, desired) \
  __hip_atomic_compare_exchange_strong(p, &expected, desired, __ATOMIC_RELAXED, __ATOMIC_RELAXED, MSCCLPP_AGENT)
#else
#define MSCCLPP_CAS(p, expected, desired) \
  __atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)
#endif
MSCCLPP_MEMORY_ALL(uint32_t)
MSCCLPP_MEMORY_ALL(uint64_t)

#if MSCCLPP_TARGET_HIP
MSCCLPP_DEVICE void fence_system() {
  detail::release<MSCCLPP_SYSTEM>();
  detail::acquire<MSCCLPP_SYSTEM>();
}
MSCCLPP_DEVICE void fence_device() {
  detail::release<MSCCLPP_AGENT>();
  detail::acquire<MSCCLPP_AGENT>();
}
#else
inline void fence_system() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }
inline void fence_device() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }
#endif

MSCCLPP_DEVICE Vec16 load16(const void* p) { return *static_cast<const Vec16*>(p); }
MSCCLPP_DEVICE void store16(void* p, Vec16 v) { *static_cast<Vec16*>(p) = v; }

MSCCLPP_DEVICE uint64_t load8_packet(const void* p) { return load_relaxed(static_cast<const uint64_t*>(p)); }
MSCCLPP_DEVICE void store8_packet(void* p, uint64_t v) { store_relaxed(static_cast<uint64_t*>(p), v); }
MSCCLPP_DEVICE Vec16 load16_packet(const void* p) {
  const uint64_t a = load8_packet(p), b = load8_packet(static_cast<const uint64_t*>(p) + 1);
  return Vec16{static_cast<uint32_t>(a), static_cast<uint32_t>(a >> 32), static_cast<uint32_t>(b), static_cast<uint32_t>(b >> 32)};
}
MSCCLPP_DEVICE void store16_packet(void* p, Vec16 v) {
  store8_packet(p, static_cast<uint64_t>(v.y) << 32 | v.x);
  store8_packet(static_cast<uint64_t*>(p) + 1, static_cast<uint64_t>(v.w) << 32 | v.z);
}
#endif

// Conditions of waits load by MSCCLPP_POLL, and MSCCLPP_ACQUIRED takes the answer of the wait. On AMD an acquiring load drops
// what the caches of a whole XCD have of other GPUs, each time that it polls. So polls are relaxed there, and one fence
// stands behind them. They are macros so that images for other targets stay as they are.
#if MSCCLPP_TARGET_HIP
MSCCLPP_DEVICE bool acquired(bool ok) {
  detail::acquire<MSCCLPP_SYSTEM>();
  return ok;
}
MSCCLPP_DEVICE bool acquired_device(bool ok) {
  detail::acquire<MSCCLPP_AGENT>();
  return ok;
}
#define MSCCLPP_POLL(p) load_relaxed(p)
#define MSCCLPP_POLL_DEVICE(p) load_relaxed_device(p)
#define MSCCLPP_ACQUIRED(...) ::mscclpp::acquired(__VA_ARGS__)
#define MSCCLPP_ACQUIRED_DEVICE(...) ::mscclpp::acquired_device(__VA_ARGS__)
#else
#define MSCCLPP_POLL(p) load_acquire(p)
#define MSCCLPP_POLL_DEVICE(p) load_acquire_device(p)
#define MSCCLPP_ACQUIRED(...) __VA_ARGS__
#define MSCCLPP_ACQUIRED_DEVICE(...) __VA_ARGS__
#endif

}  // namespace mscclpp
#endif  // MSCCLPP_MEMORY_H_
