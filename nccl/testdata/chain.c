/* The order of calls (../src/chain.c) on a device of this file's own: a stream, and an event, is the set of calls that it is behind. */
#include "../src/chain.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "../src/cuda.h"
#include "../src/env.h"

#define EXPECT(what) \
  do { \
    if (!(what)) { printf("line %d: " #what "\n", __LINE__); exit(1); } \
  } while (0)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int full, blocked; /* the queue of device 1; a thread that waits for room there */

long setting_number(const char* name, long otherwise) {
  (void)name, (void)otherwise;
  return 1;
}

ncclResult_t cuda_event_new(void** event, int device) {
  (void)device;
  return (*event = calloc(1, sizeof(unsigned))) ? ncclSuccess : ncclSystemError;
}

ncclResult_t cuda_event_record(void* event, int device, cudaStream_t stream, int* recorded) {
  pthread_mutex_lock(&lock);
  for (; device == 1 && full; pthread_cond_wait(&changed, &lock)) {
    blocked = 1;
    pthread_cond_signal(&changed);
  }
  pthread_mutex_unlock(&lock);
  *(unsigned*)event = *(unsigned*)stream;
  *recorded = 1;
  return ncclSuccess;
}

ncclResult_t cuda_event_wait(void* event, int device, cudaStream_t stream) {
  (void)device;
  *(unsigned*)stream |= *(unsigned*)event;
  return ncclSuccess;
}

/* One rank's call, which is the bit of its name. */
struct call {
  struct ncclComm comm;
  unsigned stream, bit;
  uint64_t behind;
};

static void begin(struct call* c, uint64_t id, int device, unsigned bit) {
  *c = (struct call){.bit = bit};
  c->comm.id = id;
  c->comm.device = device;
  EXPECT(chain_begin(&c->comm, (cudaStream_t)&c->stream, &c->behind) == ncclSuccess);
}

static void end(struct call* c) {
  c->stream |= c->bit;
  EXPECT(chain_end(&c->comm, (cudaStream_t)&c->stream, c->behind) == ncclSuccess);
}

enum { A = 10, B, C, D };

static void* full_device(void* with) {
  struct call* c = with;
  begin(c, A, 1, 1);
  end(c);
  return NULL;
}

int main(void) {
  static struct call a, a1, b, c, d;
  /* Two at the same time: the next one waits for both. */
  begin(&a, A, 0, 1);
  begin(&b, B, 0, 2);
  end(&a);
  end(&b);
  begin(&c, C, 0, 4);
  EXPECT(c.stream == 3);
  end(&c);
  /* Two ranks of one communicator: each is behind what was before, not behind the other, and the next one waits for both. */
  begin(&a, A, 0, 8);
  EXPECT(a.stream == 7);
  end(&a);
  begin(&a1, A, 0, 16);
  EXPECT(a1.stream == 7);
  end(&a1);
  begin(&d, D, 0, 32);
  EXPECT(d.stream == 31);
  end(&d);
  /* A thread whose device has no room holds up no other device. */
  pthread_t thread;
  full = 1;
  EXPECT(pthread_create(&thread, NULL, full_device, &b) == 0);
  pthread_mutex_lock(&lock);
  while (!blocked) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
  begin(&a, A, 0, 64);
  end(&a);
  pthread_mutex_lock(&lock);
  full = 0;
  pthread_cond_signal(&changed);
  pthread_mutex_unlock(&lock);
  EXPECT(pthread_join(thread, NULL) == 0);
  printf("ok\n");
  return 0;
}
