/* Communicators, line by line; two ranks on host memory. */
#include <sched.h>

#include "client.h"

static ncclComm_t comm; /* blocking, and well until the end */

static int sum(ncclComm_t c) {
  int out = -1;
  NCCL(ncclAllReduce(&rank, &out, 1, ncclInt32, ncclSum, c, NULL));
  return out;
}

static ncclResult_t until_done(ncclComm_t c) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    NCCL(ncclCommGetAsyncError(c, &state));
    sched_yield();
  }
  return state;
}

/* new_ids gives both ranks the same new ids. */
static void new_ids(ncclUniqueId* ids, int n) {
  for (int i = 0; rank == 0 && i < n; i++) NCCL(ncclGetUniqueId(&ids[i]));
  NCCL(ncclBcast(ids, (size_t)n * sizeof *ids, ncclInt8, 0, comm, NULL));
}

#define BUSY "Attempt to use communicator before the previous operation returned ncclSuccess"

/* Rank 1 comes when rank 0 has looked at a communicator that is in progress. */
static void in_progress(void) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t c = NULL, out = comm, never;
  ncclUniqueId ids[2];
  ncclResult_t state, r;
  int n;
  void* handle;
  new_ids(ids, 2);
  config.blocking = 0;
  if (rank == 0) {
    EXPECT(ncclCommInitRankConfig(&c, 2, ids[0], 0, &config) == ncclInProgress);
    EXPECT(c != NULL);
    FAILS(ncclCommCount(c, &n), ncclInvalidArgument, BUSY);
    FAILS(ncclCommUserRank(c, &n), ncclInvalidArgument, BUSY);
    FAILS(ncclCommCuDevice(c, &n), ncclInvalidArgument, BUSY);
    FAILS(ncclAllReduce(&n, &n, 1, ncclInt32, ncclSum, c, NULL), ncclInvalidArgument, BUSY);
    FAILS(ncclSend(&n, 1, ncclInt32, 1, c, NULL), ncclInvalidArgument, BUSY);
    FAILS(ncclCommSplit(c, 0, 0, &out, NULL), ncclInvalidArgument, BUSY);
    EXPECT(out == NULL);
    FAILS(ncclCommShrink(c, (int[]){1}, 1, &out, NULL, 0), ncclInvalidArgument, BUSY);
    FAILS(ncclCommFinalize(c), ncclInvalidArgument, BUSY);
    FAILS(ncclCommRegister(c, &n, sizeof n, &handle), ncclInvalidArgument, BUSY);
    NCCL(ncclCommGetAsyncError(c, &state));
    EXPECT(state == ncclInProgress);
    /* one to which nobody comes is aborted */
    EXPECT(ncclCommInitRankConfig(&never, 2, ids[1], 0, &config) == ncclInProgress);
    NCCL(ncclCommAbort(never));
    until_ended(never);
  }
  EXPECT(sum(comm) == 1);
  if (rank == 1) {
    r = ncclCommInitRankConfig(&c, 2, ids[0], 1, &config);
    EXPECT(r == ncclInProgress || r == ncclSuccess);
  }
  EXPECT(until_done(c) == ncclSuccess);
  EXPECT(sum(c) == 1);
  /* config NULL: like the parent, which is not blocking */
  r = ncclCommSplit(c, 0, 0, &out, NULL);
  EXPECT(r == ncclInProgress);
  EXPECT(until_done(c) == ncclSuccess);
  ncclComm_t volatile* at = &out;
  while (*at == NULL) sched_yield();
  EXPECT(ncclCommFinalize(out) == ncclInProgress);
  EXPECT(until_done(out) == ncclSuccess);
  NCCL(ncclCommDestroy(out));
  NCCL(ncclCommDestroy(c));
}

static void scalable(void) {
  ncclUniqueId ids[2];
  ncclComm_t c;
  new_ids(ids, 2);
  NCCL(ncclCommInitRankScalable(&c, 2, rank, 2, ids, NULL)); /* the first names it */
  EXPECT(sum(c) == 1);
  NCCL(ncclCommDestroy(c));
  FAILS(ncclCommInitRankScalable(&c, 2, rank, 0, ids, NULL), ncclInvalidArgument, "0 ids for 2 ranks");
  EXPECT(c == NULL);
  FAILS(ncclCommInitRankScalable(&c, 2, rank, 1, NULL, NULL), ncclInvalidArgument, "commId argument is NULL");
}

static void splits(void) {
  ncclComm_t c;
  int me;
  NCCL(ncclCommSplit(comm, 4, 9, &c, NULL)); /* a tie: by rank of the parent */
  NCCL(ncclCommUserRank(c, &me));
  EXPECT(me == rank);
  NCCL(ncclCommDestroy(c));
  NCCL(ncclCommSplit(comm, 4, -rank, &c, NULL)); /* by key */
  NCCL(ncclCommUserRank(c, &me));
  EXPECT(me == 1 - rank);
  NCCL(ncclCommDestroy(c));
  c = comm;
  NCCL(ncclCommSplit(comm, NCCL_SPLIT_NOCOLOR, 0, &c, NULL));
  EXPECT(c == NULL);
  FAILS(ncclCommSplit(comm, -2, 0, &c, NULL), ncclInvalidArgument, "color -2");
  FAILS(ncclCommSplit(comm, 0, 0, NULL, NULL), ncclInvalidArgument, "newcomm argument is NULL");
  EXPECT(sum(comm) == 1);
}

/* The abort of a child ends its parent if they share resources, and only then. */
static void shared_abort(void) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t parent, child, alone;
  ncclResult_t state;
  int out;
  NCCL(ncclCommSplit(comm, 0, 0, &parent, NULL));
  NCCL(ncclCommSplit(parent, 0, 0, &alone, NULL));
  config.splitShare = 1;
  NCCL(ncclCommSplit(parent, 0, 0, &child, &config));
  EXPECT(sum(comm) == 1);
  NCCL(ncclCommAbort(alone));
  NCCL(ncclCommGetAsyncError(parent, &state));
  EXPECT(state == ncclSuccess);
  EXPECT(sum(comm) == 1);
  NCCL(ncclCommAbort(child));
  NCCL(ncclCommGetAsyncError(parent, &state));
  EXPECT(state != ncclSuccess);
  FAILS(ncclAllReduce(&rank, &out, 1, ncclInt32, ncclSum, parent, NULL), ncclInvalidUsage, "ncclCommAbort");
  NCCL(ncclCommAbort(parent));
  EXPECT(sum(comm) == 1);
}

static void revoked(void) {
  ncclComm_t c, below;
  int x = 0;
  NCCL(ncclCommSplit(comm, 0, 0, &c, NULL));
  FAILS(ncclCommRevoke(c, 1), ncclInvalidArgument, "flags");
  NCCL(ncclCommRevoke(c, NCCL_REVOKE_DEFAULT));
  FAILS(ncclCommRevoke(c, 0), ncclInvalidArgument, "revoked before");
  FAILS(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, c, NULL), ncclInvalidUsage, "was revoked");
  FAILS(ncclCommFinalize(c), ncclInvalidArgument, "was revoked");
  NCCL(ncclCommSplit(c, 0, 0, &below, NULL));
  EXPECT(sum(below) == 1);
  NCCL(ncclCommFinalize(below));
  FAILS(ncclCommRevoke(below, 0), ncclInvalidArgument, "was finalized");
  FAILS(ncclCommFinalize(below), ncclInvalidArgument, "finalized before");
  FAILS(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, below, NULL), ncclInvalidUsage, "was finalized");
  NCCL(ncclCommDestroy(below));
  NCCL(ncclCommDestroy(c));
  FAILS(ncclCommRevoke(c, 0), ncclInvalidArgument, "was destroyed");
  FAILS(ncclCommDestroy(c), ncclInvalidArgument, "was destroyed");
  FAILS(ncclCommAbort(c), ncclInvalidArgument, "was destroyed");
}

/* A size that ranks do not agree on fails for both, and leaves no handle. */
static void ranks_disagree(void) {
  ncclUniqueId one;
  ncclComm_t c = comm;
  new_ids(&one, 1);
  EXPECT(ncclCommInitRank(&c, 2 + rank, one, rank) != ncclSuccess);
  EXPECT(c == NULL);
}

int main(void) {
  place();
  NCCL(ncclCommInitRank(&comm, 2, id, rank));
  in_progress();
  scalable();
  splits();
  shared_abort();
  revoked();
  ranks_disagree();
  EXPECT(sum(comm) == 1);
  NCCL(ncclCommDestroy(comm));
  printf("rank %d ok\n", rank);
  return 0;
}
