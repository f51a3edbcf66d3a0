/* Handles of communicators: a region of memory that stays mapped. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "comm.h"
#include "cuda.h"
#include "door.h"
#include "fallback.h"
#include "fork.h"
#include "log.h"
#include "peers.h"
#include "profiler.h"
#include "windows.h"

enum { MOST = 1 << 16 };

static struct ncclComm* region; /* of MOST, most of it never touched */
static int touched;
static struct ncclComm *first_free, **last_free = &first_free; /* the one free longest is taken first */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

ncclComm_t comm_new(void) {
  ncclComm_t c = NULL;
  pthread_mutex_lock(&lock);
  if (region == NULL) {
    void* p = mmap(NULL, MOST * sizeof *region, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p != MAP_FAILED) __atomic_store_n(&region, p, __ATOMIC_RELEASE);
  }
  if (region && touched < 256) { /* at first always another one, so that an old handle stays dead */
    c = &region[touched++];
  } else if (first_free) {
    c = first_free;
    first_free = c->next;
    if (first_free == NULL) last_free = &first_free;
  } else if (region && touched < MOST) {
    c = &region[touched++];
  }
  pthread_mutex_unlock(&lock);
  if (c == NULL) return NULL;
  static atomic_uint_fast64_t families;
  struct redop* redops = c->redops;
  memset(&c->state, 0, sizeof *c - offsetof(struct ncclComm, state));
  c->redops = redops;
  if (redops) memset(redops, 0, REDOPS * sizeof *redops);
  c->family = atomic_fetch_add(&families, 1);
  atomic_store(&c->state, ncclInProgress);
  atomic_fetch_add(&c->users, 1); /* of whoever makes it; comm_give_up takes it away */
  atomic_store_explicit(&c->alive, ALIVE, memory_order_release);
  return c;
}

void comm_on(ncclComm_t c, int device) {
  c->device = device;
  c->nvml = cuda_nvml(device);
  c->bus = cuda_bus(device);
}

static void release(ncclComm_t c) {
  profile_close(c);
  registrations_free(c);
  windows_free(c);
  free(atomic_exchange(&c->peers, NULL));
  pthread_mutex_lock(&lock);
  c->next = NULL;
  *last_free = c;
  last_free = &c->next;
  pthread_mutex_unlock(&lock);
}

static int is_handle(ncclComm_t c) {
  struct ncclComm* r = __atomic_load_n(&region, __ATOMIC_ACQUIRE);
  uintptr_t at = (uintptr_t)c, from = (uintptr_t)r;
  return r && at >= from && at < from + MOST * sizeof *r && (at - from) % sizeof *r == 0;
}

ncclResult_t comm_enter(ncclComm_t c, const char* function, enum comm_need need) {
  if (after_fork()) return fork_refusal(function);
  if (c == NULL) return fail(ncclInvalidArgument, "%s : comm argument is NULL", function);
  if (!is_handle(c)) return fail(ncclInvalidArgument, "%s : corrupted comm object detected: %p is no communicator of this library", function, (void*)c);
  atomic_fetch_add(&c->users, 1);
  if (atomic_load(&c->alive) != ALIVE) {
    comm_leave(c);
    return fail(ncclInvalidArgument, "%s : corrupted comm object detected: communicator %p was destroyed", function, (void*)c);
  }
  if (need == NEED_ALIVE) return ncclSuccess;
  int state = atomic_load_explicit(&c->state, memory_order_acquire);
  if (state == ncclSuccess && !atomic_load_explicit(&c->finalized, memory_order_relaxed)) return ncclSuccess;
  comm_leave(c);
  if (state == ncclInProgress)
    return fail(ncclInvalidArgument, "%s : Attempt to use communicator before the previous operation returned ncclSuccess", function);
  if (state != ncclSuccess && atomic_load(&c->aborted))
    return fail((ncclResult_t)state, "%s : communicator %p cannot be used any more: ncclCommAbort, or a ncclCommDestroy that has waited long enough, has ended it, or one with which it shares resources", function, (void*)c);
  if (state != ncclSuccess)
    return fail((ncclResult_t)state, "%s : communicator %p cannot be used any more: %s", function, (void*)c, ncclGetErrorString((ncclResult_t)state));
  return fail(ncclInvalidUsage, "%s : communicator %p was finalized", function, (void*)c);
}

void comm_leave(ncclComm_t c) {
  if (atomic_fetch_sub(&c->users, 1) == 1 && atomic_load(&c->given_up) == 2) {
    int expected = 2; /* one of those that leave at the same time */
    if (atomic_compare_exchange_strong(&c->given_up, &expected, 3)) release(c);
  }
}

int comm_take(ncclComm_t c) {
  int expected = 0;
  return atomic_compare_exchange_strong(&c->given_up, &expected, 1);
}

void comm_give_up(ncclComm_t c) {
  atomic_store(&c->alive, 0);
  atomic_store(&c->given_up, 2);
  comm_leave(c);
}

void comms_each(void (*f)(ncclComm_t comm, void* with), void* with) {
  struct ncclComm* r = __atomic_load_n(&region, __ATOMIC_ACQUIRE);
  pthread_mutex_lock(&lock);
  int n = touched;
  pthread_mutex_unlock(&lock);
  for (struct ncclComm* c = r; c < r + n; c++) {
    if (atomic_load_explicit(&c->alive, memory_order_acquire) != ALIVE) continue;
    atomic_fetch_add(&c->users, 1);
    if (atomic_load(&c->alive) == ALIVE) f(c, with);
    comm_leave(c);
  }
}

struct abort {
  ncclComm_t comm;
  const char* why;
};

/* abort_one marks a communicator first: what is made when nothing was there to be aborted finds the mark. */
static void abort_one(ncclComm_t c, const char* why) {
  int expected = ncclSuccess;
  atomic_store(&c->aborted, 1);
  atomic_compare_exchange_strong(&c->state, &expected, ncclInvalidUsage);
  void* inner = atomic_load(&c->inner);
  if (inner) door_opened()->abort(inner, why);
  fallback_abort(c);
}

static void abort_relative(ncclComm_t c, void* with) {
  const struct abort* a = with;
  ncclComm_t parent = atomic_load(&c->parent);
  char why[128];
  if (c == a->comm) return;
  if (parent && parent->family == a->comm->family) {
    snprintf(why, sizeof why, "%s of the communicator of which this one is made", a->why);
  } else if (c->family == a->comm->family) {
    snprintf(why, sizeof why, "%s of a communicator that shares its resources", a->why);
  } else {
    return;
  }
  abort_one(c, why);
}

void comm_abort(ncclComm_t c, const char* why) {
  struct abort a = {c, why};
  abort_one(c, why);
  comms_each(abort_relative, &a);
}
