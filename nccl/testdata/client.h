/* What the test programs share: who this rank is, and how a failure ends the program. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../nccl.h"

static int rank, nranks;
static ncclUniqueId id;

#define NCCL(call)                                                                                          \
  do {                                                                                                      \
    ncclResult_t r_ = (call);                                                                               \
    if (r_ != ncclSuccess) {                                                                                \
      fprintf(stderr, "rank %d: %s:%d: %s: %s (%s)\n", rank, __FILE__, __LINE__, #call, ncclGetErrorString(r_), \
              ncclGetLastError(NULL));                                                                      \
      exit(1);                                                                                              \
    }                                                                                                       \
  } while (0)

#define EXPECT(condition)                                                                           \
  do {                                                                                              \
    if (!(condition)) {                                                                             \
      fprintf(stderr, "rank %d: %s:%d: expected %s; last error: %s\n", rank, __FILE__, __LINE__, #condition, \
              ncclGetLastError(NULL));                                                              \
      exit(1);                                                                                      \
    }                                                                                               \
  } while (0)

/* FAILS expects a call to be refused with a code, and with a text that has a part. */
#define FAILS(call, code, part)                                                                                  \
  do {                                                                                                           \
    ncclResult_t r_ = (call);                                                                                    \
    if (r_ != (code) || strstr(ncclGetLastError(NULL), part) == NULL) {                                          \
      fprintf(stderr, "rank %d: %s:%d: %s: %d \"%s\", expected %d \"%s\"\n", rank, __FILE__, __LINE__, #call, (int)r_, \
              ncclGetLastError(NULL), (int)(code), part);                                                        \
      exit(1);                                                                                                   \
    }                                                                                                            \
  } while (0)

/* until_ended waits for the end of a communicator that was aborted: Abort does not wait for calls that are still inside. */
static inline void until_ended(ncclComm_t c) {
  ncclResult_t state, r;
  do r = ncclCommGetAsyncError(c, &state);
  while (r == ncclSuccess);
  EXPECT(r == ncclInvalidArgument && strstr(ncclGetLastError(NULL), "was destroyed") != NULL);
}

/* until_through is called by all ranks before one of them dies, on host memory: a death ends what others are in. When it has returned to
 * the one that dies, all are through with what comes before. */
static inline void until_through(ncclComm_t c, int dies) {
  int x = 0;
  ncclResult_t r = ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, c, NULL);
  EXPECT(r == ncclSuccess || (rank != dies && r == ncclRemoteError));
}

/* place reads TEST_RANK, TEST_SIZE and TEST_ID. */
static inline void place(void) {
  const char* text = getenv("TEST_ID");
  rank = atoi(getenv("TEST_RANK") ? getenv("TEST_RANK") : "0");
  nranks = atoi(getenv("TEST_SIZE") ? getenv("TEST_SIZE") : "1");
  if (text == NULL) {
    NCCL(ncclGetUniqueId(&id));
    return;
  }
  for (size_t i = 0; i < sizeof id.internal; i++) {
    unsigned b;
    EXPECT(sscanf(text + 2 * i, "%2x", &b) == 1);
    id.internal[i] = (char)b;
  }
}
