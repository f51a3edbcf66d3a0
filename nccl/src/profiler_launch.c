/* What a profiler hears of calls that are performed: an event for each, which ends when the device is done with it. A thread
 * looks at the devices while calls are under way. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda.h"
#include "group.h"
#include "profiler.h"
#include "profiler_abi.h"
#include "types.h"

/* Calls of one launch. */
struct performed {
  struct performed* next;
  const struct profile* profile;
  int rank, device;
  struct cuda_timer* timer; /* NULL: the calls are done, or captured */
  uint64_t started;         /* nanoseconds of the clock */
  size_t n;
  void* events[];
};

static struct performed *first, **last = &first; /* under way */
static int thread_runs;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;

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

/* look ends what the devices are done with; all of a communicator's where that is given. Under the lock. */
static void look(const struct profile* drop) {
  for (struct performed** at = &first; *at;) {
    struct performed* d = *at;
    double seconds = 0;
    int done = cuda_timer_done(d->timer, &seconds);
    if (!done && d->profile != drop) {
      at = &d->next;
      continue;
    }
    *at = d->next;
    if (*at == NULL) last = at;
    uint64_t now = nanoseconds();
    finish(d, now - (uint64_t)(seconds * 1e9), done > 0 ? now : 0);
  }
}

static void* run(void* unused) {
  static const struct timespec pause = {0, 50000};
  (void)unused;
  cuda_relax();
  pthread_mutex_lock(&lock);
  for (;;) {
    while (first == NULL) pthread_cond_wait(&more, &lock);
    look(NULL);
    pthread_mutex_unlock(&lock);
    nanosleep(&pause, NULL);
    pthread_mutex_lock(&lock);
  }
  return NULL;
}

void performed_drop(const struct profile* p, int wait) {
  static const struct timespec pause = {0, 200000};
  for (int turns = wait ? 5000 : 0;; turns--) {
    int there = 0;
    pthread_mutex_lock(&lock);
    look(turns > 0 ? NULL : p);
    for (struct performed* d = first; d; d = d->next) there |= d->profile == p;
    pthread_mutex_unlock(&lock);
    if (!there) return;
    nanosleep(&pause, NULL);
  }
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
  const struct profile* p = atomic_load_explicit(&c->profile, memory_order_acquire);
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
  if (result != ncclSuccess || c->device < 0 || !cuda_timer_stop(d->timer)) {
    finish(d, d->started, result == ncclSuccess && c->device < 0 ? nanoseconds() : 0); /* on the host, calls are done when they return */
    return;
  }
  pthread_t thread;
  pthread_mutex_lock(&lock);
  *last = d;
  last = &d->next;
  if (!thread_runs) thread_runs = start_thread(&thread, 1, run, NULL) == 0; /* else the end of the communicator looks */
  pthread_cond_signal(&more);
  pthread_mutex_unlock(&lock);
}
