/* Three ranks on host memory: lines of NCCL's semantics about values, waits and texts. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "client.h"

enum { RANKS = 3, MOST = 100000 };
static ncclComm_t comm, other;

/* Max and Min are fmax and fmin: a NaN gives way to a number. */
static void not_a_number(void) {
  const float in[RANKS][5] = {{NAN, 1, NAN, -INFINITY, NAN}, {2, NAN, NAN, 3, INFINITY}, {1, -1, NAN, NAN, 5}};
  const float max[] = {2, 1, NAN, 3, INFINITY}, min[] = {1, -1, NAN, -INFINITY, 5};
  float out[5];
  double in8[5], out8[5];
  for (int i = 0; i < 5; i++) in8[i] = in[rank][i];
  for (int op = 0; op < 2; op++) {
    const float* want = op ? min : max;
    NCCL(ncclAllReduce(in[rank], out, 5, ncclFloat32, op ? ncclMin : ncclMax, comm, NULL));
    NCCL(ncclAllReduce(in8, out8, 5, ncclFloat64, op ? ncclMin : ncclMax, comm, NULL));
    for (int i = 0; i < 5; i++) EXPECT((isnan(want[i]) ? isnan(out[i]) && isnan(out8[i]) : out[i] == want[i] && out8[i] == (double)want[i]));
  }
}

/* Sums that are rounded are the same on all ranks, bit by bit, whatever the order in which they are added. */
static void equal_on_all_ranks(void) {
  static const int sizes[] = {4, 8, 2, 2};
  static const ncclDataType_t types[] = {ncclFloat32, ncclFloat64, ncclFloat16, ncclBfloat16};
  static char in[MOST * 8], out[MOST * 8], all[RANKS][MOST * 8];
  for (int t = 0; t < 4; t++)
    for (size_t n = 1; n <= MOST; n = n * 316 + 3) {
      uint32_t x = (uint32_t)(rank * 7919 + t);
      for (size_t i = 0; i < n; i++) {
        x = x * 1664525 + 1013904223;
        float f = (float)(x >> 8) / 4096;
        uint32_t bits;
        memcpy(&bits, &f, 4);
        uint16_t half = types[t] == ncclBfloat16 ? (uint16_t)(bits >> 16) : (uint16_t)(0x3c00 + (x >> 22)); /* 1 to 2 */
        if (types[t] == ncclFloat64) ((double*)in)[i] = (double)f / 3;
        if (types[t] == ncclFloat32) ((float*)in)[i] = f / 3;
        if (sizes[t] == 2) ((uint16_t*)in)[i] = half;
      }
      NCCL(ncclAllReduce(in, out, n, types[t], ncclSum, comm, NULL));
      NCCL(ncclAllGather(out, all, n * (size_t)sizes[t], ncclInt8, comm, NULL));
      for (int r = 0; r < RANKS; r++) EXPECT(memcmp((char*)all + (size_t)r * n * (size_t)sizes[t], out, n * (size_t)sizes[t]) == 0);
    }
}

/* A thread that waits for a peer holds nothing that others need. */
static atomic_int inside;

static void* waits(void* with) {
  int x = 1;
  (void)with;
  atomic_store(&inside, 1);
  NCCL(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, NULL));
  EXPECT(x == RANKS);
  return NULL;
}

static void* joins(void* with) { /* a communicator whose other rank comes later */
  ncclComm_t c;
  NCCL(ncclCommInitRank(&c, 2, *(ncclUniqueId*)with, 0));
  NCCL(ncclCommDestroy(c));
  return NULL;
}

static void waits_hold_nothing(void) {
  pthread_t thread, joining;
  ncclUniqueId late, own;
  ncclComm_t part, single;
  ncclResult_t state;
  ncclRedOp_t op;
  void *memory, *handle;
  int x = 1, y;
  float two = 2;
  if (rank > 0) { /* these come to the call when rank 0 has done all that follows */
    NCCL(ncclCommSplit(other, 0, rank, &part, NULL));
    NCCL(ncclAllReduce(&x, &y, 1, ncclInt32, ncclSum, part, NULL));
    NCCL(ncclCommDestroy(part));
    waits(NULL);
    return;
  }
  NCCL(ncclGetUniqueId(&late));
  EXPECT(pthread_create(&thread, NULL, waits, NULL) == 0);
  EXPECT(pthread_create(&joining, NULL, joins, &late) == 0);
  while (!atomic_load(&inside)) continue;
  NCCL(ncclCommGetAsyncError(comm, &state));
  EXPECT(state == ncclSuccess);
  NCCL(ncclGetUniqueId(&own));
  NCCL(ncclCommInitRank(&single, 1, own, 0));
  NCCL(ncclRedOpCreatePreMulSum(&op, &two, ncclFloat32, ncclScalarHostImmediate, single));
  NCCL(ncclAllReduce(&two, &two, 1, ncclFloat32, op, single, NULL));
  NCCL(ncclRedOpDestroy(op, single));
  NCCL(ncclMemAlloc(&memory, 4096));
  NCCL(ncclCommRegister(single, memory, 4096, &handle));
  NCCL(ncclCommDeregister(single, handle));
  NCCL(ncclMemFree(memory));
  NCCL(ncclCommDestroy(single));
  NCCL(ncclCommSplit(other, 0, rank, &part, NULL));
  NCCL(ncclAllReduce(&x, &y, 1, ncclInt32, ncclSum, part, NULL));
  EXPECT(y == RANKS);
  NCCL(ncclCommDestroy(part));
  NCCL(ncclCommInitRank(&single, 2, late, 1)); /* the one that the other thread waits for */
  NCCL(ncclCommDestroy(single));
  pthread_join(joining, NULL);
  pthread_join(thread, NULL);
}

/* The last error is that of the process. */
static void* fails(void* with) {
  (void)with;
  FAILS(ncclCommCount(comm, NULL), ncclInvalidArgument, "count argument is NULL");
  return NULL;
}

static void texts_of_threads(void) {
  pthread_t thread;
  EXPECT(pthread_create(&thread, NULL, fails, NULL) == 0);
  pthread_join(thread, NULL);
  EXPECT(strcmp(ncclGetLastError(comm), "ncclCommCount : count argument is NULL") == 0);
}

static void flags(void) {
  static char memory[8192];
  ncclWindow_t w;
  FAILS(ncclCommWindowRegister(comm, memory, 4096, &w, 4), ncclInvalidArgument, "flags 0x4");
  FAILS(ncclCommWindowRegister(comm, memory, 4096, &w, -1), ncclInvalidArgument, "flags 0xffffffff");
  NCCL(ncclCommWindowRegister(comm, memory, 4096, &w, NCCL_WIN_COLL_SYMMETRIC | 2)); /* strict ordering, of later headers */
}

int main(void) {
  place();
  NCCL(ncclCommInitRank(&comm, RANKS, id, rank));
  NCCL(ncclCommSplit(comm, 0, 0, &other, NULL));
  not_a_number();
  equal_on_all_ranks();
  waits_hold_nothing();
  texts_of_threads();
  flags();
  NCCL(ncclCommDestroy(other));
  NCCL(ncclCommDestroy(comm));
  printf("rank %d ok\n", rank);
  return 0;
}
