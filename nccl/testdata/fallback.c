/* Two ranks on host memory, whose allreduce, broadcast, send and recv are those of the stand-in (standin.c). */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>

#include "client.h"

enum { N = 1000 };

static ncclComm_t comm;
static int (*count)(const char*);
static void (*set_failing)(int);
static float in[N], out[2 * N];

static void fill(void) {
  for (int i = 0; i < N; i++) in[i] = (float)(i + rank);
  memset(out, 0, sizeof out);
}

static void is_sum(ncclComm_t c, int ranks) {
  fill();
  NCCL(ncclAllReduce(in, out, N, ncclFloat32, ncclSum, c, NULL));
  for (int i = 0; i < N; i++) EXPECT(out[i] == (ranks == 2 ? 2.0f * (float)i + 1 : (float)(i + rank)));
}

static void calls(void) {
  int before = count("AllReduce");
  is_sum(comm, 2);
  EXPECT(count("AllReduce") == before + 1);
  fill();
  NCCL(ncclAllGather(in, out, N, ncclFloat32, comm, NULL)); /* not in the list */
  for (int i = 0; i < N; i++) EXPECT(out[i] == (float)i && out[N + i] == (float)(i + 1));
  fill();
  NCCL(ncclBroadcast(in, out, N, ncclFloat32, 1, comm, NULL));
  EXPECT(out[5] == 6 && count("Broadcast") == 1);
  /* An operation with a scalar is one of the other library, too, for as long as the call. */
  ncclRedOp_t times;
  float factor = (float)(rank + 2);
  fill();
  NCCL(ncclRedOpCreatePreMulSum(&times, &factor, ncclFloat32, ncclScalarHostImmediate, comm));
  NCCL(ncclAllReduce(in, out, N, ncclFloat32, times, comm, NULL));
  NCCL(ncclRedOpDestroy(times, comm));
  for (int i = 0; i < N; i++) EXPECT(out[i] == 2.0f * (float)i + 3.0f * (float)(i + 1));
  EXPECT(count("RedOpCreatePreMulSum") == 1 && count("RedOpDestroy") == 1);
}

/* A group with calls of both libraries, of which messages to each other are one unit. */
static void groups(void) {
  static float gathered[2 * N], got[N], sum[N];
  fill();
  NCCL(ncclGroupStart());
  NCCL(ncclSend(in, N, ncclFloat32, 1 - rank, comm, NULL));
  NCCL(ncclAllGather(in, gathered, N, ncclFloat32, comm, NULL));
  NCCL(ncclAllReduce(in, sum, N, ncclFloat32, ncclSum, comm, NULL));
  NCCL(ncclRecv(got, N, ncclFloat32, 1 - rank, comm, NULL));
  EXPECT(count("Send") == 0); /* nothing begins before the end of the group */
  NCCL(ncclGroupEnd());
  EXPECT(count("Send") == 1 && count("Recv") == 1 && count("GroupStart") == 1);
  for (int i = 0; i < N; i++) EXPECT(gathered[N + i] == (float)(i + 1) && got[i] == (float)(i + 1 - rank) && sum[i] == 2.0f * (float)i + 1);
}

static void children(void) {
  ncclComm_t half, none;
  int made = count("CommInitRank");
  NCCL(ncclCommSplit(comm, rank, 0, &half, NULL));
  EXPECT(count("CommInitRank") == made + 1);
  is_sum(half, 1);
  NCCL(ncclCommSplit(comm, rank == 0 ? 3 : NCCL_SPLIT_NOCOLOR, 0, &none, NULL));
  EXPECT((none != NULL) == (rank == 0) && count("CommInitRank") == made + 1 + (rank == 0));
  NCCL(ncclCommDestroy(none));
  NCCL(ncclCommFinalize(half));
  EXPECT(count("CommFinalize") == 1);
  NCCL(ncclCommDestroy(half));
  EXPECT(count("CommDestroy") == 1 + (rank == 0));
  if (rank == 1) return;
  made = count("CommInitRank"); /* rank 0 goes on without the other */
  NCCL(ncclCommShrink(comm, &(int){1}, 1, &half, NULL, NCCL_SHRINK_DEFAULT));
  EXPECT(count("CommInitRank") == made + 1);
  is_sum(half, 1);
  NCCL(ncclCommRevoke(half, NCCL_REVOKE_DEFAULT));
  FAILS(ncclAllReduce(in, out, N, ncclFloat32, ncclSum, half, NULL), ncclInvalidUsage, "was revoked");
  NCCL(ncclCommDestroy(half));
  EXPECT(count("CommDestroy") == 3);
}

static void registrations(void) {
  void *first, *second;
  NCCL(ncclCommRegister(comm, in, sizeof in, &first));
  NCCL(ncclCommRegister(comm, in, sizeof in, &second));
  EXPECT(count("CommRegister") == 1); /* the same one */
  NCCL(ncclCommDeregister(comm, first));
  EXPECT(count("CommDeregister") == 0);
  NCCL(ncclCommDeregister(comm, second));
  EXPECT(count("CommDeregister") == 1);
}

static void failures(void) {
  ncclResult_t state;
  FAILS(ncclAllReduce(in, out, 666, ncclFloat32, ncclSum, comm, NULL), ncclSystemError, "NCCL 22809: ncclAllReduce: the wire is cut");
  is_sum(comm, 2);
  NCCL(ncclGroupStart());
  NCCL(ncclAllReduce(in, out, 666, ncclFloat32, ncclSum, comm, NULL));
  FAILS(ncclGroupEnd(), ncclSystemError, "the wire is cut");
  is_sum(comm, 2);
  NCCL(ncclCommGetAsyncError(comm, &state));
  EXPECT(state == ncclSuccess && count("CommGetAsyncError") > 0);
}

/* An asynchronous error of either library is the communicator's, and stays. */
static void pulled(ncclComm_t c) {
  ncclResult_t state;
  set_failing(ncclRemoteError);
  NCCL(ncclCommGetAsyncError(c, &state));
  EXPECT(state == ncclRemoteError && strstr(ncclGetLastError(c), "a cable was pulled") != NULL);
  set_failing(ncclSuccess);
  NCCL(ncclCommGetAsyncError(c, &state));
  EXPECT(state == ncclRemoteError);
  FAILS(ncclAllReduce(in, out, N, ncclFloat32, ncclSum, c, NULL), ncclRemoteError, "cannot be used any more");
  int before = count("CommAbort");
  is_sum(comm, 2); /* the peer has looked, too, before it hears of the end */
  NCCL(ncclCommDestroy(c));
  EXPECT(count("CommAbort") == before + 1);
}

static void* stuck(void* with) {
  ncclResult_t r = ncclAllReduce(in, out, N, ncclFloat32, ncclSum, with, NULL);
  return (void*)(intptr_t)r;
}

/* The peer does not come: the abort ends the other library's wait as well. */
static void aborted(ncclComm_t c) {
  int before = count("AllReduce");
  pthread_t thread;
  void* result;
  EXPECT(pthread_create(&thread, NULL, stuck, c) == 0);
  while (count("AllReduce") == before) sched_yield();
  NCCL(ncclCommAbort(c));
  EXPECT(pthread_join(thread, &result) == 0 && (ncclResult_t)(intptr_t)result == ncclRemoteError);
}

int main(void) {
  ncclComm_t other, third;
  place();
  NCCL(ncclCommInitRank(&comm, nranks, id, rank));
  void* standin = dlopen(getenv("MSCCLPP_NCCL_LIB_PATH"), RTLD_NOW | RTLD_NOLOAD); /* it was loaded by now */
  EXPECT(standin != NULL);
  *(void**)&count = dlsym(standin, "standin_count");
  *(void**)&set_failing = dlsym(standin, "standin_fails");
  EXPECT(count != NULL && count("CommInitRank") == 1 && count("GetUniqueId") == (rank == 0));
  int n = 0;
  NCCL(ncclGetVersion(&n)); /* this library's, and not the stand-in's */
  NCCL(ncclCommCount(comm, &n));
  EXPECT(n == 2);
  calls();
  groups();
  children();
  registrations();
  failures();
  NCCL(ncclCommSplit(comm, 0, 0, &other, NULL));
  NCCL(ncclCommSplit(comm, 0, 0, &third, NULL));
  pulled(other);
  if (rank == 0) aborted(third);
  is_sum(comm, 2);
  NCCL(ncclCommDestroy(comm));
  EXPECT(count("CommDestroy") == (rank == 0 ? 4 : 2));
  if (rank == 1) NCCL(ncclCommAbort(third));
  printf("rank %d ok\n", rank);
  return 0;
}
