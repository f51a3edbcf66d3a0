/* What programs on emulated GPUs share: the driver, a context, and memory of 32-bit integers. */
#pragma once

#include <dlfcn.h>
#include <stdint.h>

#include "client.h"

static void* driver;

#define DRIVER(name, types, ...) (((int(*) types)dlsym(driver, #name))(__VA_ARGS__))
#define CUDA(name, types, ...)                                                        \
  do {                                                                                \
    int r_ = DRIVER(name, types, __VA_ARGS__);                                        \
    if (r_ != 0) {                                                                    \
      fprintf(stderr, "rank %d: %s:%d: %s: error %d\n", rank, __FILE__, __LINE__, #name, r_); \
      exit(1);                                                                        \
    }                                                                                 \
  } while (0)

static inline void device_open(int number) {
  void* context;
  EXPECT((driver = dlopen(getenv("MSCCLPP_CUDA_LIBRARY"), RTLD_NOW)) != NULL);
  CUDA(cuInit, (unsigned), 0);
  CUDA(cuDevicePrimaryCtxRetain, (void**, int), &context, number);
  CUDA(cuCtxSetCurrent, (void*), context);
}

static inline void* stream_new(void) {
  void* s;
  CUDA(cuStreamCreateWithPriority, (void**, unsigned, int), &s, 1, 0);
  return s;
}

static inline void stream_sync(void* s) { CUDA(cuStreamSynchronize, (void*), s); }

/* Memory of an emulated GPU can be used by the host. */
static inline void* device_alloc(size_t bytes) {
  void* p;
  CUDA(cuMemAlloc_v2, (void**, size_t), &p, bytes);
  memset(p, 0, bytes);
  return p;
}

/* hold has a stream wait until release. */
static inline void hold(void* stream, uint64_t* word) {
  __atomic_store_n(word, 0, __ATOMIC_SEQ_CST);
  CUDA(cuStreamWaitValue64_v2, (void*, uintptr_t, uint64_t, unsigned), stream, (uintptr_t)word, 1, 0);
}
static inline void release(uint64_t* word) { __atomic_store_n(word, 1, __ATOMIC_SEQ_CST); }
