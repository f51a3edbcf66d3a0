/* A rank is killed while the other one is inside a call, or is about to be; two ranks, of which 1 is killed. TEST_CALL says
 * which call. SIGPIPE has its default, which ends a process that writes to a dead peer's socket. */
#include <signal.h>

#include "client.h"

enum { N = 1 << 20 };
static ncclComm_t comm;
static int a[2 * N], b[2 * N];

static ncclResult_t all_reduce(void) { return ncclAllReduce(a, b, N, ncclInt32, ncclSum, comm, NULL); }
static ncclResult_t all_gather(void) { return ncclAllGather(a, b, N, ncclInt32, comm, NULL); }
static ncclResult_t reduce_scatter(void) { return ncclReduceScatter(a, b, N, ncclInt32, ncclSum, comm, NULL); }
static ncclResult_t broadcast(void) { return ncclBroadcast(a, b, N, ncclInt32, 1, comm, NULL); }
static ncclResult_t reduce(void) { return ncclReduce(a, b, N, ncclInt32, ncclSum, 0, comm, NULL); }
static ncclResult_t all_to_all(void) { return ncclAlltoAll(a, b, N, ncclInt32, comm, NULL); }
static ncclResult_t gather(void) { return ncclGather(a, b, N, ncclInt32, 0, comm, NULL); }
static ncclResult_t scatter(void) { return ncclScatter(a, b, N, ncclInt32, 1, comm, NULL); }
static ncclResult_t receive(void) { return ncclRecv(b, N, ncclInt32, 1, comm, NULL); }
static ncclResult_t send(void) { return ncclSend(a, 2 * N, ncclInt32, 1, comm, NULL); }

static ncclResult_t both(void) {
  NCCL(ncclGroupStart());
  NCCL(ncclSend(a, N, ncclInt32, 1, comm, NULL));
  NCCL(ncclRecv(b, N, ncclInt32, 1, comm, NULL));
  return ncclGroupEnd();
}

static ncclResult_t split(void) {
  ncclComm_t part = comm;
  ncclResult_t r = ncclCommSplit(comm, 0, 0, &part, NULL);
  EXPECT(part == NULL);
  return r;
}

static ncclResult_t (*const calls[])(void) = {all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all,
                                              gather,     scatter,    receive,        send,      both,   split};

int main(void) {
  place();
  int x = 1;
  NCCL(ncclCommInitRank(&comm, 2, id, rank));
  signal(SIGPIPE, SIG_DFL);
  NCCL(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, NULL));
  until_through(comm, 1);
  if (rank == 1) raise(SIGKILL);
  ncclResult_t r = calls[atoi(getenv("TEST_CALL"))](), state;
  EXPECT(r == ncclRemoteError);
  EXPECT(strstr(ncclGetLastError(comm), "rank 1") != NULL); /* the culprit */
  NCCL(ncclCommGetAsyncError(comm, &state));
  EXPECT(state == ncclRemoteError);
  NCCL(ncclCommAbort(comm));
  printf("rank %d ok\n", rank);
  return 0;
}
