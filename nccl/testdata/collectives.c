/* Every collective, type and operation on host memory, with results that are exact in every type. */
#include <math.h>
#include <stdint.h>

#include "client.h"

enum { MOST = 1 << 14 };

static ncclComm_t comm;
static char in[8 * MOST * 8], out[8 * MOST * 8];

static const int sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

/* encode writes a small whole number in a type. */
static void encode(ncclDataType_t t, void* at, int v) {
  switch ((int)t) {
    case ncclInt8: case ncclUint8: *(int8_t*)at = (int8_t)v; return;
    case ncclInt32: case ncclUint32: *(int32_t*)at = v; return;
    case ncclInt64: case ncclUint64: *(int64_t*)at = v; return;
    case ncclFloat32: *(float*)at = (float)v; return;
    case ncclFloat64: *(double*)at = v; return;
  }
  int e, mantissa = t == ncclFloat16 ? 10 : t == ncclBfloat16 ? 7 : t == ncclFloat8e4m3 ? 3 : 2;
  int bits = t == ncclFloat16 ? 5 : t == ncclBfloat16 ? 8 : t == ncclFloat8e4m3 ? 4 : 5;
  unsigned b = 0;
  if (v != 0) {
    double m = frexp(v, &e) * 2; /* 1 to 2 */
    b = (unsigned)((e - 1 + (1 << (bits - 1)) - 1) << mantissa) | (unsigned)((m - 1) * (1 << mantissa));
  }
  if (mantissa > 3)
    *(uint16_t*)at = (uint16_t)b;
  else
    *(uint8_t*)at = (uint8_t)b;
}

static void check(const char* what, ncclDataType_t t, size_t i, int want) {
  char e[8] = {0};
  encode(t, e, want);
  if (memcmp(out + i * (size_t)sizes[t], e, (size_t)sizes[t]) != 0) {
    fprintf(stderr, "rank %d: %s of type %d: element %zu is not %d\n", rank, what, (int)t, i, want);
    exit(1);
  }
}

static void fill(ncclDataType_t t, size_t n, int v) {
  for (size_t i = 0; i < n; i++) encode(t, in + i * (size_t)sizes[t], v);
  memset(out, 0x55, n * (size_t)sizes[t] + 64);
}

static int small(int r) { return r % 2 + 1; } /* sums of two ranks fit every type */

static void reductions(ncclDataType_t t, size_t n) {
  int sum = 0, product = 1, factors = 0;
  for (int r = 0; r < nranks; r++) {
    factors += small(r + 1);
    sum += small(r);
    product *= small(r);
  }
  fill(t, n, small(rank));
  NCCL(ncclAllReduce(in, out, n, t, ncclSum, comm, NULL));
  for (size_t i = 0; i < n; i++) check("sum", t, i, sum);
  NCCL(ncclAllReduce(in, out, n, t, ncclProd, comm, NULL));
  for (size_t i = 0; i < n; i++) check("product", t, i, product);
  NCCL(ncclAllReduce(in, out, n, t, ncclMax, comm, NULL));
  for (size_t i = 0; i < n; i++) check("max", t, i, nranks > 1 ? 2 : 1);
  NCCL(ncclAllReduce(in, out, n, t, ncclMin, comm, NULL));
  for (size_t i = 0; i < n; i++) check("min", t, i, 1);
  fill(t, n, 2);
  NCCL(ncclAllReduce(in, out, n, t, ncclAvg, comm, NULL));
  for (size_t i = 0; i < n; i++) check("avg", t, i, 2);
  ncclRedOp_t times;
  char factor[8];
  encode(t, factor, small(rank + 1)); /* another one on every other rank, so that products are 2, and then 1, 4, 1, … */
  for (int residence = 0; residence < 2; residence++) {
    fill(t, n, small(rank));
    NCCL(ncclRedOpCreatePreMulSum(&times, factor, t, (ncclScalarResidence_t)residence, comm));
    NCCL(ncclAllReduce(in, out, n, t, times, comm, NULL));
    for (size_t i = 0; i < n; i++) check("scaled", t, i, 2 * nranks);
    fill(t, n, 1);
    NCCL(ncclReduce(in, rank == 0 ? out : NULL, n, t, times, 0, comm, NULL));
    for (size_t i = 0; rank == 0 && i < n; i++) check("scaled reduce", t, i, factors);
    for (int r = 0; r < nranks; r++)
      for (size_t i = 0; i < n; i++) encode(t, in + ((size_t)r * n + i) * (size_t)sizes[t], small(rank) * small(r));
    NCCL(ncclReduceScatter(in, out, n, t, times, comm, NULL));
    for (size_t i = 0; i < n; i++) check("scaled reduce-scatter", t, i, 2 * nranks * small(rank));
    NCCL(ncclRedOpDestroy(times, comm));
    FAILS(ncclAllReduce(in, out, n, t, times, comm, NULL), ncclInvalidArgument, "unknown to this communicator");
  }
  fill(t, n, small(rank));
  NCCL(ncclReduce(in, rank == nranks - 1 ? out : NULL, n, t, ncclSum, nranks - 1, comm, NULL));
  for (size_t i = 0; rank == nranks - 1 && i < n; i++) check("reduce", t, i, sum);
  for (int r = 0; r < nranks; r++)
    for (size_t i = 0; i < n; i++) encode(t, in + ((size_t)r * n + i) * (size_t)sizes[t], small(rank));
  NCCL(ncclReduceScatter(in, out, n, t, ncclSum, comm, NULL));
  for (size_t i = 0; i < n; i++) check("reduce-scatter", t, i, sum);
}

static void moves(ncclDataType_t t, size_t n) {
  size_t s = (size_t)sizes[t];
  fill(t, n, rank + 1);
  NCCL(ncclAllGather(in, out, n, t, comm, NULL));
  for (int r = 0; r < nranks; r++)
    for (size_t i = 0; i < n; i++) check("all-gather", t, (size_t)r * n + i, r + 1);
  NCCL(ncclBroadcast(rank == 0 ? in : NULL, out, n, t, 0, comm, NULL));
  for (size_t i = 0; i < n; i++) check("broadcast", t, i, 1);
  memcpy(out, in, n * s);
  NCCL(ncclBcast(out, n, t, nranks - 1, comm, NULL));
  for (size_t i = 0; i < n; i++) check("bcast", t, i, nranks);
  NCCL(ncclGather(in, rank == 0 ? out : NULL, n, t, 0, comm, NULL));
  for (int r = 0; rank == 0 && r < nranks; r++)
    for (size_t i = 0; i < n; i++) check("gather", t, (size_t)r * n + i, r + 1);
  for (int r = 0; r < nranks; r++)
    for (size_t i = 0; i < n; i++) encode(t, in + ((size_t)r * n + i) * s, rank == 0 ? r + 1 : 0);
  NCCL(ncclScatter(rank == 0 ? in : NULL, out, n, t, 0, comm, NULL));
  for (size_t i = 0; i < n; i++) check("scatter", t, i, rank + 1);
  for (int r = 0; r < nranks; r++)
    for (size_t i = 0; i < n; i++) encode(t, in + ((size_t)r * n + i) * s, rank + r);
  NCCL(ncclAlltoAll(in, out, n, t, comm, NULL));
  for (int r = 0; r < nranks; r++)
    for (size_t i = 0; i < n; i++) check("all-to-all", t, (size_t)r * n + i, rank + r);
  fill(t, n, rank + 1);
  NCCL(ncclGroupStart());
  NCCL(ncclSend(in, n, t, (rank + 1) % nranks, comm, NULL));
  NCCL(ncclRecv(out, n, t, (rank + nranks - 1) % nranks, comm, NULL));
  NCCL(ncclGroupEnd());
  for (size_t i = 0; i < n; i++) check("ring", t, i, (rank + nranks - 1) % nranks + 1);
}

int main(void) {
  place();
  NCCL(ncclCommInitRank(&comm, nranks, id, rank));
  int got;
  NCCL(ncclCommCount(comm, &got));
  EXPECT(got == nranks);
  NCCL(ncclCommUserRank(comm, &got));
  EXPECT(got == rank);
  for (int t = 0; t < ncclNumTypes; t++)
    for (size_t n = 1; n <= MOST / (size_t)nranks; n = n * 61 + 3) {
      reductions((ncclDataType_t)t, n);
      moves((ncclDataType_t)t, n);
    }
  NCCL(ncclCommFinalize(comm));
  NCCL(ncclCommDestroy(comm));
  printf("rank %d ok\n", rank);
  return 0;
}
