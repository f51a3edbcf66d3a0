/* Communicators without some of their ranks, which are well, dead, or stuck; five ranks, of which 0 and 3 are killed. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include "client.h"

static int sum(ncclComm_t c) {
  int out = -1;
  NCCL(ncclAllReduce(&rank, &out, 1, ncclInt32, ncclSum, c, NULL));
  return out;
}

static void place_is(ncclComm_t c, int me, int n) {
  int got;
  NCCL(ncclCommUserRank(c, &got));
  EXPECT(got == me);
  NCCL(ncclCommCount(c, &got));
  EXPECT(got == n);
}

/* stuck waits for a message that does not come. */
static void* stuck(void* with) {
  int x;
  return (void*)(long)ncclRecv(&x, 1, ncclInt32, 0, with, NULL);
}

static void refusals(ncclComm_t comm) {
  ncclComm_t out = comm;
  int self[] = {rank}, none[] = {5}, other[] = {(rank + 1) % 5};
  FAILS(ncclCommShrink(comm, other, 0, &out, NULL, 0), ncclInvalidArgument, "0 ranks to exclude");
  EXPECT(out == NULL);
  FAILS(ncclCommShrink(comm, NULL, 1, &out, NULL, 0), ncclInvalidArgument, "excludeRanksList argument is NULL");
  FAILS(ncclCommShrink(comm, self, 1, &out, NULL, 0), ncclInvalidArgument, "excludes itself");
  FAILS(ncclCommShrink(comm, none, 1, &out, NULL, 0), ncclInvalidArgument, "rank 5 to exclude");
  FAILS(ncclCommShrink(comm, other, 1, &out, NULL, 2), ncclInvalidArgument, "flags 0x2");
  FAILS(ncclCommShrink(comm, other, 1, NULL, NULL, 0), ncclInvalidArgument, "newcomm argument is NULL");
  FAILS(ncclCommShrink(NULL, other, 1, &out, NULL, 0), ncclInvalidArgument, "comm argument is NULL");
}

/* fails_soon makes calls until one fails: a death is noticed soon, not at once. */
static void fails_soon(ncclComm_t c) {
  int out;
  ncclResult_t r;
  while ((r = ncclAllReduce(&rank, &out, 1, ncclInt32, ncclSum, c, NULL)) == ncclSuccess) sched_yield();
  EXPECT(r == ncclRemoteError);
}

int main(void) {
  place();
  ncclComm_t comm, part, again;
  NCCL(ncclCommInitRank(&comm, 5, id, rank));
  EXPECT(sum(comm) == 10);
  refusals(comm);

  /* ranks that are well, and do not call */
  if (rank % 2 == 0) {
    int odd[] = {3, 1, 3};
    NCCL(ncclCommShrink(comm, odd, 3, &part, NULL, NCCL_SHRINK_DEFAULT));
    place_is(part, rank / 2, 3);
    EXPECT(sum(part) == 6);
    FAILS(ncclCommShrink(comm, odd, 2, &again, NULL, 0), ncclInvalidArgument, "shrunk before");
    NCCL(ncclCommDestroy(part));
  }
  EXPECT(sum(comm) == 10); /* the parent lives */

  /* another thread is stuck in the communicator that is shrunk */
  ncclComm_t twin;
  NCCL(ncclCommSplit(comm, 0, rank, &twin, NULL));
  EXPECT(sum(comm) == 10); /* all have split: what is aborted now ends for all */
  if (rank % 2 == 0) {
    int odd[] = {1, 3};
    pthread_t thread;
    void* result;
    if (rank == 2) pthread_create(&thread, NULL, stuck, twin);
    NCCL(ncclCommShrink(twin, odd, 2, &part, NULL, NCCL_SHRINK_ABORT));
    if (rank == 2) {
      pthread_join(thread, &result);
      EXPECT((long)result != ncclSuccess);
    }
    EXPECT(sum(part) == 6);
    NCCL(ncclCommDestroy(part));
  }
  NCCL(ncclCommAbort(twin));

  /* a rank that is dead, the first of all */
  if (rank == 0) {
    EXPECT(sum(comm) == 10);
    raise(SIGKILL);
  }
  fails_soon(comm);
  int dead[] = {0};
  NCCL(ncclCommShrink(comm, dead, 1, &part, NULL, NCCL_SHRINK_ABORT));
  place_is(part, rank - 1, 4);
  EXPECT(sum(part) == 10);
  ncclResult_t state;
  NCCL(ncclCommGetAsyncError(comm, &state));
  EXPECT(state != ncclSuccess);
  NCCL(ncclCommAbort(comm));

  /* another one that is dead, of a communicator that was split off from what was shrunk; not blocking */
  ncclComm_t half, rest = NULL;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  NCCL(ncclCommSplit(part, rank == 2, rank, &half, NULL));
  if (rank == 3) {
    EXPECT(sum(part) == 10);
    raise(SIGKILL);
  }
  fails_soon(part); /* all have split before one dies */
  if (rank != 2) {
    int third[] = {1}; /* 3 among 1, 3, 4 */
    ncclResult_t r = ncclCommShrink(half, third, 1, &rest, &config, NCCL_SHRINK_ABORT);
    EXPECT(r == ncclInProgress || r == ncclSuccess);
    ncclComm_t volatile* at = &rest;
    while (*at == NULL) sched_yield();
    NCCL(ncclCommGetAsyncError(rest, &state));
    EXPECT(state == ncclSuccess);
    place_is(rest, rank == 4, 2);
    EXPECT(sum(rest) == 5);
    NCCL(ncclCommAbort(half));
    NCCL(ncclCommDestroy(rest));
  }
  NCCL(ncclCommAbort(part));
  printf("rank %d ok\n", rank);
  return 0;
}
