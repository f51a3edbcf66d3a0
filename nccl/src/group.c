#define _GNU_SOURCE
#include "group.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "chain.h"
#include "env.h"
#include "export.h"
#include "fallback.h"
#include "log.h"
#include "profiler.h"
#include "workers.h"
#include "streams.h"
#include "watch.h"

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
  struct profiled {
    ncclComm_t comm;
    void* event;
  }* profiled;               /* what profilers of communicators have begun */
  size_t nprofiled;
};

static _Thread_local struct group group;

int group_depth(void) { return group.depth; }

int group_has(ncclComm_t comm) {
  for (struct work* w = group.works; w; w = w->next)
    if (w->comm == comm || w->parent == comm) return 1;
  for (size_t i = 0; i < group.ncalls; i++)
    if (group.calls[i].comm == comm) return 1;
  return 0;
}

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

static void* profile_of(const struct group* g, ncclComm_t comm) {
  for (size_t i = 0; i < g->nprofiled; i++)
    if (g->profiled[i].comm == comm) return g->profiled[i].event;
  return NULL;
}

void* group_profile(ncclComm_t comm, cudaStream_t stream) {
  for (size_t i = 0; i < group.nprofiled; i++)
    if (group.profiled[i].comm == comm) return group.profiled[i].event;
  struct profiled* bigger = realloc(group.profiled, (group.nprofiled + 1) * sizeof *bigger);
  if (bigger == NULL) return NULL;
  atomic_fetch_add(&comm->users, 1); /* until the group ends */
  group.profiled = bigger;
  group.profiled[group.nprofiled++] = (struct profiled){comm, profile_group(comm, group.depth, stream)};
  return group.profiled[group.nprofiled - 1].event;
}

static void end_profiles(struct group* g) {
  for (size_t i = 0; i < g->nprofiled; i++) {
    profile_stop(g->profiled[i].comm, g->profiled[i].event);
    comm_leave(g->profiled[i].comm);
  }
  free(g->profiled);
}

ncclResult_t group_work(struct work* w) {
  w->next = NULL;
  *group.last = w;
  group.last = &w->next;
  note_kind(w->comm);
  return ncclSuccess;
}

/* ---- performing ---- */

/* The first thread of this library is started by one of the program: the environment is read there, as the program may change it beside
 * threads that it does not know of. */
static int names;
static void read_names(void) { names = setting_is("NCCL_SET_THREAD_NAME", "1"); }

int start_thread(pthread_t* thread, int detached, void* (*f)(void*), void* with) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  sigset_t all, before;
  pthread_attr_t attr;
  pthread_once(&once, read_names);
  sigfillset(&all);
  pthread_attr_init(&attr);
  if (detached) pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int err = pthread_create(thread, &attr, f, with);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attr);
  return err;
}

void name_thread(const char* name) {
  if (names) prctl(PR_SET_NAME, name);
}

/* A run of calls of one communicator, in their order. */
struct batch {
  ncclComm_t comm;
  struct door_call* calls;
  size_t n;
  cudaStream_t* streams; /* room for those beside the first call's; NULL: all calls are on one */
  void* profile;         /* what a profiler has begun */
  struct batch* next;    /* of its lane */
};

/* Batches, or works, that are done one after the other by one thread. */
struct lane {
  struct batch *batches, **last_batch;
  struct work *works, **last_work;
  ncclResult_t result;
  struct worker* worker;
};

static void perform_batch(struct batch* b, struct lane* l) {
  const struct door* d = door_opened();
  void* inner = atomic_load(&b->comm->inner);
  ncclResult_t r = ncclInternalError;
  if (atomic_load(&b->comm->aborted)) {
    r = fail(ncclInvalidUsage, "a group: communicator %p was aborted", (void*)b->comm);
  } else if (d == NULL || inner == NULL) {
    fail(r, "communicator %p is ready but has no other half", (void*)b->comm);
  } else {
    size_t others = 0;
    uint64_t behind = 0;
    atomic_store(&b->comm->launched, 1);
    r = b->streams ? streams_join(b->comm->device, b->calls, b->n, b->streams, &others) : ncclSuccess;
    if (r == ncclSuccess && b->comm->chained) r = chain_begin(b->comm, b->calls[0].stream, &behind);
    struct launch l = {0};
    int profiled = atomic_load_explicit(&b->comm->profile, memory_order_relaxed) != NULL;
    if (profiled) l = profile_launch(b->comm, b->profile, b->calls, b->n);
    for (size_t i = 0; i < b->n; i++) count_call(b->comm, b->calls[i].kind);
    if (r == ncclSuccess && atomic_load(&b->comm->shadow))
      r = fallback_group(b->comm, inner, b->calls, b->n);
    else if (r == ncclSuccess && (r = b->n == 1 ? d->call(inner, b->calls) : d->group(inner, b->calls, b->n)) != ncclSuccess)
      fail(r, "%s", d->error());
    if (profiled) profile_launched(b->comm, &l, r);
    if (r == ncclSuccess) r = streams_part(b->comm->device, b->calls, b->streams, others);
    if (r == ncclSuccess && b->comm->chained) r = chain_end(b->comm, b->calls[0].stream, behind);
  }
  if (l->result == ncclSuccess) l->result = r;
}

static void* perform_lane(void* with) {
  struct lane* l = with;
  for (struct batch* b = l->batches; b && l->result == ncclSuccess; b = b->next) perform_batch(b, l);
  return NULL;
}

/* join_lanes has all lanes performed, the first one by this thread. */
static ncclResult_t join_lanes(struct lane* lanes, size_t n, void* (*f)(void*)) {
  for (size_t i = 1; i < n; i++) lanes[i].worker = worker_start(f, &lanes[i]);
  ncclResult_t result = ncclSuccess;
  for (size_t i = 0; i < n; i++) {
    if (lanes[i].worker)
      worker_wait(lanes[i].worker);
    else
      f(&lanes[i]); /* no thread was to be had: one after the other may still do */
    if (result == ncclSuccess) result = lanes[i].result;
  }
  return result;
}

/* shares reports whether a batch belongs behind those of a lane: kernels of one device start in the
 * order of the ids, which is the same on all ranks. Two ranks of one communicator wait for each other,
 * and so do calls on host memory: they need threads of their own. */
static int shares(const struct lane* l, const struct batch* b) {
  if (b->comm->device < 0) return 0;
  for (const struct batch* o = l->batches; o; o = o->next)
    if (o->comm->device != b->comm->device || o->comm->id == b->comm->id) return 0;
  return 1;
}

/* look_at_streams refuses captured streams beside others, and notes where a communicator's calls are on several. */
static ncclResult_t look_at_streams(struct batch* batches, size_t n, cudaStream_t* room) {
  int captured = -1;
  ncclResult_t r = ncclSuccess;
  size_t different = 0;
  for (size_t b = 0; b < n; b++) {
    different += batches[b].calls[0].stream != batches[0].calls[0].stream;
    for (size_t i = 1; i < batches[b].n && batches[b].streams == NULL; i++)
      if (batches[b].calls[i].stream != batches[b].calls[0].stream) batches[b].streams = room + (batches[b].calls - batches[0].calls);
    if (batches[b].comm->device < 0) batches[b].streams = NULL;
    different += batches[b].streams != NULL;
  }
  for (size_t b = 0; different && b < n && r == ncclSuccess; b++)
    if (batches[b].comm->device >= 0) r = streams_check(batches[b].comm->device, batches[b].calls, batches[b].n, &captured);
  return r;
}

/* perform_calls makes one batch of each communicator, and lanes of these. */
static ncclResult_t perform_calls(struct group* g) {
  size_t n = g->ncalls, nbatches = 0, nlanes = 0;
  struct door_call* calls = malloc(n * sizeof *calls);
  struct batch* batches = calloc(n, sizeof *batches);
  struct lane* lanes = calloc(n, sizeof *lanes);
  cudaStream_t* streams = malloc(n * sizeof *streams);
  ncclResult_t result = ncclSuccess;
  if (calls == NULL || batches == NULL || lanes == NULL || streams == NULL) {
    result = fail(ncclSystemError, "out of memory for a group of %zu calls", n);
    goto end;
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
  for (size_t i = 0; i < g->nprofiled; i++) profile_group_ends(g->profiled[i].comm, g->profiled[i].event);
  struct door_call* at = calls;
  for (size_t b = 0; b < nbatches; b++) {
    batches[b].profile = profile_of(g, batches[b].comm);
    batches[b].calls = at;
    for (size_t i = 0; i < n; i++)
      if (g->calls[i].comm == batches[b].comm) *at++ = g->calls[i].call;
  }
  if ((result = look_at_streams(batches, nbatches, streams)) != ncclSuccess) goto end;
  for (size_t b = 0; b < nbatches; b++) {
    size_t l = 0;
    while (l < nlanes && !shares(&lanes[l], &batches[b])) l++;
    if (l == nlanes) lanes[nlanes++].last_batch = &lanes[l].batches;
    *lanes[l].last_batch = &batches[b];
    lanes[l].last_batch = &batches[b].next;
  }
  result = join_lanes(lanes, nlanes, perform_lane);
end:
  free(calls);
  free(batches);
  free(lanes);
  free(streams);
  return result;
}

/* keep_error keeps an error's text with its communicator, for threads that wait for its work: by then the last error of the process may be another one. */
static void keep_error(ncclComm_t c) { snprintf(c->ended_with, sizeof c->ended_with, "%s", thread_error()); }

/* run_works does the works of a lane, and publishes each when it is done. */
static void* run_works(void* with) {
  struct lane* l = with;
  ncclComm_t parent = l->works->parent;
  if (parent) atomic_fetch_add(&parent->users, 1);
  for (struct work *w = l->works, *next; w; w = next) {
    next = w->next;
    ncclResult_t r = w->run(w);
    if (r != ncclSuccess) {
      keep_error(w->comm);
      if (parent && l->result == ncclSuccess) keep_error(parent);
    }
    if (l->result == ncclSuccess) l->result = r;
    w->done(w, r);
  }
  if (parent) {
    int expected = ncclInProgress;
    atomic_compare_exchange_strong(&parent->state, &expected, l->result);
    comm_leave(parent);
  }
  return NULL;
}

static void* run_detached(void* with) {
  struct lane* l = with;
  name_thread("NCCL Init");
  run_works(l);
  free(l);
  return NULL;
}

static void drop_works(struct work* w, ncclResult_t result) {
  for (struct work* next; w; w = next) {
    next = w->next;
    w->done(w, result);
  }
}

/* perform_works does works side by side, those of one parent in their order. It waits for them unless
 * their communicators are not blocking. */
static ncclResult_t perform_works(struct group* g) {
  size_t n = 0, nlanes = 0;
  for (struct work* w = g->works; w; w = w->next) n++;
  struct lane* lanes = calloc(n, sizeof *lanes);
  if (lanes == NULL) {
    drop_works(g->works, ncclSystemError);
    return fail(ncclSystemError, "out of memory for a group");
  }
  for (struct work *w = g->works, *next; w; w = next) {
    next = w->next;
    w->next = NULL;
    size_t l = 0;
    while (l < nlanes && (w->parent == NULL || lanes[l].works->parent != w->parent)) l++;
    if (l == nlanes) lanes[nlanes++].last_work = &lanes[l].works;
    *lanes[l].last_work = w;
    lanes[l].last_work = &w->next;
  }
  ncclResult_t result = ncclInProgress;
  if (!g->nonblocking) {
    result = join_lanes(lanes, nlanes, run_works);
  } else {
    for (size_t l = 0; l < nlanes; l++) {
      struct work* w = lanes[l].works;
      struct lane* own = malloc(sizeof *own);
      pthread_t thread;
      int expected = ncclSuccess;
      if (w->parent) {
        atomic_store(&w->parent->doing, w->what ? w->what : "ncclCommSplit");
        atomic_compare_exchange_strong(&w->parent->state, &expected, ncclInProgress);
      }
      if (own) *own = (struct lane){.works = w};
      if (own == NULL || start_thread(&thread, 1, run_detached, own) != 0) {
        free(own);
        expected = ncclInProgress;
        if (w->parent) atomic_compare_exchange_strong(&w->parent->state, &expected, ncclSuccess);
        drop_works(w, fail(ncclSystemError, "cannot start a thread"));
      }
    }
  }
  free(lanes);
  return result;
}

static ncclResult_t perform_group(struct group* g) {
  if (g->error == ncclSuccess && g->blocking && g->nonblocking)
    g->error = fail(ncclInvalidArgument, "Blocking and nonblocking communicators are not allowed in the same group.");
  if (g->error == ncclSuccess && g->works && g->ncalls)
    g->error = fail(ncclInvalidUsage, "a group has communicators or windows that are made, and calls: expected a group for each");
  if (g->error != ncclSuccess) {
    drop_works(g->works, g->error);
    return g->error;
  }
  if (g->works) return perform_works(g);
  return g->ncalls ? perform_calls(g) : ncclSuccess;
}

/* finish performs the group, or drops it, and clears the thread's state first: what it calls may
 * begin a group of its own. */
static ncclResult_t finish(int launch) {
  struct group g = group;
  memset(&group, 0, sizeof group);
  if (!launch) drop_works(g.works, g.error == ncclSuccess ? ncclInvalidUsage : g.error);
  ncclResult_t result = launch ? perform_group(&g) : g.error;
  end_profiles(&g);
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
  RANGE("ncclGroupStart");
  group_begin();
  return ncclSuccess;
}

EXPORT(ncclResult_t, GroupEnd, void) {
  RANGE("ncclGroupEnd");
  if (group.depth == 0) return fail(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
  return group_end(ncclSuccess);
}

EXPORT(ncclResult_t, GroupSimulateEnd, ncclSimInfo_t* info) {
  RANGE("ncclGroupSimulateEnd");
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
