/* A group with calls of several devices is performed by as many threads. Making and joining one for each
 * group costs 50 to 90 us, so they are kept: a thread polls for a while for its next piece of work, then
 * sleeps, and ends after some time. */
#define _GNU_SOURCE
#include "workers.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "group.h"

enum {
  POLL_NS = 50000,  /* twice what a group of a benchmark takes; waking a thread takes as long */
  KEEP_SECONDS = 30 /* a thread without work ends then */
};

enum state { IDLE, GIVEN, DONE };

struct worker {
  atomic_int state;
  void* (*f)(void*);
  void* with;
  struct worker* next; /* of those that are idle */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct worker* idle;

static int can_poll; /* another processor works meanwhile */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void count(void) { can_poll = sysconf(_SC_NPROCESSORS_ONLN) > 1; }

static long since(const struct timespec* begin) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (now.tv_sec - begin->tv_sec) * 1000000000L + now.tv_nsec - begin->tv_nsec;
}

/* await waits while the state is as given. It reports 0 after the timeout, if there is one. */
static int await(atomic_int* state, int as, const struct timespec* timeout) {
  if (can_poll) {
    struct timespec begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
      for (int i = 0; i < 100; i++) {
        if (atomic_load_explicit(state, memory_order_acquire) != as) return 1;
        __builtin_ia32_pause();
      }
    } while (since(&begin) < POLL_NS);
  }
  while (atomic_load_explicit(state, memory_order_acquire) == as)
    if (syscall(SYS_futex, state, FUTEX_WAIT_PRIVATE, as, timeout, NULL, 0) != 0 && errno == ETIMEDOUT) return 0;
  return 1;
}

static void set(atomic_int* state, int to) {
  atomic_store_explicit(state, to, memory_order_release);
  syscall(SYS_futex, state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* leave takes a worker out of those that are idle. It reports 0 if it has got work meanwhile. */
static int leave(struct worker* w) {
  int found = 0;
  pthread_mutex_lock(&lock);
  for (struct worker** at = &idle; *at && !found; at = &(*at)->next)
    if (*at == w) {
      *at = w->next;
      found = 1;
      break;
    }
  pthread_mutex_unlock(&lock);
  return found;
}

static void* serve(void* with) {
  struct worker* w = with;
  name_thread("NCCL Worker");
  for (;;) {
    const struct timespec keep = {.tv_sec = KEEP_SECONDS};
    int state = atomic_load_explicit(&w->state, memory_order_acquire);
    if (state == GIVEN) {
      w->f(w->with);
      set(&w->state, DONE);
    } else if (!await(&w->state, state, &keep) && state == IDLE && leave(w)) {
      break;
    }
  }
  free(w);
  return NULL;
}

struct worker* worker_start(void* (*f)(void*), void* with) {
  pthread_once(&once, count);
  pthread_mutex_lock(&lock);
  struct worker* w = idle;
  if (w) idle = w->next;
  pthread_mutex_unlock(&lock);
  int made = w == NULL;
  pthread_t thread;
  if (made && (w = calloc(1, sizeof *w)) == NULL) return NULL;
  w->f = f;
  w->with = with;
  set(&w->state, GIVEN);
  if (made && start_thread(&thread, 1, serve, w) != 0) {
    free(w);
    return NULL;
  }
  return w;
}

void worker_wait(struct worker* w) {
  for (int s; (s = atomic_load_explicit(&w->state, memory_order_acquire)) != DONE;) await(&w->state, s, NULL);
  /* The thread that polls sees the change; one that sleeps since DONE has to be woken only for work. */
  pthread_mutex_lock(&lock);
  atomic_store_explicit(&w->state, IDLE, memory_order_release);
  w->next = idle;
  idle = w;
  pthread_mutex_unlock(&lock);
}
