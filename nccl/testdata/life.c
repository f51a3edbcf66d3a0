/* Communicators that are split, not blocking, aborted, many. */
#include <pthread.h>
#include <sched.h>

#include "aborts.h"

static ncclResult_t until_done(ncclComm_t c) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    NCCL(ncclCommGetAsyncError(c, &state));
    sched_yield();
  }
  return state;
}

static int sum(ncclComm_t c, int mine) {
  int out = -1;
  NCCL(ncclAllReduce(&mine, &out, 1, ncclInt32, ncclSum, c, NULL));
  return out;
}

/* a thread that waits for a message that does not come */
static void* stuck(void* with) {
  int x, n, me;
  ncclComm_t c = with;
  ncclResult_t r = ncclCommCount(c, &n); /* it may be aborted before this thread begins */
  if (r == ncclSuccess) r = ncclCommUserRank(c, &me);
  if (r == ncclSuccess) r = ncclRecv(&x, 1, ncclInt32, (me + 1) % n, c, NULL);
  return (void*)(long)r;
}

int main(void) {
  place();
  ncclComm_t comm, part, other;
  int all = 0;
  for (int r = 0; r < nranks; r++) all += r;

  /* not blocking */
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.commName = "life";
  ncclResult_t r = ncclCommInitRankConfig(&comm, nranks, id, rank, &config);
  EXPECT(r == ncclInProgress || r == ncclSuccess);
  EXPECT(comm != NULL);
  EXPECT(until_done(comm) == ncclSuccess);
  EXPECT(sum(comm, rank) == all);

  /* split by parity, in the opposite order; the parent is in progress meanwhile */
  r = ncclCommSplit(comm, rank % 2, -rank, &part, NULL);
  EXPECT(r == ncclInProgress || r == ncclSuccess);
  EXPECT(until_done(comm) == ncclSuccess);
  ncclComm_t volatile* at = &part;
  while (*at == NULL) sched_yield();
  int n, me;
  EXPECT(until_done(part) == ncclSuccess);
  NCCL(ncclCommCount(part, &n));
  NCCL(ncclCommUserRank(part, &me));
  EXPECT(n == (nranks + 1 - rank % 2) / 2);
  EXPECT(me == n - 1 - rank / 2);

  /* nobody's color */
  config.blocking = 1;
  NCCL(ncclCommSplit(comm, rank == 0 ? NCCL_SPLIT_NOCOLOR : 3, 0, &other, &config));
  EXPECT((other == NULL) == (rank == 0));
  if (other) EXPECT(sum(other, rank) == all);
  NCCL(ncclCommDestroy(other));

  /* a child outlives its parent */
  r = ncclCommFinalize(comm);
  EXPECT(r == ncclInProgress || r == ncclSuccess);
  EXPECT(until_done(comm) == ncclSuccess);
  NCCL(ncclCommDestroy(comm));
  int want = 0;
  for (int i = rank % 2; i < nranks; i += 2) want += i;
  EXPECT(sum(part, rank) == want);

  /* abort while another thread is stuck in a call; it waits for nobody. What the ranks did before
   * has ended everywhere: an abort ends what its peers are in. */
  ncclComm_t pair;
  config.blocking = 1;
  NCCL(ncclCommSplit(part, 0, 0, &pair, &config));
  EXPECT(sum(part, rank) == want);
  if (n > 1) {
    pthread_t thread;
    pthread_create(&thread, NULL, stuck, pair);
    PROMPTLY(ncclCommAbort(pair));
    EXPECT(result_of(thread) != ncclSuccess);
    FAILS(ncclCommDestroy(pair), ncclInvalidArgument, "destroyed"); /* or it is being destroyed: Abort waits for a moment alone */
  } else {
    NCCL(ncclCommAbort(pair));
  }
  NCCL(ncclCommDestroy(part));
  printf("rank %d ok\n", rank);
  return 0;
}
