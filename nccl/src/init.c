/* Making communicators: from ids, of all devices of a process, by splitting. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm.h"
#include "cuda.h"
#include "door.h"
#include "env.h"
#include "export.h"
#include "fallback.h"
#include "fork.h"
#include "group.h"
#include "hash.h"
#include "log.h"
#include "meeting.h"
#include "peers.h"
#include "profiler.h"
#include "ras.h"
#include "version.h"
#include "watch.h"

/* ---- from an id ---- */

struct init {
  struct work work; /* first: they are the same address */
  ncclUniqueId id;
};

/* say_init prints the lines by which people find the ranks of a job. */
static void say_init(ncclComm_t c, const char* state) {
  if (!log_shown(LOG_INFO, SUB_INIT)) return;
  const char* function = atomic_load(&c->doing);
  log_info(SUB_INIT, c->device, "%s comm %p rank %d nranks %d cudaDev %d nvmlDev %d busId %llx commId 0x%llx - Init %s", function ? function : "ncclCommInitRank", (void*)c, c->rank,
           c->nranks, c->device, c->nvml, (unsigned long long)c->bus, (unsigned long long)c->id, state);
}

ncclResult_t comm_unmade(ncclComm_t c, ncclResult_t r, const char* what) {
  const char* why = door_opened()->error();
  if (comm_aborted(c))
    return fail(ncclInvalidUsage, "%sthe communicator%s was aborted meanwhile, by ncclCommAbort or a ncclCommDestroy that has waited long enough: %s", what,
                atomic_load(&c->parent) ? " of which it is made" : "", why);
  return fail(r, "%s%s", strstr(why, "versions differ") ? "Mismatched NCCL version detected : " : what, why);
}

ncclResult_t comm_meet(ncclComm_t c, void* inner, int joined, const char* what) {
  const struct door* d = door_opened();
  atomic_store(&c->inner, inner); /* from here on, an abort ends the waits */
  if (comm_aborted(c)) d->abort(inner, "ncclCommAbort");
  ncclResult_t r = joined ? ncclSuccess : d->join(inner);
  if (r == ncclSuccess && !atomic_load(&c->known)) r = d->place(inner, &c->rank, &c->nranks);
  int met = r == ncclSuccess; /* what fails after that has its text */
  if (r == ncclSuccess) r = peers_exchange(c);
  if (r == ncclSuccess) r = fallback_join(c);
  if (r == ncclSuccess && !comm_aborted(c)) {
    profile_open(c);
    return r;
  }
  if (!met || comm_aborted(c)) r = comm_unmade(c, r, what);
  fallback_abort(c);
  (void)d->close(atomic_exchange(&c->inner, NULL));
  return r;
}

static ncclResult_t run_init(struct work* w) {
  struct init* i = (struct init*)w;
  ncclComm_t c = w->comm;
  const struct door* d = door_open();
  if (d == NULL) return ncclSystemError;
  say_init(c, "START");
  ras_start();
  struct door_comm options = {&i->id, c->rank, c->nranks, c->device, c->config.maxCTAs > 0 ? c->config.maxCTAs : 0, c->net};
  void* inner = NULL;
  ncclResult_t r = d->create(&options, &inner);
  if (r != ncclSuccess) return fail(r, "%s", d->error());
  if ((r = comm_meet(c, inner, 0, "")) != ncclSuccess) return r;
  if (c->nranks == 1) meeting_forget(&i->id);
  say_init(c, "COMPLETE");
  return ncclSuccess;
}

static void init_done(struct work* w, ncclResult_t r) {
  ncclComm_t c = w->comm;
  atomic_store_explicit(&c->state, r, memory_order_release);
  free(w);
  comm_leave(c);
}

static ncclResult_t init_rank(ncclComm_t* out, int nranks, const ncclUniqueId* id, int rank, int device,
                              const ncclConfig_t* config, const char* function) {
  const char* why;
  if (out == NULL) return fail(ncclInvalidArgument, "%s : comm argument is NULL", function);
  *out = NULL;
  if (nranks < 1 || rank < 0 || rank >= nranks)
    return fail(ncclInvalidArgument, "Invalid rank requested : %d/%d", rank, nranks);
  if (!meeting_check(id, &why)) return fail(ncclInvalidArgument, "%s : commId: %s", function, why);
  struct init* i = calloc(1, sizeof *i);
  ncclComm_t c = i ? comm_new() : NULL;
  if (c == NULL) {
    free(i);
    return fail(ncclSystemError, "%s : out of memory", function);
  }
  c->rank = rank;
  c->nranks = nranks;
  comm_on(c, device);
  c->id = hash_bytes(id->internal, sizeof id->internal);
  atomic_store_explicit(&c->known, 1, memory_order_release);
  atomic_store(&c->doing, function);
  ncclResult_t r = config_take(c, config, NULL);
  if (r != ncclSuccess) {
    free(i);
    comm_give_up(c);
    return r;
  }
  version_print(rank, device);
  i->work = (struct work){.comm = c, .run = run_init, .done = init_done};
  i->id = *id;
  atomic_fetch_add(&c->users, 1); /* of the work */
  *out = c;
  return group_work(&i->work);
}

/* begin_init runs before every function that makes communicators. */
static ncclResult_t begin_init(const char* function) {
  if (after_fork()) return fork_refusal(function);
  return ncclSuccess;
}

/* end_init gives back *out as NULL when a blocking call has failed. */
static ncclResult_t end_init(ncclComm_t* out, ncclResult_t r) {
  int outermost = group_depth() == 1;
  r = group_end(r);
  if (outermost && out && *out && r != ncclSuccess && r != ncclInProgress) {
    ncclComm_t c = *out;
    *out = NULL;
    if (!comm_take(c)) return r; /* another thread has aborted it */
    void* inner = atomic_exchange(&c->inner, NULL);
    if (inner) (void)door_opened()->close(inner);
    comm_give_up(c);
  }
  return r;
}

EXPORT(ncclResult_t, CommInitRankConfig, ncclComm_t* comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  RANGE("ncclCommInitRankConfig");
  ncclResult_t r = begin_init("ncclCommInitRankConfig");
  if (r != ncclSuccess) return r;
  group_begin();
  return end_init(comm, init_rank(comm, nranks, &id, rank, cuda_current(), config, "ncclCommInitRankConfig"));
}

EXPORT(ncclResult_t, CommInitRank, ncclComm_t* comm, int nranks, ncclUniqueId id, int rank) {
  RANGE("ncclCommInitRank");
  ncclResult_t r = begin_init("ncclCommInitRank");
  if (r != ncclSuccess) return r;
  group_begin();
  return end_init(comm, init_rank(comm, nranks, &id, rank, cuda_current(), NULL, "ncclCommInitRank"));
}

EXPORT(ncclResult_t, CommInitRankScalable, ncclComm_t* comm, int nranks, int rank, int nids, ncclUniqueId* ids,
       ncclConfig_t* config) {
  RANGE("ncclCommInitRankScalable");
  ncclResult_t r = begin_init("ncclCommInitRankScalable");
  if (r != ncclSuccess) return r;
  const char* at = setting("NCCL_COMM_ID");
  group_begin();
  if (comm) *comm = NULL;
  if (ids == NULL)
    r = fail(ncclInvalidArgument, "ncclCommInitRankScalable : commId argument is NULL");
  else if (nids < 1 || nids > nranks)
    r = fail(ncclInvalidArgument, "ncclCommInitRankScalable : %d ids for %d ranks: expected 1 to %d", nids, nranks, nranks);
  else if (nids > 1 && at && *at)
    r = fail(ncclInvalidArgument, "ncclCommInitRankScalable : NCCL_COMM_ID cannot be used with more than one ncclUniqueId: %d were given", nids);
  else
    r = init_rank(comm, nranks, &ids[0], rank, cuda_current(), config, "ncclCommInitRankScalable"); /* the first names it */
  return end_init(comm, r);
}

EXPORT(ncclResult_t, CommInitAll, ncclComm_t* comms, int ndev, const int* devices) {
  RANGE("ncclCommInitAll");
  ncclResult_t r = begin_init("ncclCommInitAll");
  if (r != ncclSuccess) return r;
  int there = cuda_count();
  if (comms == NULL) return fail(ncclInvalidArgument, "ncclCommInitAll : comms argument is NULL");
  if (ndev < 0) return fail(ncclInvalidArgument, "ncclCommInitAll : invalid device count requested : %d", ndev);
  for (int i = 0; i < ndev; i++) {
    int d = devices ? devices[i] : i;
    if (there && (d < 0 || d >= there)) return fail(ncclInvalidArgument, "ncclCommInitAll : invalid device %d: there are %d", d, there);
    for (int j = 0; devices && j < i; j++)
      if (devices[j] == d) return fail(ncclInvalidUsage, "ncclCommInitAll : duplicate device %d in devlist", d);
  }
  ncclUniqueId id;
  for (int i = 0; i < ndev; i++) comms[i] = NULL;
  r = meeting_create(&id);
  if (r != ncclSuccess || ndev == 0) return r;
  group_begin();
  for (int i = 0; i < ndev && r == ncclSuccess; i++)
    r = init_rank(&comms[i], ndev, &id, i, there ? (devices ? devices[i] : i) : -1, NULL, "ncclCommInitAll");
  r = end_init(NULL, r);
  for (int i = 0; i < ndev && r != ncclSuccess && r != ncclInProgress && group_depth() == 0; i++)
    if (comms[i]) {
      pncclCommAbort(comms[i]);
      comms[i] = NULL;
    }
  return r;
}

EXPORT(ncclResult_t, GetUniqueId, ncclUniqueId* id) {
  if (id == NULL) return fail(ncclInvalidArgument, "ncclGetUniqueId : out argument is NULL");
  if (after_fork()) return fork_refusal("ncclGetUniqueId");
  const char* at = setting("NCCL_COMM_ID");
  return at && *at ? meeting_at(at, id) : meeting_create(id);
}

/* ---- by splitting ---- */

struct split {
  struct work work;
  ncclComm_t* out;
  int color, key;
};

static ncclResult_t run_split(struct work* w) {
  struct split* s = (struct split*)w;
  const struct door* d = door_opened();
  void *inner = NULL, *of = atomic_load(&w->parent->inner);
  int rank = 0, size = 0;
  uint64_t nth = atomic_fetch_add(&w->parent->splits, 1); /* all ranks split as often */
  ncclResult_t r = d->split(of, s->color, s->key, &inner, &rank, &size);
  if (r != ncclSuccess) return comm_unmade(w->comm, r, "ncclCommSplit : ");
  w->comm->rank = rank;
  w->comm->nranks = size;
  w->comm->id = hash_bytes(&(uint64_t[]){w->parent->id, (uint64_t)s->color, (uint64_t)size, nth}, 32);
  if (inner) r = comm_meet(w->comm, inner, 1, "ncclCommSplit : ");
  if (inner && r == ncclSuccess) {
    log_info(SUB_INIT, w->comm->device, "ncclCommSplit comm %p rank %d nranks %d cudaDev %d nvmlDev %d busId %llx parent %p splitCount %llu color %d key %d - Init COMPLETE", (void*)w->comm, rank,
             size, w->comm->device, w->comm->nvml, (unsigned long long)w->comm->bus, (void*)w->parent, (unsigned long long)nth + 1, s->color, s->key);
  }
  return r;
}

static void split_done(struct work* w, ncclResult_t r) {
  struct split* s = (struct split*)w;
  ncclComm_t c = w->comm, parent = w->parent; /* which was entered */
  int none = r != ncclSuccess || atomic_load(&c->inner) == NULL; /* NCCL_SPLIT_NOCOLOR: this rank is in none */
  atomic_store(&c->parent, NULL);
  atomic_store_explicit(&c->state, r, memory_order_release);
  __atomic_store_n(s->out, none ? NULL : c, __ATOMIC_RELEASE);
  free(s);
  comm_leave(c);
  if (none) comm_give_up(c);
  comm_leave(parent);
}

EXPORT(ncclResult_t, CommSplit, ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config) {
  RANGE("ncclCommSplit");
  if (after_fork()) return fork_refusal("ncclCommSplit");
  group_begin();
  ncclResult_t r = newcomm ? comm_enter(comm, "ncclCommSplit", NEED_READY)
                           : fail(ncclInvalidArgument, "ncclCommSplit : newcomm argument is NULL");
  if (newcomm) *newcomm = NULL;
  if (r != ncclSuccess) return group_end(r);
  struct split* s = calloc(1, sizeof *s);
  ncclComm_t c = s && color >= NCCL_SPLIT_NOCOLOR ? comm_new() : NULL;
  if (color < NCCL_SPLIT_NOCOLOR)
    r = fail(ncclInvalidArgument, "ncclCommSplit : color %d: expected 0 or more, or NCCL_SPLIT_NOCOLOR", color);
  else if (c == NULL)
    r = fail(ncclSystemError, "ncclCommSplit : out of memory");
  if (r == ncclSuccess) {
    comm_on(c, comm->device);
    r = config_take(c, config, comm);
    if (r == ncclSuccess && c->config.splitShare == 1) c->family = comm->family;
    if (r != ncclSuccess) comm_give_up(c);
  }
  if (r != ncclSuccess) {
    free(s);
    comm_leave(comm);
    return group_end(r);
  }
  s->work = (struct work){.comm = c, .run = run_split, .done = split_done};
  s->work.parent = comm;
  atomic_store(&c->parent, comm);
  s->out = newcomm;
  s->color = color;
  s->key = key;
  atomic_fetch_add(&c->users, 1);
  return group_end(group_work(&s->work));
}
