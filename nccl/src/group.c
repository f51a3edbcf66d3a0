#define _GNU_SOURCE
#include "group.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "export.h"
#include "log.h"

struct entry {
  ncclComm_t comm;
  struct door_call call;
};

/* The group of a thread. */
struct group {
  int depth;
  ncclResult_t error; /* of the first call that failed: nothing is launched then */
  struct entry* calls;
  size_t ncalls, room;
  struct work *works, **last;
  int blocking, nonblocking; /* communicators of either kind */
};

static _Thread_local struct group group;

int group_depth(void) { return group.depth; }

void group_begin(void) {
  if (group.depth++ == 0) group.last = &group.works;
}

static void note_kind(ncclComm_t c) {
  if (c->blocking)
    group.blocking = 1;
  else
    group.nonblocking = 1;
}

ncclResult_t group_call(ncclComm_t comm, const struct door_call* call) {
  if (group.ncalls == group.room) {
    size_t more = group.room ? 2 * group.room : 32;
    struct entry* bigger = realloc(group.calls, more * sizeof *bigger);
    if (bigger == NULL) return fail(ncclSystemError, "out of memory for a group of %zu calls", more);
    group.calls = bigger;
    group.room = more;
  }
  note_kind(comm);
  group.calls[group.ncalls++] = (struct entry){comm, *call};
  return ncclSuccess;
}

ncclResult_t group_work(struct work* w) {
  w->next = NULL;
  *group.last = w;
  group.last = &w->next;
  note_kind(w->comm);
  return ncclSuccess;
}

/* ---- performing ---- */

/* A run of calls of one communicator, in their order. */
struct batch {
  ncclComm_t comm;
  struct door_call* calls;
  size_t n;
  ncclResult_t result;
  pthread_t thread;
  int threaded;
};

static void* perform(void* with) {
  struct batch* b = with;
  const struct door* d = door_opened();
  void* inner = atomic_load(&b->comm->inner);
  if (d == NULL || inner == NULL)
    b->result = ncclInternalError;
  else
    b->result = b->n == 1 ? d->call(inner, b->calls) : d->group(inner, b->calls, b->n);
  if (b->result != ncclSuccess && d) fail(b->result, "%s", d->error());
  return NULL;
}

/* start_thread runs f with all signals blocked: they belong to the program. */
static int start_thread(pthread_t* thread, int detached, void* (*f)(void*), void* with) {
  sigset_t all, before;
  pthread_attr_t attr;
  sigfillset(&all);
  pthread_attr_init(&attr);
  if (detached) pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int err = pthread_create(thread, &attr, f, with);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attr);
  return err;
}

/* perform_calls makes one batch of each communicator. Several of one thread are performed side by
 * side, because a first call may wait for the others. They start in the order of their ids, which
 * is the same on all ranks. */
static ncclResult_t perform_calls(struct group* g) {
  size_t n = g->ncalls, nbatches = 0;
  struct door_call* calls = malloc(n * sizeof *calls);
  struct batch* batches = calloc(n, sizeof *batches);
  if (calls == NULL || batches == NULL) {
    free(calls);
    free(batches);
    return fail(ncclSystemError, "out of memory for a group of %zu calls", n);
  }
  for (size_t i = 0; i < n; i++) {
    size_t b = 0;
    while (b < nbatches && batches[b].comm != g->calls[i].comm) b++;
    if (b == nbatches) batches[nbatches++].comm = g->calls[i].comm;
    batches[b].n++;
  }
  for (size_t i = 1; i < nbatches; i++) /* few: by insertion */
    for (size_t j = i; j > 0 && batches[j].comm->id < batches[j - 1].comm->id; j--) {
      struct batch t = batches[j];
      batches[j] = batches[j - 1];
      batches[j - 1] = t;
    }
  struct door_call* at = calls;
  for (size_t b = 0; b < nbatches; b++) {
    batches[b].calls = at;
    for (size_t i = 0; i < n; i++)
      if (g->calls[i].comm == batches[b].comm) *at++ = g->calls[i].call;
  }
  for (size_t b = 1; b < nbatches; b++)
    batches[b].threaded = start_thread(&batches[b].thread, 0, perform, &batches[b]) == 0;
  perform(&batches[0]);
  ncclResult_t result = batches[0].result;
  for (size_t b = 1; b < nbatches; b++) {
    if (batches[b].threaded)
      pthread_join(batches[b].thread, NULL);
    else
      perform(&batches[b]); /* no thread was to be had: one after the other may still do */
    if (result == ncclSuccess) result = batches[b].result;
  }
  free(calls);
  free(batches);
  return result;
}

static void* run_work(void* with) {
  struct work* w = with;
  ncclResult_t r = w->run(w);
  w->done(w, r);
  return NULL;
}

struct waited {
  struct work* w;
  ncclResult_t result;
  pthread_t thread;
  int threaded;
};

static void* run_waited(void* with) {
  struct waited* x = with;
  x->result = x->w->run(x->w);
  return NULL;
}

/* perform_works runs all side by side. Who has blocking communicators waits for them. */
static ncclResult_t perform_works(struct group* g) {
  ncclResult_t result = ncclSuccess;
  struct work* next;
  if (g->nonblocking) {
    for (struct work* w = g->works; w; w = next) {
      next = w->next;
      pthread_t thread;
      if (start_thread(&thread, 1, run_work, w) != 0) w->done(w, fail(ncclSystemError, "cannot start a thread"));
    }
    return ncclInProgress;
  }
  size_t n = 0;
  for (struct work* w = g->works; w; w = w->next) n++;
  struct waited* all = calloc(n, sizeof *all);
  if (all == NULL) return fail(ncclSystemError, "out of memory for a group");
  size_t i = 0;
  for (struct work* w = g->works; w; w = w->next) all[i++].w = w;
  for (i = 1; i < n; i++) all[i].threaded = start_thread(&all[i].thread, 0, run_waited, &all[i]) == 0;
  for (i = 0; i < n; i++) {
    if (all[i].threaded)
      pthread_join(all[i].thread, NULL);
    else
      run_waited(&all[i]);
    if (result == ncclSuccess) result = all[i].result;
  }
  for (i = 0; i < n; i++) all[i].w->done(all[i].w, all[i].result);
  free(all);
  return result;
}

static ncclResult_t perform_group(struct group* g) {
  if (g->error != ncclSuccess) return g->error;
  if (g->blocking && g->nonblocking)
    return fail(ncclInvalidArgument, "Blocking and nonblocking communicators are not allowed in the same group.");
  if (g->works && g->ncalls)
    return fail(ncclInvalidUsage, "a group has communicators that are made, and calls: expected a group for each");
  if (g->works) return perform_works(g);
  return g->ncalls ? perform_calls(g) : ncclSuccess;
}

/* finish performs the group, or drops it, and clears the thread's state first: what it calls may
 * begin a group of its own. */
static ncclResult_t finish(int launch) {
  struct group g = group;
  memset(&group, 0, sizeof group);
  ncclResult_t result = launch ? perform_group(&g) : g.error;
  if (g.works && (g.error != ncclSuccess || !launch || (g.blocking && g.nonblocking) || (g.works && g.ncalls)))
    for (struct work *w = g.works, *next; w; w = next) {
      next = w->next;
      w->done(w, result == ncclSuccess ? ncclInvalidUsage : result);
    }
  for (size_t i = 0; i < g.ncalls; i++) comm_leave(g.calls[i].comm);
  free(g.calls);
  return result;
}

ncclResult_t group_end(ncclResult_t result) {
  if (result != ncclSuccess && result != ncclInProgress && group.error == ncclSuccess) group.error = result;
  if (--group.depth > 0) return result;
  return finish(1);
}

EXPORT(ncclResult_t, GroupStart, void) {
  group_begin();
  return ncclSuccess;
}

EXPORT(ncclResult_t, GroupEnd, void) {
  if (group.depth == 0) return fail(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
  return group_end(ncclSuccess);
}

EXPORT(ncclResult_t, GroupSimulateEnd, ncclSimInfo_t* info) {
  if (group.depth == 0) return fail(ncclInvalidUsage, "ncclGroupSimulateEnd: not in a group call.");
  ncclResult_t wrong = ncclSuccess;
  if (info && (info->size < 20 || info->magic != 0x74685283))
    wrong = fail(ncclInvalidArgument, "ncclSimInfo_t argument not initialized via NCCL_SIM_INFO_INITIALIZER");
  if (wrong != ncclSuccess && group.error == ncclSuccess) group.error = wrong;
  if (--group.depth > 0) return wrong;
  ncclResult_t r = finish(0);
  if (r == ncclSuccess && info) info->estimatedTime = NCCL_UNDEF_FLOAT; /* no model is asked: unknown */
  return r;
}
