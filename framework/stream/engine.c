#define _GNU_SOURCE
#include "engine.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "inner.h"

uint64_t mscclpp_stream_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void cpu_pause(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory");
#endif
}

mscclpp_stream_engine* mscclpp_stream_engine_new(void) {
  mscclpp_stream_engine* e = calloc(1, sizeof *e);
  if (e == NULL) return NULL;
  e->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (e->bell < 0) {
    free(e);
    return NULL;
  }
  pthread_rwlock_init(&e->lists, NULL);
  return e;
}

void mscclpp_stream_engine_free(mscclpp_stream_engine* e) {
  close(e->bell);
  pthread_rwlock_destroy(&e->lists);
  free(e);
}

void mscclpp_stream_ring_bell(mscclpp_stream_engine* e) {
  const uint64_t one = 1;
  (void)!write(e->bell, &one, sizeof one);
}

void mscclpp_stream_stop(mscclpp_stream_engine* e) {
  __atomic_store_n(&e->stop, 1, __ATOMIC_SEQ_CST);
  mscclpp_stream_ring_bell(e);
}

// Drives all links but those that somebody drives. 1: one has ended, which is to be
// announced.
static int drive(mscclpp_stream_engine* e, int* some) {
  int announced = 0;
  *some = 0;
  pthread_rwlock_rdlock(&e->lists);
  for (int n = 0; n < e->links; ++n) {
    mscclpp_stream_link* l = e->link[n];
    if (__atomic_load_n(&l->state, __ATOMIC_SEQ_CST) == mscclpp_stream_alive && __atomic_load_n(&l->driven, __ATOMIC_SEQ_CST) == 0) {
      if (__atomic_load_n(&l->pending, __ATOMIC_SEQ_CST) != 0 && pthread_mutex_trylock(&l->out) == 0) {
        (void)mscclpp_stream_push(l);
        pthread_mutex_unlock(&l->out);
      }
      *some |= mscclpp_stream_pull(l, NULL, 0);
    }
    announced |= __atomic_load_n(&l->state, __ATOMIC_SEQ_CST) != mscclpp_stream_alive && __atomic_load_n(&l->announced, __ATOMIC_SEQ_CST) == 0 &&
            __atomic_load_n(&l->left, __ATOMIC_SEQ_CST) == 0;
  }
  for (int n = 0; n < e->rings; ++n) {
    if (mscclpp_stream_waiting(e->ring[n])) mscclpp_stream_drain(e->ring[n]);
  }
  pthread_rwlock_unlock(&e->lists);
  return announced;
}

// The sockets that the thread has to wait for. Those that other threads drive are left to them.
static int collect(mscclpp_stream_engine* e, struct pollfd** p, int* room) {
  int count = 0;
  pthread_rwlock_rdlock(&e->lists);
  int want = 1;
  for (int n = 0; n < e->links; ++n) want += e->link[n]->streams;
  if (want > *room) {
    struct pollfd* more = realloc(*p, (size_t)want * sizeof *more);
    if (more != NULL) *p = more, *room = want;
  }
  (*p)[count++] = (struct pollfd){.fd = e->bell, .events = POLLIN};
  for (int n = 0; n < e->links; ++n) {
    mscclpp_stream_link* l = e->link[n];
    if (__atomic_load_n(&l->state, __ATOMIC_SEQ_CST) != mscclpp_stream_alive) continue;
    if (__atomic_load_n(&l->driven, __ATOMIC_SEQ_CST) != 0) {
      __atomic_store_n(&e->excluded, 1, __ATOMIC_SEQ_CST);
      continue;
    }
    const int pending = __atomic_load_n(&l->pending, __ATOMIC_SEQ_CST) != 0;
    for (int s = 0; s < l->streams && count < *room; ++s) {
      // Of the others nothing but their end is expected before the first has named a put.
      const short in = s == 0 || __atomic_load_n(&l->missing, __ATOMIC_SEQ_CST) > 0 ? POLLIN : POLLRDHUP;
      const short out = pending && __atomic_load_n(&l->o[s].used, __ATOMIC_RELAXED) != 0 ? POLLOUT : 0;
      (*p)[count++] = (struct pollfd){.fd = l->fd[s], .events = (short)(in | out)};
    }
  }
  pthread_rwlock_unlock(&e->lists);
  return count;
}

// While others drive, the thread only looks now and then: each packet would wake it. Its
// looks take the turn of driving threads where they have one core, so it looks less often
// while they go on.
static const uint64_t first_nap_ns = 250 * 1000, nap_ns = 1000 * 1000;
static const int doze_ms = 200;
static const uint64_t look_ns = 100 * 1000 * 1000;
// How long the end of another socket waits for the first one to say why.
static const uint64_t last_word_ns = 1000000000u;

// How many links have a socket for stripes that has ended, and perhaps their end.
static int lame(mscclpp_stream_engine* e, int end) {
  int found = 0;
  pthread_rwlock_rdlock(&e->lists);
  for (int n = 0; n < e->links; ++n) {
    mscclpp_stream_link* l = e->link[n];
    if (l->streams < 2 || __atomic_load_n(&l->state, __ATOMIC_SEQ_CST) != mscclpp_stream_alive) continue;
    struct pollfd p[mscclpp_stream_most];
    for (int s = 1; s < l->streams; ++s) p[s - 1] = (struct pollfd){.fd = l->fd[s], .events = POLLRDHUP};
    if (poll(p, (nfds_t)(l->streams - 1), 0) <= 0) continue;
    found++;
    if (end) mscclpp_stream_end(l, mscclpp_stream_over, 0);
  }
  pthread_rwlock_unlock(&e->lists);
  return found;
}

// Ends links of which a socket for stripes has ended, and of which the first one does
// not say why in time. since is when the first of them was seen.
static void judge_lame(mscclpp_stream_engine* e, uint64_t* since) {
  if (!lame(e, 0)) {
    *since = 0;
  } else if (*since == 0) {
    *since = mscclpp_stream_now();
  } else if (mscclpp_stream_now() - *since > last_word_ns) {
    (void)lame(e, 1);
  }
}

int mscclpp_stream_run(mscclpp_stream_engine* e) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  int room = 1, announced = 0;
  uint64_t since = 0, napped = 0, next = first_nap_ns;
  struct pollfd* p = malloc(sizeof *p);
  if (p == NULL) return 0;
  uint32_t drives = __atomic_load_n(&e->drives, __ATOMIC_SEQ_CST) - 1;
  while (!announced && !__atomic_load_n(&e->stop, __ATOMIC_SEQ_CST)) {
    const uint32_t now = __atomic_load_n(&e->drives, __ATOMIC_SEQ_CST);
    if (now != drives) {
      drives = now;
      p[0] = (struct pollfd){.fd = e->bell, .events = POLLIN};
      const struct timespec nap = {0, (long)next};
      (void)ppoll(p, 1, &nap, NULL);
      napped += next;
      next = nap_ns;
      // Driving threads read no socket of which they expect nothing.
      if (napped >= look_ns) judge_lame(e, &since), napped = 0;
    } else {
      next = first_nap_ns;
      __atomic_store_n(&e->excluded, 0, __ATOMIC_SEQ_CST);
      __atomic_store_n(&e->asleep, 1, __ATOMIC_SEQ_CST);
      const int n = collect(e, &p, &room);
      int idle = poll(p, (nfds_t)n, doze_ms) > 0 && p[0].revents == 0;
      for (int i = 1; i < n; ++i) idle = idle && (p[i].revents == 0 || p[i].events == POLLRDHUP);
      if (idle || since != 0) judge_lame(e, &since);
      if (idle) (void)usleep(1000);  // nothing but such an end, which poll tells again and again
      __atomic_store_n(&e->asleep, 0, __ATOMIC_SEQ_CST);
    }
    if (p[0].revents != 0) {
      uint64_t rings;
      (void)!read(e->bell, &rings, sizeof rings);
    }
    // More of what arrives is likely to be on its way.
    for (int turns = 0, some = 1; turns < 64 && some && !announced; ++turns) announced = drive(e, &some);
  }
  free(p);
  return announced;
}

mscclpp_stream_ring* mscclpp_stream_ring_new(mscclpp_stream_engine* e, void* base, uint64_t slots, uint64_t tail) {
  mscclpp_stream_ring* r = calloc(1, sizeof *r);
  if (r == NULL) return NULL;
  r->engine = e;
  r->ring = base;
  r->slots = slots;
  r->tail = tail;
  for (uint64_t n = slots; n > 1; n >>= 1) r->shift++;
  pthread_mutex_init(&r->lock, NULL);
  pthread_rwlock_wrlock(&e->lists);
  const int ok = e->rings < mscclpp_stream_rings;
  if (ok) e->ring[e->rings++] = r;
  pthread_rwlock_unlock(&e->lists);
  if (ok) return r;
  free(r);
  return NULL;
}

void mscclpp_stream_ring_free(mscclpp_stream_ring* r) {
  mscclpp_stream_engine* e = r->engine;
  pthread_rwlock_wrlock(&e->lists);
  for (int n = 0; n < e->rings; ++n) {
    if (e->ring[n] == r) e->ring[n] = e->ring[--e->rings];
  }
  // Flushes of links that live on must not be completed in its memory.
  const char *from = r->ring, *to = r->ring + mscclpp_ring_triggers;
  static uint64_t nobody;
  for (int n = 0; n < e->links; ++n) {
    mscclpp_stream_link* l = e->link[n];
    pthread_mutex_lock(&l->out);
    for (uint64_t f = l->first; f != l->last; ++f) {
      flush* x = &l->flushes[f % flushes_most];
      if ((char*)x->word >= from && (char*)x->word < to) x->word = &nobody;
    }
    pthread_mutex_unlock(&l->out);
  }
  pthread_rwlock_unlock(&e->lists);
  pthread_mutex_destroy(&r->lock);
  free(r);
}

void mscclpp_stream_later(mscclpp_stream_ring* r) {
  mscclpp_stream_engine* e = r->engine;
  __atomic_fetch_add(&e->drives, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&e->asleep, __ATOMIC_SEQ_CST)) mscclpp_stream_ring_bell(e);
}

static uint32_t* parked_word(const mscclpp_stream_ring* r) { return (uint32_t*)(r->ring + mscclpp_ring_parked); }

void mscclpp_stream_wake(mscclpp_stream_ring* r) {
  if (__atomic_exchange_n(parked_word(r), 0, __ATOMIC_SEQ_CST) != 0) syscall(SYS_futex, parked_word(r), FUTEX_WAKE, 0x7fffffff, NULL, NULL, 0);
}

void mscclpp_stream_ring_run(mscclpp_stream_ring* r, uint64_t park_ns) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  const struct timespec t = {(time_t)(park_ns / 1000000000u), (long)(park_ns % 1000000000u)};
  while (!__atomic_load_n(&r->stop, __ATOMIC_SEQ_CST) && __atomic_load_n(&r->reason, __ATOMIC_SEQ_CST) == 0) {
    __atomic_store_n(parked_word(r), 1, __ATOMIC_SEQ_CST);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    mscclpp_stream_drain(r);
    if (!__atomic_load_n(&r->stop, __ATOMIC_SEQ_CST) && __atomic_load_n(&r->reason, __ATOMIC_SEQ_CST) == 0) {
      syscall(SYS_futex, parked_word(r), FUTEX_WAIT, 1, &t, NULL, 0);
    }
  }
  __atomic_store_n(parked_word(r), 0, __ATOMIC_SEQ_CST);
}

void mscclpp_stream_ring_stop(mscclpp_stream_ring* r) {
  __atomic_store_n(&r->stop, 1, __ATOMIC_SEQ_CST);
  mscclpp_stream_wake(r);
}

uint32_t mscclpp_stream_ring_reason(mscclpp_stream_ring* r, uint64_t* fst, uint64_t* snd) {
  const uint32_t reason = __atomic_load_n(&r->reason, __ATOMIC_SEQ_CST);
  *fst = r->fst, *snd = r->snd;
  return reason;
}

void mscclpp_stream_bind(mscclpp_stream_ring* r, mscclpp_stream_slot* slot, mscclpp_stream_slot value) {
  pthread_mutex_lock(&r->lock);
  *slot = value;
  pthread_mutex_unlock(&r->lock);
}

// Sleeps until the link has something to read, or takes what is to be sent.
static void sleep_on(mscclpp_stream_link* l, int ms) {
  struct pollfd p[mscclpp_stream_most];
  const int pending = __atomic_load_n(&l->pending, __ATOMIC_SEQ_CST) != 0;
  int n = 0;
  for (int s = 0; s < l->streams; ++s) {
    const short in = s == 0 || __atomic_load_n(&l->missing, __ATOMIC_SEQ_CST) > 0 ? POLLIN : 0;
    const short out = pending && __atomic_load_n(&l->o[s].used, __ATOMIC_RELAXED) != 0 ? POLLOUT : 0;
    if (in || out) p[n++] = (struct pollfd){.fd = l->fd[s], .events = (short)(in | out)};
  }
  (void)poll(p, (nfds_t)n, ms);
}

// How long a waiter polls whose peer has another core. To yield would give the core to
// another thread, for a slice of several milliseconds.
static const uint64_t alone_ns = 100 * 1000;

static void drive_others(mscclpp_stream_engine* e, const mscclpp_stream_link* own) {
  if (e->links < 2 || pthread_rwlock_tryrdlock(&e->lists) != 0) return;
  for (int n = 0; n < e->links; ++n) {
    mscclpp_stream_link* l = e->link[n];
    if (l == own || __atomic_load_n(&l->driven, __ATOMIC_SEQ_CST) != 0) continue;
    if (__atomic_load_n(&l->pending, __ATOMIC_SEQ_CST) != 0) (void)mscclpp_stream_try_push(l);
    (void)mscclpp_stream_pull(l, NULL, 0);
  }
  pthread_rwlock_unlock(&e->lists);
}

// Whether what arrives is processed on the core that this thread has: over loopback that is
// the core of the peer, which cannot run while this thread polls.
static int beside(const mscclpp_stream_link* l) {
  int cpu = -1;
  socklen_t n = sizeof cpu;
  return getsockopt(l->fd[0], SOL_SOCKET, SO_INCOMING_CPU, &cpu, &n) == 0 && cpu == sched_getcpu();
}

int mscclpp_stream_await(mscclpp_stream_link* l, mscclpp_stream_ring* r, const uint64_t* word, uint64_t wanted, uint64_t waited_ns, uint64_t spin_ns,
                         uint64_t yield_ns, uint64_t slice_ns) {
  mscclpp_stream_engine* e = l->engine;
  if (__atomic_load_n(word, __ATOMIC_ACQUIRE) >= wanted) return 1;
  __atomic_fetch_add(&e->drives, 1, __ATOMIC_SEQ_CST);
  __atomic_fetch_add(&l->driven, 1, __ATOMIC_SEQ_CST);
  const uint64_t start = mscclpp_stream_now();
  int done = 0, near = -1;  // not known yet
  for (uint32_t turn = 1;; ++turn) {
    if (mscclpp_stream_waiting(r)) mscclpp_stream_drain(r);
    int full = 0;
    if (__atomic_load_n(&l->pending, __ATOMIC_SEQ_CST) != 0) full = mscclpp_stream_try_push(l);
    const int some = mscclpp_stream_pull(l, word, wanted);
    if ((done = __atomic_load_n(word, __ATOMIC_ACQUIRE) >= wanted)) break;
    if (turn % 8 == 0) drive_others(e, l);
    if (some) continue;
    const uint64_t waited = mscclpp_stream_now() - start;
    if (waited >= slice_ns || __atomic_load_n(&l->state, __ATOMIC_SEQ_CST) != mscclpp_stream_alive) break;
    if (full) {
      sleep_on(l, 1);
      continue;
    }
    // The answer costs as much as a look at the socket.
    if (waited + waited_ns >= spin_ns && waited + waited_ns < alone_ns && (near < 0 || turn % 16 == 0)) near = beside(l);
    if (waited + waited_ns < spin_ns || (waited + waited_ns < alone_ns && !near)) {
      cpu_pause();
    } else if (waited + waited_ns < yield_ns) {
      sched_yield();
    } else {
      sleep_on(l, 10);
    }
  }
  __atomic_fetch_sub(&l->driven, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&e->excluded, __ATOMIC_SEQ_CST)) mscclpp_stream_ring_bell(e);
  return done;
}
