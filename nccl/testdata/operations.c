/* Operations, line by line; three ranks on host memory. */
#include "client.h"

enum { N = 5, RANKS = 3 };
static ncclComm_t comm, other;

static void zero_counts(void) {
  int x = 7;
  if (rank == 0) { /* alone: there is nothing to wait for */
    NCCL(ncclAllReduce(NULL, NULL, 0, ncclInt32, ncclSum, comm, NULL));
    NCCL(ncclReduce(NULL, NULL, 0, ncclInt32, ncclSum, 1, comm, NULL));
    NCCL(ncclReduceScatter(NULL, NULL, 0, ncclInt32, ncclSum, comm, NULL));
    NCCL(ncclAllGather(NULL, NULL, 0, ncclInt32, comm, NULL));
    NCCL(ncclBroadcast(NULL, NULL, 0, ncclInt32, 1, comm, NULL));
    NCCL(ncclBcast(NULL, 0, ncclInt32, 1, comm, NULL));
    NCCL(ncclAlltoAll(NULL, NULL, 0, ncclInt32, comm, NULL));
    NCCL(ncclGather(NULL, NULL, 0, ncclInt32, 1, comm, NULL));
    NCCL(ncclScatter(NULL, NULL, 0, ncclInt32, 1, comm, NULL));
    FAILS(ncclBroadcast(NULL, NULL, 0, ncclInt32, 3, comm, NULL), ncclInvalidArgument, "invalid root 3"); /* but checked */
  }
  /* A message of no bytes is matched: the one behind it is not taken for it. */
  NCCL(ncclGroupStart());
  if (rank == 0) {
    NCCL(ncclSend(NULL, 0, ncclInt32, 1, comm, NULL));
    NCCL(ncclSend(&x, 1, ncclInt32, 1, comm, NULL));
  }
  int got = 0;
  if (rank == 1) {
    NCCL(ncclRecv(NULL, 0, ncclInt32, 0, comm, NULL));
    NCCL(ncclRecv(&got, 1, ncclInt32, 0, comm, NULL));
  }
  NCCL(ncclGroupEnd());
  EXPECT(rank != 1 || got == 7);
}

#define ALL(array, n, want)                              \
  for (int i_ = 0; i_ < (n); i_++) EXPECT((array)[i_] == (want))

static void in_place(void) {
  int b[RANKS * N];
  for (int i = 0; i < N; i++) b[i] = rank;
  NCCL(ncclAllReduce(b, b, N, ncclInt32, ncclSum, comm, NULL));
  ALL(b, N, 3);
  for (int i = 0; i < N; i++) b[i] = rank;
  NCCL(ncclReduce(b, b, N, ncclInt32, ncclMax, 1, comm, NULL));
  ALL(b, N, rank == 1 ? 2 : rank);
  for (int i = 0; i < N; i++) b[i] = rank;
  NCCL(ncclBroadcast(b, b, N, ncclInt32, 2, comm, NULL));
  ALL(b, N, 2);
  for (int i = 0; i < N; i++) b[rank * N + i] = rank + 10;
  NCCL(ncclAllGather(b + rank * N, b, N, ncclInt32, comm, NULL));
  for (int r = 0; r < RANKS; r++) ALL(b + r * N, N, r + 10);
  for (int i = 0; i < RANKS * N; i++) b[i] = i / N;
  NCCL(ncclReduceScatter(b, b + rank * N, N, ncclInt32, ncclSum, comm, NULL));
  ALL(b + rank * N, N, RANKS * rank);
  for (int i = 0; i < N; i++) b[i] = b[N + i] = rank + 20;
  NCCL(ncclGather(rank == 1 ? b + N : b, b, N, ncclInt32, 1, comm, NULL));
  for (int r = 0; rank == 1 && r < RANKS; r++) ALL(b + r * N, N, r + 20);
  for (int i = 0; i < RANKS * N; i++) b[i] = i / N + 30;
  NCCL(ncclScatter(b, rank == 1 ? b + N : b, N, ncclInt32, 1, comm, NULL));
  ALL(rank == 1 ? b + N : b, N, rank + 30);
}

static void null_off_root(void) {
  int in[RANKS] = {rank, rank, rank}, out[RANKS] = {0};
  NCCL(ncclBroadcast(rank == 2 ? in : NULL, out, 1, ncclInt32, 2, comm, NULL));
  EXPECT(out[0] == 2);
  NCCL(ncclReduce(in, rank == 2 ? out : NULL, 1, ncclInt32, ncclSum, 2, comm, NULL));
  EXPECT(rank != 2 || out[0] == 3);
  NCCL(ncclGather(in, rank == 2 ? out : NULL, 1, ncclInt32, 2, comm, NULL));
  EXPECT(rank != 2 || (out[0] == 0 && out[1] == 1 && out[2] == 2));
  NCCL(ncclScatter(rank == 2 ? in : NULL, out, 1, ncclInt32, 2, comm, NULL));
  EXPECT(out[0] == 2);
  if (rank == 2) { /* the root's are needed */
    FAILS(ncclBroadcast(NULL, out, 1, ncclInt32, 2, comm, NULL), ncclInvalidArgument, "sendbuff argument is NULL");
    FAILS(ncclReduce(in, NULL, 1, ncclInt32, ncclSum, 2, comm, NULL), ncclInvalidArgument, "recvbuff argument is NULL");
  }
}

static void averages(void) {
  int i = rank == 0 ? -5 : 1, got;
  unsigned u = rank == 0 ? 4000000000u : 2u, ugot;
  float f = (float)rank, fgot;
  NCCL(ncclAllReduce(&i, &got, 1, ncclInt32, ncclAvg, comm, NULL));
  EXPECT(got == -1); /* (-5+1+1)/3 */
  NCCL(ncclAllReduce(&u, &ugot, 1, ncclUint32, ncclAvg, comm, NULL));
  EXPECT(ugot == 4000000004u / 3);
  NCCL(ncclAllReduce(&f, &fgot, 1, ncclFloat32, ncclAvg, comm, NULL));
  EXPECT(fgot > 0.9999f && fgot < 1.0001f);
}

static void operators(void) {
  ncclRedOp_t op, same;
  float two = 2, x = 1, y = 0;
  NCCL(ncclRedOpCreatePreMulSum(&op, &two, ncclFloat32, ncclScalarHostImmediate, comm));
  EXPECT((int)op >= 5);
  FAILS(ncclAllReduce(&x, &y, 1, ncclFloat32, op, other, NULL), ncclInvalidArgument, "unknown to this communicator");
  FAILS(ncclAllReduce(&x, &y, 1, ncclFloat16, op, comm, NULL), ncclInvalidArgument, "was created with type");
  FAILS(ncclRedOpDestroy(op, other), ncclInvalidArgument, "unknown to this communicator");
  NCCL(ncclRedOpCreatePreMulSum(&same, &two, ncclFloat32, ncclScalarHostImmediate, other));
  EXPECT(same != op);
  NCCL(ncclRedOpDestroy(same, other));
  NCCL(ncclGroupStart());
  NCCL(ncclAllReduce(&x, &y, 1, ncclFloat32, op, comm, NULL));
  NCCL(ncclRedOpDestroy(op, comm)); /* the group has its value */
  NCCL(ncclGroupEnd());
  EXPECT(y == 6);
  FAILS(ncclAllReduce(&x, &y, 1, ncclFloat32, op, comm, NULL), ncclInvalidArgument, "unknown to this communicator");
  for (int builtin = 0; builtin < ncclNumOps; builtin++) FAILS(ncclRedOpDestroy((ncclRedOp_t)builtin, comm), ncclInvalidArgument, "builtin");
  FAILS(ncclRedOpCreatePreMulSum(NULL, &two, ncclFloat32, ncclScalarHostImmediate, comm), ncclInvalidArgument, "op argument is NULL");
  FAILS(ncclRedOpCreatePreMulSum(&op, NULL, ncclFloat32, ncclScalarHostImmediate, comm), ncclInvalidArgument, "scalar argument is NULL");
  FAILS(ncclRedOpCreatePreMulSum(&op, &two, (ncclDataType_t)40, ncclScalarHostImmediate, comm), ncclInvalidArgument, "invalid type 40");
  FAILS(ncclRedOpCreatePreMulSum(&op, &two, ncclFloat32, (ncclScalarResidence_t)7, comm), ncclInvalidArgument, "invalid residence 7");
}

static void bad_arguments(void) {
  int x = 0, y = 0;
  const int types[] = {-1, ncclNumTypes, 1 << 30};
  for (int i = 0; i < 3; i++) FAILS(ncclAllGather(&x, &y, 1, (ncclDataType_t)types[i], comm, NULL), ncclInvalidArgument, "invalid type");
  const int ops[] = {-1, ncclNumOps, 0x7fffffff};
  for (int i = 0; i < 3; i++) FAILS(ncclAllReduce(&x, &y, 1, ncclInt32, (ncclRedOp_t)ops[i], comm, NULL), ncclInvalidArgument, "reduction operator");
  for (int root = -1; root <= RANKS; root += RANKS + 1) {
    FAILS(ncclReduce(&x, &y, 1, ncclInt32, ncclSum, root, comm, NULL), ncclInvalidArgument, "invalid root");
    FAILS(ncclGather(&x, &y, 1, ncclInt32, root, comm, NULL), ncclInvalidArgument, "invalid root");
    FAILS(ncclSend(&x, 1, ncclInt32, root, comm, NULL), ncclInvalidArgument, "invalid peer");
    FAILS(ncclRecv(&x, 1, ncclInt32, root, comm, NULL), ncclInvalidArgument, "invalid peer");
  }
}

int main(void) {
  place();
  NCCL(ncclCommInitRank(&comm, RANKS, id, rank));
  NCCL(ncclCommSplit(comm, 0, 0, &other, NULL));
  zero_counts();
  in_place();
  null_off_root();
  averages();
  operators();
  bad_arguments();
  NCCL(ncclCommDestroy(other));
  NCCL(ncclCommDestroy(comm));
  printf("rank %d ok\n", rank);
  return 0;
}
