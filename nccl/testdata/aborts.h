/* What the programs about aborts share. */
#pragma once

#include <pthread.h>
#include <time.h>

#include "client.h"

static inline double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* An abort takes half a second at most, and minutes on a machine that is very busy. What would end a wait otherwise takes
 * half an hour, or does not come. */
enum { PROMPT = 120 };
#define PROMPTLY(call)                 \
  do {                                 \
    double begin_ = seconds();         \
    NCCL(call);                        \
    EXPECT(seconds() - begin_ < PROMPT); \
  } while (0)

static inline ncclResult_t result_of(pthread_t thread) {
  void* result;
  pthread_join(thread, &result);
  return (ncclResult_t)(long)result;
}
