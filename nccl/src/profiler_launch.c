/* What a profiler hears of calls that are performed: an event for each, which ends when the device is done with it. A thread
 * looks at the devices while calls are under way. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda.h"
#include "group.h"
#include "log.h"
#include "profiler.h"
#include "profiler_abi.h"
#include "sockets.h"
#include "types.h"

/* Calls of one launch. */
struct performed {
  struct performed* next;
  struct profile* profile;
  int rank, device;
  struct cuda_timer* timer; /* NULL: the calls are done, or captured */
  uint64_t started;         /* nanoseconds of the clock */
  size_t n;
  void* events[];
};

/* What the thread is given. It asks drivers for times without the lock: one that does not return holds up nobody else. */
static struct performed *given, **last = &given;
static struct profile* ending;
static int thread_runs;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER, ended; /* waits for the second have a limit */
static pthread_once_t ended_once = PTHREAD_ONCE_INIT;

enum { WAIT = 1000, WAIT_ABORTED = 200 }; /* for the end of a profile, in milliseconds */

/* A limit is by the monotonic clock: an administrator can set the other one. */
static void make_ended(void) {
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&ended, &monotonic);
  pthread_condattr_destroy(&monotonic);
}

static uint64_t nanoseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* finish ends the events of a launch. With times, each call has had a kernel: one channel of it stands for all its blocks. */
static void finish(struct performed* d, uint64_t from, uint64_t to) {
  const struct profile* p = d->profile;
  for (size_t i = 0; i < d->n; i++) {
    struct event e = {.kind = EVENT_KERNEL_CH, .parent = d->events[i], .rank = d->rank, .kernel_ch = {0, from}};
    void* kernel = to && d->events[i] ? profile_start(p, &e) : NULL;
    if (kernel) {
      union event_state end = {.kernel_ch = {to}};
      (void)p->plugin->state(kernel, STATE_KERNEL_CH_STOP, &end);
      (void)p->plugin->stop(kernel);
    }
    if (d->events[i]) (void)p->plugin->stop(d->events[i]);
  }
  cuda_timer_free(d->timer);
  free(d);
}

/* look ends what the devices are done with, and what no time is left for. */
static void look(struct performed** list) {
  for (struct performed** at = list; *at;) {
    struct performed* d = *at;
    double seconds = 0;
    int64_t until = atomic_load(&d->profile->until);
    int done = until && until <= sockets_now() ? -1 : cuda_timer_done(d->timer, &seconds);
    if (!done) {
      at = &d->next;
      continue;
    }
    *at = d->next;
    uint64_t now = nanoseconds();
    finish(d, now - (uint64_t)(seconds * 1e9), done > 0 ? now : 0);
  }
}

/* close_ended has the plugin end with communicators of which nothing is under way any more. Under the lock, but for the plugin. */
static void close_ended(const struct performed* list) {
  for (struct profile** at = &ending; *at;) {
    struct profile* p = *at;
    int busy = 0;
    for (const struct performed* d = list; d; d = d->next) busy |= d->profile == p;
    if (busy) {
      at = &p->next;
      continue;
    }
    *at = p->next;
    pthread_mutex_unlock(&lock);
    (void)p->plugin->finalize(p->context);
    pthread_mutex_lock(&lock);
    p->closed = 1;
    if (p->left) free(p);
    pthread_cond_broadcast(&ended);
    at = &ending; /* it may have changed meanwhile */
  }
}

static void* run(void* unused) {
  static const struct timespec pause = {0, 50000};
  struct performed* list = NULL;
  (void)unused;
  name_thread("NCCL Profiler");
  (void)cuda_relax();
  pthread_mutex_lock(&lock);
  for (;;) {
    while (list == NULL && given == NULL && ending == NULL) pthread_cond_wait(&more, &lock);
    struct performed** end = &list;
    while (*end) end = &(*end)->next;
    *end = given;
    given = NULL;
    last = &given;
    pthread_mutex_unlock(&lock);
    look(&list);
    if (list) nanosleep(&pause, NULL);
    pthread_mutex_lock(&lock);
    if (given == NULL) close_ended(list); /* what was given meanwhile is of profiles that may end */
  }
  return NULL;
}

/* thread_is_there starts the thread with the first need. Under the lock. */
static int thread_is_there(void) {
  pthread_t thread;
  pthread_once(&ended_once, make_ended);
  if (!thread_runs) thread_runs = start_thread(&thread, 1, run, NULL) == 0;
  return thread_runs;
}

void performed_end(struct profile* p, int aborted) {
  int64_t until = sockets_now() + (aborted ? 0 : WAIT);
  atomic_store(&p->until, until); /* then it ends without times */
  pthread_mutex_lock(&lock);
  if (!thread_is_there()) { /* nor has it anything under way */
    pthread_mutex_unlock(&lock);
    (void)p->plugin->finalize(p->context);
    free(p);
    return;
  }
  p->next = ending;
  ending = p;
  pthread_cond_signal(&more);
  until += WAIT_ABORTED;
  struct timespec t = {.tv_sec = (time_t)(until / 1000), .tv_nsec = (long)(until % 1000) * 1000000};
  while (!p->closed && pthread_cond_timedwait(&ended, &lock, &t) == 0) continue;
  int closed = p->closed;
  p->left = !closed; /* the thread frees it, if the driver ever returns */
  pthread_mutex_unlock(&lock);
  if (closed)
    free(p);
  else
    log_warning("PROFILER/Plugin: the driver has not returned from a question about an event: the plugin's part of a communicator ends when it does");
}

/* ---- launches ---- */

/* describe is what a call is, the nth of its kind. */
static struct event describe(ncclComm_t c, const struct launch* l, const struct door_call* call, uint64_t number) {
  struct event e = {.parent = profiler_version() == 4 ? l->group : call->event, .rank = c->rank};
  const char* type = type_name((ncclDataType_t)call->type);
  if (call->kind < COUNTED) {
    e.kind = EVENT_COLL;
    e.coll.number = number;
    e.coll.func = profile_names[call->kind];
    e.coll.send = call->send;
    e.coll.recv = call->recv;
    e.coll.count = call->count;
    e.coll.root = call->root;
    e.coll.type = type;
    e.coll.channels = 1;
    e.coll.algo = "MSCCLPP";
    e.coll.proto = "NONE";
    if (profiler_version() > 4) e.coll.group = l->group;
  } else {
    e.kind = EVENT_P2P;
    e.p2p.func = profile_names[call->kind];
    e.p2p.buff = call->kind == DOOR_SEND ? (void*)(uintptr_t)call->send : call->recv;
    e.p2p.type = type;
    e.p2p.count = call->count;
    e.p2p.peer = call->root;
    e.p2p.channels = 1;
    if (profiler_version() > 4) e.p2p.group = l->group;
  }
  return e;
}

struct launch profile_launch(ncclComm_t c, void* group, const struct door_call* calls, size_t n) {
  struct profile* p = atomic_load_explicit(&c->profile, memory_order_acquire);
  struct launch l = {0};
  uint64_t before[COUNTED] = {0};
  int modern = profiler_version() > 4;
  if (modern) l.event = profile_start(p, &(struct event){.kind = EVENT_KERNEL_LAUNCH, .parent = group, .rank = c->rank, .kernel_launch = {calls[0].stream}});
  l.group = profile_start(p, &(struct event){.kind = EVENT_GROUP, .parent = group, .rank = c->rank});
  if (!profile_wants(p, EVENT_COLL | EVENT_P2P)) return l;
  l.calls = calloc(1, sizeof *l.calls + n * sizeof(void*));
  if (l.calls == NULL) return l;
  *l.calls = (struct performed){.profile = p, .rank = c->rank, .device = c->device, .n = n, .started = nanoseconds()};
  for (size_t i = 0; i < n; i++) {
    int kind = calls[i].kind;
    uint64_t number = kind < COUNTED ? atomic_load_explicit(&c->counts[kind], memory_order_relaxed) + before[kind]++ : 0;
    struct event e = describe(c, &l, &calls[i], number);
    l.calls->events[i] = profile_start(p, &e);
  }
  l.calls->timer = cuda_timer_start(c->device, calls[0].stream);
  return l;
}

void profile_launched(ncclComm_t c, struct launch* l, ncclResult_t result) {
  struct performed* d = l->calls;
  profile_stop(c, l->event);
  profile_stop(c, l->group);
  if (d == NULL) return;
  int timed = result == ncclSuccess && c->device >= 0 && cuda_timer_stop(d->timer);
  if (timed) {
    pthread_mutex_lock(&lock);
    if ((timed = thread_is_there())) {
      *last = d;
      last = &d->next;
      pthread_cond_signal(&more);
    }
    pthread_mutex_unlock(&lock);
  }
  if (!timed) finish(d, d->started, result == ncclSuccess && c->device < 0 ? nanoseconds() : 0); /* on the host, calls are done when they return */
}
