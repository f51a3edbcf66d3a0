/* The life of a communicator after it was made: questions, errors, and its end. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "comm.h"
#include "cuda.h"
#include "door.h"
#include "export.h"
#include "fork.h"
#include "group.h"
#include "log.h"

EXPORT(ncclResult_t, CommCount, const ncclComm_t comm, int* count) {
  ncclResult_t r = comm_enter(comm, "ncclCommCount", NEED_READY);
  if (r != ncclSuccess) return r;
  if (count)
    *count = comm->nranks;
  else
    r = fail(ncclInvalidArgument, "ncclCommCount : count argument is NULL");
  comm_leave(comm);
  return r;
}

EXPORT(ncclResult_t, CommUserRank, const ncclComm_t comm, int* rank) {
  ncclResult_t r = comm_enter(comm, "ncclCommUserRank", NEED_READY);
  if (r != ncclSuccess) return r;
  if (rank)
    *rank = comm->rank;
  else
    r = fail(ncclInvalidArgument, "ncclCommUserRank : rank argument is NULL");
  comm_leave(comm);
  return r;
}

EXPORT(ncclResult_t, CommCuDevice, const ncclComm_t comm, int* device) {
  ncclResult_t r = comm_enter(comm, "ncclCommCuDevice", NEED_READY);
  if (r != ncclSuccess) return r;
  if (device)
    *device = comm->device < 0 ? 0 : comm->device; /* host memory has no number */
  else
    r = fail(ncclInvalidArgument, "ncclCommCuDevice : device argument is NULL");
  comm_leave(comm);
  return r;
}

EXPORT(ncclResult_t, CommGetAsyncError, ncclComm_t comm, ncclResult_t* error) {
  ncclResult_t r = comm_enter(comm, "ncclCommGetAsyncError", NEED_ALIVE);
  if (r != ncclSuccess) return r;
  if (error == NULL) {
    r = fail(ncclInvalidArgument, "ncclCommGetAsyncError : asyncError argument is NULL");
  } else {
    int state = atomic_load_explicit(&comm->state, memory_order_acquire);
    void* inner = atomic_load(&comm->inner);
    if (state == ncclSuccess && inner) {
      const struct door* d = door_opened();
      state = d->failed(inner);
      int expected = ncclSuccess;
      if (state != ncclSuccess && atomic_compare_exchange_strong(&comm->state, &expected, state))
        fail((ncclResult_t)state, "%s", d->error()); /* the first stays */
    }
    *error = (ncclResult_t)state;
  }
  comm_leave(comm);
  return r;
}

/* ---- the end ---- */

/* settle waits until the work that the communicator has put on streams is done. The program may have
 * destroyed these streams, so the device is asked. Kernels whose peers are gone leave by themselves. */
static ncclResult_t settle(ncclComm_t c) {
  return c->device >= 0 && atomic_load(&c->launched) ? cuda_settle(c->device) : ncclSuccess;
}

static ncclResult_t run_finalize(struct work* w) { return settle(w->comm); }

static void finalize_done(struct work* w, ncclResult_t r) {
  int expected = ncclInProgress;
  atomic_compare_exchange_strong(&w->comm->state, &expected, r);
  comm_leave(w->comm);
  free(w);
}

EXPORT(ncclResult_t, CommFinalize, ncclComm_t comm) {
  if (comm == NULL) return ncclSuccess;
  if (after_fork()) return ncclSuccess;
  group_begin();
  ncclResult_t r = comm_enter(comm, "ncclCommFinalize", NEED_ALIVE);
  if (r != ncclSuccess) return group_end(r);
  int before = ncclSuccess;
  struct work* w = NULL;
  if (atomic_load(&comm->revoked))
    r = fail(ncclInvalidArgument, "ncclCommFinalize : communicator %p was revoked", (void*)comm);
  else if (atomic_load(&comm->state) == ncclInProgress)
    r = fail(ncclInvalidArgument, "ncclCommFinalize : Attempt to use communicator before the previous operation returned ncclSuccess");
  else if (atomic_exchange(&comm->finalized, 1))
    r = fail(ncclInvalidArgument, "ncclCommFinalize : communicator %p was finalized before", (void*)comm);
  else if (atomic_load(&comm->state) != ncclSuccess)
    r = (ncclResult_t)atomic_load(&comm->state);
  else if ((w = calloc(1, sizeof *w)) == NULL)
    r = fail(ncclSystemError, "ncclCommFinalize : out of memory");
  if (r != ncclSuccess) {
    comm_leave(comm);
    return group_end(r);
  }
  *w = (struct work){.comm = comm, .run = run_finalize, .done = finalize_done};
  if (!comm->blocking) atomic_compare_exchange_strong(&comm->state, &before, ncclInProgress);
  return group_end(group_work(w));
}

/* until_alone waits until no other call is inside, for at most ms; this call is one. */
static int until_alone(ncclComm_t c, long ms) {
  struct timespec pause = {0, 200000};
  for (long waited = 0; atomic_load(&c->users) > 2 && waited < ms * 5; waited++) nanosleep(&pause, NULL);
  return atomic_load(&c->users) <= 2;
}

EXPORT(ncclResult_t, CommDestroy, ncclComm_t comm) {
  if (comm == NULL) return ncclSuccess;
  if (after_fork()) return ncclSuccess;
  ncclResult_t r = comm_enter(comm, "ncclCommDestroy", NEED_ALIVE);
  if (r != ncclSuccess) return r;
  if (group_has(comm)) {
    r = fail(ncclInvalidUsage, "ncclCommDestroy : communicator %p is in the group of this thread: expected ncclGroupEnd first", (void*)comm);
    comm_leave(comm);
    return r;
  }
  if (!comm_take(comm)) {
    r = fail(ncclInvalidArgument, "ncclCommDestroy : communicator %p is being destroyed", (void*)comm);
    comm_leave(comm);
    return r;
  }
  /* Work in the background ends first. */
  struct timespec pause = {0, 200000};
  while (atomic_load(&comm->state) == ncclInProgress) nanosleep(&pause, NULL);
  const struct door* d = door_opened();
  void* inner = atomic_exchange(&comm->inner, NULL);
  if (inner && atomic_load(&comm->state) == ncclSuccess && settle(comm) == ncclSuccess)
    (void)d->close(inner); /* a peer that has gone is no reason to fail here */
  else if (inner)
    d->abort(inner, "ncclCommDestroy after a failure"); /* which has kernels leave before it frees */
  log_info(SUB_INIT, comm->device, "comm %p rank %d nranks %d cudaDev %d - Destroy COMPLETE", (void*)comm, comm->rank, comm->nranks, comm->device);
  comm_give_up(comm);
  comm_leave(comm);
  return ncclSuccess;
}

/* closing frees the handle when the last call that is still inside has left. */
static void* closing(void* with) {
  ncclComm_t c = with;
  while (!until_alone(c, 60000)) continue;
  atomic_store(&c->inner, NULL); /* the abort has ended it */
  comm_give_up(c);
  comm_leave(c);
  return NULL;
}

EXPORT(ncclResult_t, CommAbort, ncclComm_t comm) {
  if (comm == NULL) return ncclSuccess;
  if (after_fork()) return ncclSuccess;
  ncclResult_t r = comm_enter(comm, "ncclCommAbort", NEED_ALIVE);
  if (r != ncclSuccess) return r;
  if (!comm_take(comm)) {
    r = fail(ncclInvalidArgument, "ncclCommAbort : communicator %p is being destroyed", (void*)comm);
    comm_leave(comm);
    return r;
  }
  const struct door* d = door_opened();
  void* inner = atomic_load(&comm->inner);
  int expected = ncclSuccess;
  atomic_compare_exchange_strong(&comm->state, &expected, ncclInvalidUsage);
  if (inner) d->abort(inner, "ncclCommAbort");
  family_abort(comm);
  void* shrinking = atomic_load(&comm->shrinking);
  if (shrinking) d->abort(shrinking, "ncclCommAbort of the communicator that was shrunk");
  log_info(SUB_INIT, comm->device, "comm %p rank %d nranks %d cudaDev %d - Abort COMPLETE", (void*)comm, comm->rank, comm->nranks, comm->device);
  /* Calls inside end soon; what they use is freed when the last has left, and nobody waits for it
   * longer than a moment. */
  if (until_alone(comm, 500)) {
    closing(comm);
    return ncclSuccess;
  }
  pthread_t thread;
  if (start_thread(&thread, 1, closing, comm) != 0) comm_leave(comm); /* the handle is lost, and nothing waits */
  return ncclSuccess;
}

EXPORT(ncclResult_t, CommRevoke, ncclComm_t comm, int flags) {
  if (after_fork()) return fork_refusal("ncclCommRevoke");
  ncclResult_t r = comm_enter(comm, "ncclCommRevoke", NEED_READY);
  if (r != ncclSuccess) return r == ncclInvalidUsage ? ncclInvalidArgument : r; /* finalized */
  if (flags != NCCL_REVOKE_DEFAULT)
    r = fail(ncclInvalidArgument, "ncclCommRevoke : flags 0x%x: expected NCCL_REVOKE_DEFAULT", flags);
  else if (atomic_exchange(&comm->revoked, 1))
    r = fail(ncclInvalidArgument, "ncclCommRevoke : communicator %p was revoked before", (void*)comm);
  comm_leave(comm);
  return r;
}
