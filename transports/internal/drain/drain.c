#define _GNU_SOURCE
#include "drain.h"

#include <mscclpp/trigger.h>

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

mscclpp_drain* mscclpp_drain_new(void) {
  static const uint32_t off = 0;
  mscclpp_drain* d = calloc(1, sizeof(mscclpp_drain));
  if (d != NULL) d->observed = &off;
  return d;
}

static uint64_t now_ns(void) {
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

static uint32_t* error_word(const mscclpp_drain* d) { return (uint32_t*)(d->ring + mscclpp_ring_error); }
static uint32_t* parked_word(const mscclpp_drain* d) { return (uint32_t*)(d->ring + mscclpp_ring_parked); }

// The second word of the next trigger, or 0 in *there if it was not pushed yet.
static uint64_t poll_ring(const mscclpp_drain* d, int* there) {
  const uint64_t* slot = (const uint64_t*)(d->ring + mscclpp_ring_triggers + (d->tail & (d->slots - 1)) * mscclpp_ring_trigger);
  const uint64_t snd = __atomic_load_n(&slot[1], __ATOMIC_ACQUIRE);
  *there = (snd >> 63) == (((d->tail >> d->shift) & 1) ^ 1);
  return snd & ~(1ull << 63);
}

// Copies in pieces, so that a loop that has to quit need not finish 4 GiB first.
static int copy_pieces(mscclpp_drain* d, char* to, const char* from, uint64_t bytes) {
  const uint64_t piece = 4 << 20;
  for (uint64_t done = 0; done < bytes; done += piece) {
    if (done > 0 && __atomic_load_n(&d->stop, __ATOMIC_RELAXED) == mscclpp_drain_quit) return 0;
    memcpy(to + done, from + done, bytes - done < piece ? bytes - done : piece);
  }
  return 1;
}

// put copies, or says why it cannot. Addresses are read once: Go may unbind a slot
// at any moment, and then waits for the end of this turn.
static uint32_t put(mscclpp_drain* d, uint64_t fst, uint64_t snd) {
  const uint64_t bytes = mscclpp_trigger_bytes(fst), from = mscclpp_trigger_from(fst), to = mscclpp_trigger_to(snd);
  const mscclpp_drain_memory* src = &d->memory[mscclpp_trigger_src(snd)];
  const mscclpp_drain_memory* dst = &d->memory[mscclpp_trigger_dst(snd)];
  const char* source = __atomic_load_n(&src->addr, __ATOMIC_SEQ_CST);
  char* target = __atomic_load_n(&dst->addr, __ATOMIC_SEQ_CST);
  if (source == NULL) return mscclpp_drain_unbound_source;
  if (target == NULL) return mscclpp_drain_unbound_target;
  if (!src->own) return mscclpp_drain_source_is_peers;  // data moves one way: from here to there
  if (dst->own) return mscclpp_drain_target_is_own;
  if (from > src->bytes || bytes > src->bytes - from) return mscclpp_drain_source_range;
  if (to > dst->bytes || bytes > dst->bytes - to) return mscclpp_drain_target_range;
  if (!copy_pieces(d, target + to, source + from, bytes)) return mscclpp_drain_cut_short;
  __atomic_store_n(&d->copied, d->copied + bytes, __ATOMIC_RELAXED);
  return mscclpp_drain_stopped;
}

static uint32_t perform(mscclpp_drain* d, uint64_t fst, uint64_t snd) {
  const uint32_t type = mscclpp_trigger_kind(snd), slot = mscclpp_trigger_slot(snd);
  if (type == 0) return mscclpp_drain_bad_type;
  if (type & mscclpp_do_put) {
    const uint32_t reason = put(d, fst, snd);
    if (reason != mscclpp_drain_stopped) return reason;
  }
  if ((type & (mscclpp_do_signal | mscclpp_do_flush)) == 0) return mscclpp_drain_stopped;
  uint64_t* word = slot < mscclpp_drain_semaphores ? __atomic_load_n(&d->semaphore[slot], __ATOMIC_SEQ_CST) : NULL;
  if (word == NULL) return mscclpp_drain_unbound_semaphore;
  if (type & mscclpp_do_signal) __atomic_fetch_add(word, 1, __ATOMIC_RELEASE);
  if (type & mscclpp_do_flush) {
    // A copy is complete when memcpy returns, so all earlier puts are.
    uint64_t* done = (uint64_t*)(d->ring + mscclpp_ring_flush) + slot;
    __atomic_store_n(done, d->tail + 1, __ATOMIC_RELEASE);
  }
  return mscclpp_drain_stopped;
}

// Sleeps until a producer pushes. The loop looks again after it has said that it
// sleeps: a push before that did not see it.
static void park(mscclpp_drain* d) {
  uint32_t* word = parked_word(d);
  int there;
  __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  poll_ring(d, &there);
  if (!there && __atomic_load_n(&d->stop, __ATOMIC_SEQ_CST) == mscclpp_drain_run) {
    const struct timespec t = {(time_t)(d->park_ns / 1000000000u), (long)(d->park_ns % 1000000000u)};
    syscall(SYS_futex, word, FUTEX_WAIT, 1, &t, NULL, 0);
    __atomic_store_n(&d->parked, d->parked + 1, __ATOMIC_RELAXED);
  }
  __atomic_store_n(word, 0, __ATOMIC_RELAXED);
}

// Gives the ring for records back once they are not wanted any more: a rank has few.
static void give_back(mscclpp_drain* d) {
  if (d->records_state != NULL) __atomic_store_n(d->records_state, mscclpp_observe_ended, __ATOMIC_SEQ_CST);
  d->records_state = NULL;
  d->records_none = 0;
}

// Waits until a trigger is there; 0: the loop is to end.
static int await_trigger(mscclpp_drain* d, uint64_t* snd) {
  int there;
  *snd = poll_ring(d, &there);
  if (there) return 1;
  const uint64_t start = now_ns();
  for (;;) {
    for (int i = 0; i < 32; ++i) {
      *snd = poll_ring(d, &there);
      if (there) return 1;
      cpu_pause();
    }
    if (__atomic_load_n(&d->stop, __ATOMIC_ACQUIRE) != mscclpp_drain_run) {
      *snd = poll_ring(d, &there);  // triggers from before the request to stop are visible now
      return there;
    }
    if (__atomic_load_n(d->observed, __ATOMIC_RELAXED) == 0) give_back(d);
    const uint64_t waited = now_ns() - start;
    if (waited < d->spin_ns) continue;
    if (waited < d->spin_ns + d->yield_ns) {
      sched_yield();
    } else if (d->park_ns > 0) {
      park(d);
    }
  }
}

static uint32_t end(mscclpp_drain* d, uint32_t reason, uint64_t fst, uint64_t snd) {
  give_back(d);
  d->position = d->tail;
  d->fst = fst;
  d->snd = snd;
  d->reason = reason;
  return reason;
}

// Performs a trigger while an observer looks.
__attribute__((noinline)) static uint32_t perform_observed(mscclpp_drain* d, uint64_t fst, uint64_t snd) {
  if (d->records_state == NULL && !d->records_none) mscclpp_drain_observe(d->observer, d);
  if (d->records_state == NULL) return perform(d, fst, snd);
  const uint64_t bytes = mscclpp_trigger_kind(snd) & mscclpp_do_put ? mscclpp_trigger_bytes(fst) : 0;
  const uint64_t waiting = __atomic_load_n((uint64_t*)(d->ring + mscclpp_ring_head), __ATOMIC_RELAXED) - d->tail;
  const uint16_t depth = waiting < UINT16_MAX ? (uint16_t)waiting : UINT16_MAX;
  mscclpp_observe_write(&d->records, now_ns(), mscclpp_observe_trigger, d->tail, bytes, depth, -1);
  const uint32_t reason = perform(d, fst, snd);
  mscclpp_observe_write(&d->records, now_ns(), mscclpp_observe_trigger | 1, d->tail, bytes, depth, -1);
  return reason;
}

uint32_t mscclpp_drain_loop(mscclpp_drain* d) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  if (d->cpu >= 0) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(d->cpu, &one);
    sched_setaffinity(0, sizeof one, &one);  // a wish: without it the loop is slower
  }
  // Before the request to finish, no more was pushed than fits into the ring.
  uint64_t last = 0;
  uint64_t snd;
  const uint32_t* observed = d->observed;
  while (await_trigger(d, &snd)) {
    const uint32_t stop = __atomic_load_n(&d->stop, __ATOMIC_ACQUIRE);
    if (stop == mscclpp_drain_quit) return end(d, mscclpp_drain_cut_short, 0, 0);
    if (stop == mscclpp_drain_finish) {
      if (last == 0) last = d->tail + d->slots;
      if (d->tail == last) break;
    }
    const uint64_t* slot = (const uint64_t*)(d->ring + mscclpp_ring_triggers + (d->tail & (d->slots - 1)) * mscclpp_ring_trigger);
    const uint64_t fst = __atomic_load_n(&slot[0], __ATOMIC_RELAXED);
    __atomic_fetch_add(&d->turn, 1, __ATOMIC_SEQ_CST);
    const int look = __builtin_expect(__atomic_load_n(observed, __ATOMIC_RELAXED) != 0, 0);
    const uint32_t reason = look ? perform_observed(d, fst, snd) : perform(d, fst, snd);
    __atomic_fetch_add(&d->turn, 1, __ATOMIC_SEQ_CST);
    if (reason != mscclpp_drain_stopped) {
      if (reason != mscclpp_drain_cut_short) __atomic_store_n(error_word(d), mscclpp_ring_invalid, __ATOMIC_RELEASE);
      return end(d, reason, fst, snd);
    }
    d->tail++;
    __atomic_store_n((uint64_t*)(d->ring + mscclpp_ring_tail), d->tail, __ATOMIC_RELEASE);
    __atomic_store_n(&d->performed, d->performed + 1, __ATOMIC_RELAXED);
  }
  return end(d, mscclpp_drain_stopped, 0, 0);
}

void mscclpp_drain_stop(mscclpp_drain* d, uint32_t how) {
  __atomic_store_n(&d->stop, how, __ATOMIC_SEQ_CST);
  if (d->ring != NULL && __atomic_exchange_n(parked_word(d), 0, __ATOMIC_SEQ_CST) != 0) {
    syscall(SYS_futex, parked_word(d), FUTEX_WAKE, 0x7fffffff, NULL, NULL, 0);
  }
}

void mscclpp_drain_bind_memory(mscclpp_drain* d, uint32_t slot, void* addr, uint64_t bytes, uint32_t own) {
  if (addr != NULL) {  // unbinding leaves them to a put that is under way
    d->memory[slot].bytes = bytes;
    d->memory[slot].own = own;
  }
  __atomic_store_n(&d->memory[slot].addr, addr, __ATOMIC_SEQ_CST);
}

void mscclpp_drain_bind_semaphore(mscclpp_drain* d, uint32_t slot, void* word) {
  __atomic_store_n(&d->semaphore[slot], word, __ATOMIC_SEQ_CST);
}

uint64_t mscclpp_drain_turn(const mscclpp_drain* d) { return __atomic_load_n(&d->turn, __ATOMIC_SEQ_CST); }

int mscclpp_drain_quiet(const mscclpp_drain* d, uint64_t turn) { return turn % 2 == 0 || mscclpp_drain_turn(d) != turn; }

uint64_t mscclpp_drain_count(const uint64_t* counter) { return __atomic_load_n(counter, __ATOMIC_RELAXED); }
