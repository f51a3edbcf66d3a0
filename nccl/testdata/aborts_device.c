/* Abort in every state on GPUs: rank 0 aborts communicators, and rank 1 goes on. Then rank 0 exits, and rank 1 waits for it
 * in a sum and in a message. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "aborts.h"
#include "device.h"

static float* x;
static ncclComm_t world;
static void* stream; /* of world */
static atomic_int inside;

/* meet waits for the other rank, by a communicator that nobody aborts. */
static void meet(void) {
  NCCL(ncclAllReduce(x, x, 1, ncclFloat32, ncclSum, world, stream));
  stream_sync(stream);
}

static ncclComm_t split(void) {
  ncclComm_t c;
  NCCL(ncclCommSplit(world, 0, rank, &c, NULL));
  return c;
}

struct use {
  ncclComm_t comm;
  void* stream;
  pthread_t thread;
};

static ncclResult_t reduce(const struct use* u) { return ncclAllReduce(x, x, 100, ncclFloat32, ncclSum, u->comm, u->stream); }

static void* destroys(void* with) {
  struct use* u = with;
  atomic_store(&inside, 1);
  return (void*)(long)ncclCommDestroy(u->comm);
}

static void* launches(void* with) { /* in a driver that does not return */
  struct use* u = with;
  void* context;
  CUDA(cuDevicePrimaryCtxRetain, (void**, int), &context, rank);
  CUDA(cuCtxSetCurrent, (void*), context);
  atomic_store(&inside, 1);
  return (void*)(long)reduce(u);
}

static void begins(struct use* u, void* (*f)(void*)) {
  atomic_store(&inside, 0);
  pthread_create(&u->thread, NULL, f, u);
  while (!atomic_load(&inside)) sched_yield();
}

/* The states in which rank 0 aborts. */
static void spins(struct use* u) {
  NCCL(reduce(u));
  PROMPTLY(ncclCommAbort(u->comm));
}
static void queued(struct use* u) {
  for (int i = 0; i < 100; i++) NCCL(reduce(u));
  PROMPTLY(ncclCommAbort(u->comm));
}
static void in_destroy(struct use* u) {
  NCCL(reduce(u));
  begins(u, destroys);
  PROMPTLY(ncclCommAbort(u->comm)); /* or Destroy has not begun, and is refused */
  ncclResult_t r = result_of(u->thread);
  EXPECT(r == ncclSuccess || r == ncclInvalidArgument);
}
static void* finalizes(void* with) {
  struct use* u = with;
  atomic_store(&inside, 1);
  return (void*)(long)ncclCommFinalize(u->comm);
}
static void in_finalize(struct use* u) { /* which waits for a call that rank 1 has not made */
  NCCL(reduce(u));
  begins(u, finalizes);
  PROMPTLY(ncclCommAbort(u->comm));
  result_of(u->thread); /* it may have begun after the abort */
}
static void in_capture(struct use* u) {
  void *graph = NULL, *other = stream_new();
  CUDA(cuStreamBeginCapture_v2, (void*, int), other, 2);
  NCCL(ncclAllReduce(x, x, 100, ncclFloat32, ncclSum, u->comm, other));
  PROMPTLY(ncclCommAbort(u->comm));
  CUDA(cuStreamEndCapture, (void*, void**), other, &graph);
  CUDA(cuGraphDestroy, (void*), graph);
  CUDA(cuStreamDestroy_v2, (void*), other);
}
static void in_driver(struct use* u) {
  const char* file = getenv("CUDA_EMULATED_HOLD");
  close(open(file, O_CREAT | O_WRONLY, 0600));
  begins(u, launches);
  PROMPTLY(ncclCommAbort(u->comm));
  unlink(file);
  result_of(u->thread); /* it may well be launched */
}

static void until_failed(ncclComm_t c) {
  ncclResult_t state;
  do NCCL(ncclCommGetAsyncError(c, &state));
  while (state == ncclSuccess);
  EXPECT(state == ncclRemoteError && strstr(ncclGetLastError(NULL), "has left the job"));
}

int main(void) {
  void (*const states[])(struct use*) = {spins, queued, in_destroy, in_finalize, in_capture, in_driver};
  place();
  device_open(rank);
  x = device_alloc(4096);
  stream = stream_new();
  NCCL(ncclCommInitRank(&world, nranks, id, rank));
  ncclResult_t state;
  for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
    struct use u = {.comm = split(), .stream = stream_new()};
    NCCL(reduce(&u));
    stream_sync(u.stream);
    meet();
    if (rank == 0) {
      states[i](&u);
      stream_sync(u.stream); /* kernels have left */
    }
    meet();
    if (rank == 1) {
      NCCL(ncclCommGetAsyncError(u.comm, &state));
      EXPECT(state == ncclSuccess);
      /* Of the first calls rank 0 may have begun its part. */
      for (int k = 0; k < 101; k++) {
        ncclResult_t r = reduce(&u);
        EXPECT(r == ncclSuccess || r == ncclRemoteError);
      }
      until_failed(u.comm);
      stream_sync(u.stream);
      PROMPTLY(ncclCommDestroy(u.comm));
    }
    meet();
    CUDA(cuStreamDestroy_v2, (void*), u.stream);
  }

  struct use u = {.comm = split(), .stream = stream};
  ncclComm_t messages = split();
  x[0] = (float)getpid();
  NCCL(ncclBroadcast(x, x, 1, ncclFloat32, 0, world, stream));
  stream_sync(stream);
  pid_t pid = (pid_t)x[0];
  meet();
  printf("rank %d ok\n", rank);
  if (rank == 0) return 0;
  while (kill(pid, 0) == 0 || errno != ESRCH) sched_yield();
  NCCL(reduce(&u));
  until_failed(u.comm);
  NCCL(ncclCommGetAsyncError(world, &state));
  EXPECT(state == ncclSuccess);
  PROMPTLY(ncclCommDestroy(u.comm));
  /* A message that the rank has not sent, alone and beside others. */
  NCCL(ncclRecv(x, 1, ncclFloat32, 0, messages, stream));
  until_failed(messages);
  EXPECT(strstr(ncclGetLastError(NULL), "rank 0"));
  stream_sync(stream);
  NCCL(ncclCommGetAsyncError(world, &state));
  EXPECT(state == ncclSuccess);
  PROMPTLY(ncclCommDestroy(messages));
  PROMPTLY(ncclCommDestroy(world));
  return 0;
}
