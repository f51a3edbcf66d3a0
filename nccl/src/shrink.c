/* Making a communicator of the ranks that are left. */
#include <stdlib.h>
#include <string.h>

#include "comm.h"
#include "door.h"
#include "export.h"
#include "fork.h"
#include "group.h"
#include "hash.h"
#include "log.h"
#include "watch.h"

/* No color of a split: their ids are made of those. */
enum { SHRUNK = -2 };

struct shrink {
  struct work work; /* first: they are the same address */
  ncclComm_t* out;
  int flags, count;
  int excluded[];
};

static ncclResult_t run_shrink(struct work* w) {
  struct shrink* s = (struct shrink*)w;
  ncclComm_t c = w->comm, parent = w->parent;
  const struct door* d = door_opened();
  void* inner = NULL;
  ncclResult_t r = d->shrink(atomic_load(&parent->inner), s->excluded, (size_t)s->count, s->flags & NCCL_SHRINK_ABORT, &inner);
  if (r != ncclSuccess) return comm_unmade(c, r, "ncclCommShrink : ");
  /* Ranks that stay need not have shrunk as often: that of the first one counts, which is rank 0. */
  c->id = hash_bytes(&(uint64_t[]){parent->id, (uint64_t)parent->rank, SHRUNK, atomic_fetch_add(&parent->shrinks, 1)}, 32);
  if ((r = comm_meet(c, inner, 0, "ncclCommShrink : ")) != ncclSuccess) return r;
  log_info(SUB_INIT, c->device, "ncclCommShrink comm %p rank %d nranks %d cudaDev %d parent %p - Init COMPLETE", (void*)c, c->rank, c->nranks, c->device, (void*)parent);
  return ncclSuccess;
}

static void shrink_done(struct work* w, ncclResult_t r) {
  struct shrink* s = (struct shrink*)w;
  ncclComm_t c = w->comm, parent = w->parent; /* which was entered */
  atomic_store(&c->parent, NULL);
  atomic_store_explicit(&c->state, r, memory_order_release);
  __atomic_store_n(s->out, r == ncclSuccess ? c : NULL, __ATOMIC_RELEASE);
  free(s);
  comm_leave(c);
  if (r != ncclSuccess) comm_give_up(c);
  comm_leave(parent);
}

/* check_excluded looks at what the ranks that stay are to agree on. */
static ncclResult_t check_excluded(ncclComm_t comm, const int* excluded, int count, int flags) {
  if (excluded == NULL) return fail(ncclInvalidArgument, "ncclCommShrink : excludeRanksList argument is NULL");
  if (count <= 0) return fail(ncclInvalidArgument, "ncclCommShrink : %d ranks to exclude: expected one or more", count);
  if (flags & ~NCCL_SHRINK_ABORT)
    return fail(ncclInvalidArgument, "ncclCommShrink : flags 0x%x: expected NCCL_SHRINK_DEFAULT or NCCL_SHRINK_ABORT", flags);
  for (int i = 0; i < count; i++) {
    if (excluded[i] < 0 || excluded[i] >= comm->nranks)
      return fail(ncclInvalidArgument, "ncclCommShrink : rank %d to exclude: expected ranks from 0 to %d", excluded[i], comm->nranks - 1);
    if (excluded[i] == comm->rank)
      return fail(ncclInvalidArgument, "ncclCommShrink : rank %d excludes itself: expected calls of the ranks that stay", comm->rank);
  }
  return ncclSuccess;
}

/* enter_shrink is comm_enter for a communicator that may have failed, but not for one that is being made or has ended. */
static ncclResult_t enter_shrink(ncclComm_t comm) {
  ncclResult_t r = comm_enter(comm, "ncclCommShrink", NEED_ALIVE);
  if (r != ncclSuccess) return r;
  if (atomic_load(&comm->inner) == NULL && atomic_load(&comm->aborted))
    r = fail(ncclInvalidUsage, "ncclCommShrink : communicator %p cannot be used any more: ncclCommAbort has ended it", (void*)comm);
  else if (atomic_load(&comm->state) == ncclInProgress || atomic_load(&comm->inner) == NULL)
    r = fail(ncclInvalidArgument, "ncclCommShrink : Attempt to use communicator before the previous operation returned ncclSuccess");
  else if (atomic_load(&comm->finalized))
    r = fail(ncclInvalidUsage, "ncclCommShrink : communicator %p was finalized", (void*)comm);
  if (r != ncclSuccess) comm_leave(comm);
  return r;
}

EXPORT(ncclResult_t, CommShrink, ncclComm_t comm, int* exclude, int count, ncclComm_t* newcomm, ncclConfig_t* config, int flags) {
  RANGE("ncclCommShrink");
  if (after_fork()) return fork_refusal("ncclCommShrink");
  group_begin();
  ncclResult_t r = newcomm ? enter_shrink(comm) : fail(ncclInvalidArgument, "ncclCommShrink : newcomm argument is NULL");
  if (newcomm) *newcomm = NULL;
  if (r != ncclSuccess) return group_end(r);
  struct shrink* s = NULL;
  ncclComm_t c = NULL;
  r = check_excluded(comm, exclude, count, flags);
  if (r == ncclSuccess && ((s = calloc(1, sizeof *s + (size_t)count * sizeof(int))) == NULL || (c = comm_new()) == NULL))
    r = fail(ncclSystemError, "ncclCommShrink : out of memory");
  if (r == ncclSuccess) {
    comm_on(c, comm->device);
    r = config_take(c, config, comm);
    if (r != ncclSuccess) comm_give_up(c);
  }
  if (r != ncclSuccess) {
    free(s);
    comm_leave(comm);
    return group_end(r);
  }
  atomic_store(&c->parent, comm);
  s->work = (struct work){.comm = c, .parent = comm, .run = run_shrink, .done = shrink_done};
  s->out = newcomm;
  s->flags = flags;
  s->count = count;
  memcpy(s->excluded, exclude, (size_t)count * sizeof(int));
  atomic_fetch_add(&c->users, 1);
  return group_end(group_work(&s->work));
}
