/* Abort while another thread is in a call, on host memory. Rank 0 is aborted, and rank 1 goes on. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "aborts.h"

static ncclComm_t volatile early; /* filled while CommInitRank waits */

static void* inits(void* with) {
  (void)with;
  rank = 0;
  return (void*)(long)ncclCommInitRank((ncclComm_t*)&early, 2, id, 0);
}

static atomic_int inside; /* threads that are about to wait; the abort may still come first */

static void* messages(void* with) {
  int x;
  NCCL(ncclGroupStart());
  ncclResult_t r = ncclRecv(&x, 1, ncclInt32, 1, with, NULL);
  atomic_fetch_add(&inside, 1);
  ncclResult_t end = ncclGroupEnd();
  EXPECT(r == ncclSuccess || r == end);
  return (void*)(long)end;
}

static void* reduces(void* with) {
  int x = 1;
  atomic_fetch_add(&inside, 1);
  return (void*)(long)ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, with, NULL);
}

/* splits waits for rank 1, which does not split */
static void* splits(void* with) {
  ncclComm_t part;
  atomic_fetch_add(&inside, 1);
  return (void*)(long)ncclCommSplit(with, 0, 0, &part, NULL);
}

static void begins(pthread_t* thread, void* (*f)(void*), ncclComm_t c) {
  int before = atomic_load(&inside);
  pthread_create(thread, NULL, f, c);
  while (atomic_load(&inside) == before) sched_yield();
}

static void pair(ncclComm_t* c) {
  NCCL(ncclGetUniqueId(&id));
  NCCL(ncclGroupStart());
  for (int r = 0; r < 2; r++) NCCL(ncclCommInitRank(&c[r], 2, id, r));
  NCCL(ncclGroupEnd());
}

int main(void) {
  ncclComm_t c[2];
  ncclResult_t state;
  pthread_t thread;

  /* a communicator that another rank never joins: blocking, and not */
  NCCL(ncclGetUniqueId(&id));
  pthread_create(&thread, NULL, inits, NULL);
  while (early == NULL) sched_yield();
  PROMPTLY(ncclCommAbort(early));
  EXPECT(result_of(thread) != ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  NCCL(ncclGetUniqueId(&id));
  EXPECT(ncclCommInitRankConfig(&c[0], 2, id, 0, &config) == ncclInProgress);
  PROMPTLY(ncclCommAbort(c[0]));
  until_ended(c[0]);

  /* a thread in a call; the calls that it may be stuck in, and what rank 1 sees */
  void* (*const in[])(void*) = {messages, reduces, splits};
  for (int i = 0; i < 3; i++) {
    pair(c);
    begins(&thread, in[i], c[0]);
    PROMPTLY(ncclCommAbort(c[0]));
    EXPECT(result_of(thread) != ncclSuccess);
    NCCL(ncclCommGetAsyncError(c[1], &state));
    EXPECT(state == ncclSuccess); /* it needs rank 0 for nothing */
    int x = 1; /* what rank 0 has given to a call, it has given */
    ncclResult_t r = ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, c[1], NULL);
    EXPECT(r == ncclRemoteError || in[i] == reduces);
    if (r == ncclSuccess) r = ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, c[1], NULL);
    EXPECT(r == ncclRemoteError && strstr(ncclGetLastError(NULL), "has left the job"));
    NCCL(ncclCommGetAsyncError(c[1], &state));
    EXPECT(state == ncclRemoteError);
    PROMPTLY(ncclCommDestroy(c[1]));
  }

  /* rank 1 is in a call that rank 0 has begun as well */
  pair(c);
  pthread_t other;
  pthread_create(&thread, NULL, reduces, c[0]);
  pthread_create(&other, NULL, reduces, c[1]);
  EXPECT(result_of(thread) == ncclSuccess && result_of(other) == ncclSuccess);
  begins(&thread, messages, c[0]);
  begins(&other, splits, c[1]); /* neither ends */
  PROMPTLY(ncclCommAbort(c[0]));
  EXPECT(result_of(thread) != ncclSuccess);
  EXPECT(result_of(other) == ncclRemoteError);
  int y = 1; /* the last error is the process's, so either thread's by now: this call's is about rank 0 */
  FAILS(ncclAllReduce(&y, &y, 1, ncclInt32, ncclSum, c[1], NULL), ncclRemoteError, "ncclCommAbort");
  PROMPTLY(ncclCommAbort(c[1]));

  /* Destroy waits for what runs in the background for a while, and says what that has waited for. */
  NCCL(ncclGetUniqueId(&id));
  EXPECT(ncclCommInitRankConfig(&c[0], 2, id, 0, &config) == ncclInProgress);
  FAILS(ncclCommDestroy(c[0]), ncclRemoteError, "ncclCommInitRankConfig has not ended within 10 s");
  EXPECT(strstr(ncclGetLastError(NULL), "rank 1 is missing") != NULL);

  /* many calls of many threads on many communicators, and abort in the middle */
  for (int i = 0; i < 4; i++) {
    pair(c);
    pthread_create(&thread, NULL, reduces, c[0]);
    pthread_create(&other, NULL, reduces, c[1]);
    PROMPTLY(ncclCommAbort(c[i % 2]));
    pthread_join(thread, NULL);
    pthread_join(other, NULL);
    PROMPTLY(ncclCommAbort(c[1 - i % 2]));
  }
  printf("ok\n");
  return 0;
}
