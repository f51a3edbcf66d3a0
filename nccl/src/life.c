/* The life of a communicator after it was made: questions, errors, and its end. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "comm.h"
#include "cuda.h"
#include "door.h"
#include "env.h"
#include "export.h"
#include "fallback.h"
#include "fork.h"
#include "group.h"
#include "log.h"
#include "watch.h"

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
      if (state == ncclSuccess && (state = fallback_failed(comm)) != ncclSuccess) atomic_compare_exchange_strong(&comm->state, &expected, state);
    }
    *error = (ncclResult_t)state;
  }
  comm_leave(comm);
  return r;
}

/* ---- the end ---- */

/* settle waits until the work that the communicator has put on streams is done: for an event behind it, as the
 * program may have destroyed its streams. Where there is none, as behind graphs, the device is asked. Kernels whose peers
 * are gone leave by themselves. */
static ncclResult_t settle(ncclComm_t c) {
  ncclResult_t r = ncclSuccess;
  void* inner = atomic_load(&c->inner);
  if (c->device < 0 || !atomic_load(&c->launched)) return r;
  const struct door* d = door_opened();
  if (d->settle(inner, &r)) return r == ncclSuccess ? r : fail(r, "%s", d->error());
  return cuda_settle(c->device);
}

static ncclResult_t run_finalize(struct work* w) {
  ncclResult_t r = fallback_finalize(w->comm);
  ncclResult_t settled = settle(w->comm);
  return r == ncclSuccess ? settled : r;
}

static void finalize_done(struct work* w, ncclResult_t r) {
  int expected = ncclInProgress;
  atomic_compare_exchange_strong(&w->comm->state, &expected, r);
  comm_leave(w->comm);
  free(w);
}

EXPORT(ncclResult_t, CommFinalize, ncclComm_t comm) {
  RANGE("ncclCommFinalize");
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
  atomic_store(&comm->doing, "ncclCommFinalize");
  if (!comm->blocking) atomic_compare_exchange_strong(&comm->state, &before, ncclInProgress);
  return group_end(group_work(w));
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void pause_a_little(void) {
  static const struct timespec pause = {0, 200000};
  nanosleep(&pause, NULL);
}

/* until_alone waits until no other call is inside, for at most so long; this call is one. */
static int until_alone(ncclComm_t c, double seconds) {
  double until = now() + seconds;
  while (atomic_load(&c->users) > 2 && now() < until) pause_a_little();
  return atomic_load(&c->users) <= 2;
}

static int until_idle(ncclComm_t c, double seconds) {
  double until = now() + seconds;
  while (atomic_load(&c->state) == ncclInProgress && now() < until) pause_a_little();
  return atomic_load(&c->state) != ncclInProgress;
}

/* until_done waits for what runs in the background: a communicator that is made, split or finalized. That waits for
 * other ranks for half an hour, which is too long for a program that wants to end. */
static ncclResult_t until_done(ncclComm_t c) {
  const char* text = setting("MSCCLPP_NCCL_DESTROY_SECONDS");
  double limit = text && atof(text) > 0 ? atof(text) : 60;
  if (until_idle(c, limit)) return ncclSuccess;
  const char* doing = atomic_load(&c->doing);
  comm_abort(c, "ncclCommDestroy, which has waited long enough");
  /* Half a second, unless the machine is very busy. Whom it has waited for is in the error that it ends with. */
  const char* why = until_idle(c, 20) ? c->ended_with : "it goes on, and does not notice";
  return fail(ncclRemoteError, "ncclCommDestroy : %s has not ended within %g s (MSCCLPP_NCCL_DESTROY_SECONDS), and was aborted: %s", doing ? doing : "what communicator does in the background", limit, why);
}

EXPORT(ncclResult_t, CommDestroy, ncclComm_t comm) {
  RANGE("ncclCommDestroy");
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
  r = until_done(comm);
  const struct door* d = door_opened();
  void* inner = atomic_load(&comm->inner);
  if (inner && atomic_load(&comm->state) == ncclSuccess && settle(comm) == ncclSuccess) {
    ncclResult_t end = fallback_destroy(comm);
    if (r == ncclSuccess) r = end;
    (void)d->close(inner); /* a peer that has gone is no reason to fail here */
  } else if (inner) {
    d->abort(inner, "ncclCommDestroy after a failure"); /* which has kernels leave before it frees */
    fallback_abort(comm);
  }
  atomic_store(&comm->inner, NULL);
  log_info(SUB_INIT, comm->device, "comm %p rank %d nranks %d cudaDev %d - Destroy COMPLETE", (void*)comm, comm->rank, comm->nranks, comm->device);
  comm_give_up(comm);
  comm_leave(comm);
  return r;
}

/* closing frees the handle when the last call that is still inside has left. */
static void* closing(void* with) {
  ncclComm_t c = with;
  while (!until_alone(c, 60)) continue;
  atomic_store(&c->inner, NULL); /* the abort has ended it */
  comm_give_up(c);
  comm_leave(c);
  return NULL;
}

EXPORT(ncclResult_t, CommAbort, ncclComm_t comm) {
  RANGE("ncclCommAbort");
  if (comm == NULL) return ncclSuccess;
  if (after_fork()) return ncclSuccess;
  ncclResult_t r = comm_enter(comm, "ncclCommAbort", NEED_ALIVE);
  if (r != ncclSuccess) return r;
  int again = atomic_exchange(&comm->aborted, 1), destroyed = !comm_take(comm);
  if (destroyed && again) {
    comm_leave(comm);
    return fail(ncclInvalidArgument, "ncclCommAbort : communicator %p is being destroyed", (void*)comm);
  }
  comm_abort(comm, "ncclCommAbort");
  if (destroyed) { /* by a thread that is in Destroy, which ends now, and frees */
    comm_leave(comm);
    return ncclSuccess;
  }
  log_info(SUB_INIT, comm->device, "comm %p rank %d nranks %d cudaDev %d - Abort COMPLETE", (void*)comm, comm->rank, comm->nranks, comm->device);
  /* Calls inside end soon; what they use is freed when the last has left, and nobody waits for it
   * longer than a moment. */
  if (until_alone(comm, 0.4)) {
    closing(comm);
    return ncclSuccess;
  }
  pthread_t thread;
  if (start_thread(&thread, 1, closing, comm) != 0) comm_leave(comm); /* the handle is lost, and nothing waits */
  return ncclSuccess;
}

EXPORT(ncclResult_t, CommRevoke, ncclComm_t comm, int flags) {
  RANGE("ncclCommRevoke");
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
