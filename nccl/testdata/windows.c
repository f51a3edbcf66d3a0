/* Windows and device communicators of ranks on emulated GPUs, each in a process. */
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "windows.h"

static ncclComm_t comm;
static void* stream;

/* sums checks an all-reduce in place of memory of windows, or of any other. */
static void sums(float* at, size_t count) {
  for (size_t i = 0; i < count; i++) at[i] = (float)(rank + 1) + (float)(i % 5);
  NCCL(ncclAllReduce(at, at, count, ncclFloat32, ncclSum, comm, stream));
  stream_sync(stream);
  for (size_t i = 0; i < count; i++)
    if (at[i] != (float)(nranks * (nranks + 1) / 2) + (float)(nranks * (int)(i % 5))) {
      fprintf(stderr, "rank %d: element %zu of %zu is %g\n", rank, i, count, (double)at[i]);
      exit(1);
    }
}

/* barrier has all ranks come here. */
static void barrier(void) {
  static float* one;
  if (one == NULL) one = device_alloc(4);
  sums(one, 1);
}

static void addresses(ncclWindow_t window, char* own) {
  void *p, *base;
  NCCL(ncclWinGetUserPtr(comm, window, &p));
  EXPECT(p == own);
  NCCL(ncclGetLsaDevicePointer(window, 0, 0, &base));
  for (int r = 0; r < nranks; r++) {
    NCCL(ncclGetLsaDevicePointer(window, 64, r, &p));
    EXPECT((uintptr_t)p - (uintptr_t)base - 64 == (uintptr_t)r * (((uintptr_t)p - (uintptr_t)base - 64) / (uintptr_t)(r ? r : 1)));
    EXPECT(((uintptr_t)p - (uintptr_t)base - 64) % ((uintptr_t)4 << 30) == 0);
    void* q;
    NCCL(ncclGetPeerDevicePointer(window, 64, r, &q));
    EXPECT(p == q);
  }
  NCCL(ncclGetLsaDevicePointer(window, 0, rank, &p));
  own[5] = 'x'; /* the same memory at two addresses */
  EXPECT(((char*)p)[5] == 'x');
  own[5] = 0;
  NCCL(ncclGetLsaMultimemDevicePointer(window, 0, &p));
  EXPECT(p == NULL);
  FAILS(ncclGetLsaDevicePointer(window, 0, -1, &p), ncclInvalidArgument, "expected 0 to");
  FAILS(ncclGetPeerDevicePointer(window, 0, nranks, &p), ncclInvalidArgument, "expected 0 to");
  FAILS(ncclGetPeerDevicePointer(window, (size_t)1 << 40, 0, &p), ncclInvalidArgument, "offset 1099511627776: expected less than");
  FAILS(ncclGetLsaDevicePointer(NULL, 0, 0, &p), ncclInvalidArgument, "window argument is NULL");
  FAILS(ncclGetLsaDevicePointer(window, 0, 0, NULL), ncclInvalidArgument, "outPtr argument is NULL");
  FAILS(ncclGetPeerDevicePointer((ncclWindow_t)own, 0, 0, &p), ncclInvalidArgument, "none of this library");
}

static void teams(void) {
  struct team w = ncclTeamWorld(comm), l = ncclTeamLsa(comm), r = ncclTeamRail(comm);
  EXPECT(w.ranks == nranks && w.rank == rank && w.stride == 1);
  EXPECT(l.ranks == nranks && l.rank == rank && l.stride == 1); /* one domain */
  EXPECT(r.ranks == 1 && r.rank == 0 && r.stride == nranks);
  EXPECT(ncclTeamRankToWorld(comm, l, 1) == 1 && ncclTeamRankToLsa(comm, w, 1) == 1 && ncclTeamRankToWorld(comm, r, 0) == rank);
}

/* devices makes device communicators in all layouts, and has kernels meet and write to each other through window. */
static void devices(ncclWindow_t window, char* own) {
  char devcomm[DEVCOMM], other[DEVCOMM];
  struct lsa_barrier mine, a2a;
  struct resource extra, slots;
  NCCL(ncclLsaBarrierCreateRequirement(ncclTeamLsa(comm), 3, &mine, &extra));
  EXPECT(extra.size == 4 * 3 * (3 + (size_t)nranks) && mine.count == 3);
  EXPECT(ncclLLA2ACalcSlots(10, 12) == 20);
  NCCL(ncclLLA2ACreateRequirement(2, 20, &a2a, &slots));
  EXPECT(slots.size == 2 * 41 * 16);
  extra.next = &slots;
  struct wishes w = {.resources = &extra, .lsa_barriers = 2, .rail_barriers = 4};
  memset(devcomm, 0x55, sizeof devcomm);
  NCCL(ncclDevCommCreate(comm, &w, devcomm));
  EXPECT(mine.buffer == 0 && a2a.buffer == 1);
  for (size_t i = 200; i < DEVCOMM; i++) EXPECT(devcomm[i] == 0x55); /* nothing behind its end */

  uint64_t* result = device_alloc(8);
  void* found = NULL;
  void *exchange = kernel_of("window_exchange"), *find = kernel_of("window_find");
  for (int turn = 0; turn < 3; turn++) {
    for (int r = 0; r < nranks; r++) ((uint32_t*)(own + 256))[r] = 7;
    struct exchange e = {window, devcomm, 256, turn % 2, result};
    launch(exchange, stream, &e);
    stream_sync(stream);
    EXPECT(*result == 1);
  }
  struct search s = {devcomm, (uintptr_t)own + 100, &found};
  launch(find, stream, &s);
  stream_sync(stream);
  EXPECT(found == (void*)window);

  static const unsigned versions[][3] = {{22902, 0, 200}, {22907, 0, 224}, {23003, 8, 240}, {23007, 8, 240}}; /* version, what is in front, size */
  for (size_t v = 0; v < sizeof versions / sizeof *versions; v++) {
    struct newer_wishes n = {sizeof n, 0xcafebeef, versions[v][0], {.lsa_barriers = 2, .contexts = 4}, {0}};
    memset(other, 0x55, sizeof other);
    NCCL(ncclDevCommCreate(comm, &n, other));
    size_t head = versions[v][1];
    if (head) EXPECT(((uint32_t*)other)[0] == 0xcafebeef && ((uint32_t*)other)[1] == versions[v][0]);
    EXPECT(memcmp(other + head, devcomm, 32) == 0); /* places of ranks, and the table */
    for (size_t i = versions[v][2]; i < DEVCOMM; i++) EXPECT(other[i] == 0x55);
    for (int r = 0; r < nranks; r++) ((uint32_t*)(own + 256))[r] = 7;
    struct exchange e = {window, other + head, 256, 0, result};
    launch(exchange, stream, &e);
    stream_sync(stream);
    EXPECT(*result == 1);
    NCCL(ncclDevCommDestroy(comm, other));
    FAILS(ncclDevCommDestroy(comm, other), ncclInvalidUsage, "no device communicator");
  }
  struct newer_wishes future = {sizeof future, 0xcafebeef, 23101, {.lsa_barriers = 1}, {0}};
  FAILS(ncclDevCommCreate(comm, &future, other), ncclInvalidUsage, "version 23101: expected 2.28.7 to 2.30");
  struct team_wish team = {.multicast = 1};
  struct resource signals = {.signals = 1};
  FAILS(ncclDevCommCreate(comm, &(struct wishes){.multicast = 1}, other), ncclInvalidUsage, "multicast");
  FAILS(ncclDevCommCreate(comm, &(struct wishes){.teams = &team}, other), ncclInvalidUsage, "multicast");
  FAILS(ncclDevCommCreate(comm, &(struct wishes){.gin = 1}, other), ncclInvalidUsage, "GIN");
  FAILS(ncclDevCommCreate(comm, &(struct wishes){.signals = 1}, other), ncclInvalidUsage, "GIN");
  FAILS(ncclDevCommCreate(comm, &(struct wishes){.resources = &signals}, other), ncclInvalidUsage, "GIN");
  FAILS(ncclDevCommCreate(comm, NULL, other), ncclInvalidArgument, "reqs argument is NULL");
  FAILS(ncclDevCommCreate(comm, &w, NULL), ncclInvalidArgument, "outDevComm argument is NULL");
  NCCL(ncclDevCommCreate(comm, &(struct wishes){0}, other)); /* no memory is needed */
  NCCL(ncclDevCommDestroy(comm, other));
  NCCL(ncclDevCommDestroy(comm, devcomm));
}

/* groups registers two windows in a group, and fails in one. */
static void groups(void) {
  char *a = memory_new(MIB), *b = memory_new(MIB);
  ncclWindow_t of_a = (ncclWindow_t)a, of_b = (ncclWindow_t)a;
  NCCL(ncclGroupStart());
  NCCL(ncclCommWindowRegister(comm, a, MIB, &of_a, NCCL_WIN_DEFAULT));
  NCCL(ncclCommWindowRegister(comm, b, MIB, &of_b, NCCL_WIN_COLL_SYMMETRIC));
  EXPECT(of_a == NULL && of_b == NULL);
  NCCL(ncclGroupEnd());
  EXPECT(of_a != NULL && of_b != NULL && of_a != of_b);
  sums((float*)a, 1000); /* not symmetric: any offsets */
  sums((float*)(b + 4096), 5000);
  NCCL(ncclCommWindowDeregister(comm, of_a));
  NCCL(ncclCommWindowDeregister(comm, of_b));
  FAILS(ncclCommWindowDeregister(comm, of_b), ncclInvalidUsage, "none of this communicator");
  of_a = (ncclWindow_t)a;
  NCCL(ncclGroupStart());
  NCCL(ncclCommWindowRegister(comm, a, MIB, &of_a, 0));
  FAILS(ncclCommWindowRegister(comm, b, 0, &of_b, 0), ncclInvalidArgument, "expected a buffer and a size");
  FAILS(ncclGroupEnd(), ncclInvalidArgument, "expected a buffer and a size");
  EXPECT(of_a == NULL);
  NCCL(ncclGroupStart());
  NCCL(ncclCommWindowRegister(comm, a, MIB, &of_a, 0));
  NCCL(ncclAllReduce(b, b, 1, ncclFloat32, ncclSum, comm, stream));
  FAILS(ncclGroupEnd(), ncclInvalidUsage, "a group for each");
  NCCL(ncclMemFree(a));
  NCCL(ncclMemFree(b));
}

/* unfit: a rank whose memory cannot be in a window gives NULL to all, with Success. */
static void unfit(void) {
  char *good = memory_new(4 * MIB), *old = device_alloc(MIB), *p = good;
  EXPECT(window_new(comm, rank == nranks - 1 ? old : good, MIB) == NULL);
  EXPECT(window_new(comm, rank == 0 ? (char*)&p : good, 8) == NULL); /* memory of nobody */
  EXPECT(window_new(comm, good + 4096 * (rank + 1), MIB) == NULL); /* at offsets that no distance makes equal */
  if (rank == 0) setenv("NCCL_WIN_ENABLE", "0", 1);
  EXPECT(window_new(comm, good, MIB) == NULL);
  unsetenv("NCCL_WIN_ENABLE");
  ncclWindow_t inside = window_new(comm, good + 2 * MIB * (rank % 2) + 4096, MIB); /* at offsets that differ by units */
  EXPECT(inside != NULL);
  sums((float*)(good + 2 * MIB * (rank % 2) + 8192), 3000);
  NCCL(ncclCommWindowDeregister(comm, inside));
  sums((float*)good, 100000);
  NCCL(ncclMemFree(good));
  NCCL(ncclMemFree(old));
}

/* lives: memory is given back with its last user, and windows of memory that was freed are no more. */
static void lives(void) {
  char* p = memory_new(MIB);
  NCCL(ncclCommWindowDeregister(comm, window_new(comm, p, MIB))); /* pages and links are there */
  NCCL(ncclMemFree(p));
  barrier();
  size_t before = free_memory();
  for (int i = 0; i < 10; i++) {
    p = memory_new(8 * MIB);
    ncclWindow_t w = window_new(comm, p, 8 * MIB);
    EXPECT(w != NULL);
    sums((float*)p, 10);
    if (i % 2) NCCL(ncclCommWindowDeregister(comm, w));
    NCCL(ncclMemFree(p));
    if (i % 2 == 0) {
      void* q;
      FAILS(ncclGetLsaDevicePointer(w, 0, 0, &q), ncclInvalidArgument, "none of this library");
      NCCL(ncclCommWindowDeregister(comm, w)); /* which its memory has ended */
    }
  }
  barrier();
  for (time_t end = time(NULL) + 240; free_memory() < before && time(NULL) < end;) sched_yield(); /* what is behind calls is freed a moment later */
  EXPECT(free_memory() >= before);
}

/* unblocked: a communicator that does not block fills the window when it is no longer in progress. */
static void unblocked(char* own, size_t size) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t second;
  ncclWindow_t w;
  ncclResult_t state = ncclInProgress;
  char devcomm[DEVCOMM];
  config.blocking = 0;
  for (int turn = 0; turn < 3; turn++) {
    ncclResult_t r;
    if (turn == 0)
      r = ncclCommSplit(comm, 0, rank, &second, &config);
    else
      r = turn == 1 ? ncclCommWindowRegister(second, own, size, &w, 0) : ncclDevCommCreate(second, &(struct wishes){.lsa_barriers = 1}, devcomm);
    EXPECT(r == ncclInProgress);
    do {
      sched_yield();
      NCCL(ncclCommGetAsyncError(turn ? second : comm, &state));
    } while (state == ncclInProgress);
    EXPECT(state == ncclSuccess && (turn == 0 || w != NULL));
  }
  NCCL(ncclDevCommDestroy(second, devcomm));
  NCCL(ncclCommWindowDeregister(second, w));
  NCCL(ncclCommDestroy(second));
}

static void* registers(void* with) {
  ncclWindow_t w;
  ncclResult_t r = ncclCommWindowRegister(comm, with, MIB, &w, 0);
  EXPECT(r != ncclSuccess && w == NULL);
  return NULL;
}

static void* frees(void* at) {
  NCCL(ncclMemFree(at));
  return NULL;
}

static void expect_sums(const float* at, size_t count, float each, const char* what) {
  for (size_t i = 0; i < count; i++)
    if (at[i] != each) {
      fprintf(stderr, "rank %d: %s: element %zu is %g, expected %g\n", rank, what, i, (double)at[i], (double)each);
      exit(1);
    }
}

static void fill(float* at, size_t count, float value) {
  for (size_t i = 0; i < count; i++) at[i] = value;
}

/* Calls that are queued are right although what they use is deregistered, which does not wait for them, or freed, which does. */
static void behind_calls(void) {
  enum { COUNT = 5000, CALLS = 3 };
  uint64_t* word = device_alloc(sizeof *word);
  const float all = (float)(nranks * (nranks + 1) / 2);
  float total = all;
  for (int i = 1; i < CALLS; i++) total *= (float)nranks;
  float *window_memory = (float*)memory_new(MIB), *in = (float*)memory_new(MIB), *plain = device_alloc(MIB), *out = device_alloc(MIB);
  ncclWindow_t window = NULL;
  void* handle = NULL;
  pthread_t thread;
  NCCL(ncclCommWindowRegister(comm, window_memory, MIB, &window, NCCL_WIN_COLL_SYMMETRIC));
  EXPECT(window != NULL);
  NCCL(ncclCommRegister(comm, plain, MIB, &handle));
  sums(window_memory, COUNT); /* in place, by the window */

  fill(window_memory, COUNT, (float)(rank + 1));
  fill(plain, COUNT, (float)(rank + 1));
  hold(stream, word);
  for (int i = 0; i < CALLS; i++) {
    NCCL(ncclAllReduce(window_memory, window_memory, COUNT, ncclFloat32, ncclSum, comm, stream));
    NCCL(ncclAllReduce(plain, plain, COUNT, ncclFloat32, ncclSum, comm, stream));
  }
  NCCL(ncclCommWindowDeregister(comm, window));
  NCCL(ncclCommDeregister(comm, handle));
  FAILS(ncclCommWindowDeregister(comm, window), ncclInvalidUsage, "none of this communicator");
  release(word);
  stream_sync(stream);
  expect_sums(window_memory, COUNT, total, "behind the end of a window");
  expect_sums(plain, COUNT, total, "behind the end of a registration");
  sums(window_memory, COUNT); /* the window is not found any more */

  /* The thread is in MemFree when the calls begin, unless it is very late. */
  NCCL(ncclCommWindowRegister(comm, in, MIB, &window, NCCL_WIN_COLL_SYMMETRIC));
  fill(in, COUNT, (float)(rank + 1));
  hold(stream, word);
  NCCL(ncclAllReduce(in, out, COUNT, ncclFloat32, ncclSum, comm, stream));
  EXPECT(pthread_create(&thread, NULL, frees, in) == 0);
  struct timespec end;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_nsec += 50 * 1000 * 1000;
  end.tv_sec += end.tv_nsec / 1000000000;
  end.tv_nsec %= 1000000000;
  int early = pthread_timedjoin_np(thread, NULL, &end) == 0;
  release(word);
  stream_sync(stream);
  expect_sums(out, COUNT, all, "behind MemFree");
  EXPECT(!early);
  EXPECT(pthread_join(thread, NULL) == 0);
  NCCL(ncclCommWindowDeregister(comm, window));
  NCCL(ncclMemFree(window_memory));

  /* The end of a communicator has what was left behind its calls. */
  ncclComm_t second;
  float* last = (float*)memory_new(MIB);
  NCCL(ncclCommSplit(comm, 0, rank, &second, NULL));
  NCCL(ncclCommWindowRegister(second, last, MIB, &window, NCCL_WIN_COLL_SYMMETRIC));
  fill(last, COUNT, (float)(rank + 1));
  hold(stream, word);
  NCCL(ncclAllReduce(last, last, COUNT, ncclFloat32, ncclSum, second, stream));
  NCCL(ncclCommWindowDeregister(second, window));
  release(word);
  NCCL(ncclCommDestroy(second));
  expect_sums(last, COUNT, all, "behind a window and a communicator");
  NCCL(ncclMemFree(last));
}

int main(void) {
  ncclComm_t second;
  pthread_t thread;
  place();
  device_open(rank);
  stream = stream_new();
  NCCL(ncclCommInitRank(&comm, nranks, id, rank));
  teams();
  size_t size = (size_t)(rank + 1) * 64 * KIB; /* sizes differ */
  char* own = memory_new(size);
  ncclWindow_t window = window_new(comm, own, size);
  EXPECT(window != NULL);
  addresses(window, own);
  devices(window, own);
  sums((float*)own, 64 * KIB / 4);
  if (rank > 0) memset(own + 64 * KIB, 0, 64 * KIB);
  sums((float*)own, 4096);
  groups();
  unfit();
  lives();
  behind_calls();
  unblocked(own, size);

  /* Communicators end with their windows. One is aborted while a thread registers, which nobody else does. */
  NCCL(ncclCommSplit(comm, 0, rank, &second, NULL));
  ncclWindow_t of_second = window_new(second, own, size);
  EXPECT(of_second != NULL && of_second != window);
  FAILS(ncclCommWindowDeregister(comm, of_second), ncclInvalidUsage, "none of this communicator");
  NCCL(ncclCommDestroy(second));
  if (rank == 0) {
    EXPECT(pthread_create(&thread, NULL, registers, own) == 0);
    NCCL(ncclCommAbort(comm));
    EXPECT(pthread_join(thread, NULL) == 0);
  } else {
    NCCL(ncclCommAbort(comm));
  }
  NCCL(ncclMemFree(own));
  printf("rank %d ok\n", rank);
  return 0;
}
