/* Two ranks on emulated GPUs: streams of green contexts, which have some of the processors. */
#include "device.h"

enum { SMALL = 256, LARGE = 1 << 17, CALLS = 20 };
static ncclComm_t comm;
static float* x;

static void* green_stream(unsigned processors) {
  char every[1024], some[1024], rest[1024]; /* larger than a resource of any driver */
  unsigned count = 1;
  uintptr_t description;
  void *context, *s;
  CUDA(cuDeviceGetDevResource, (int, void*, int), rank, every, 1);
  CUDA(cuDevSmResourceSplitByCount, (void*, unsigned*, const void*, void*, unsigned, unsigned), some, &count, every, rest, 0, processors);
  CUDA(cuDevResourceGenerateDesc, (uintptr_t*, const void*, unsigned), &description, some, 1);
  CUDA(cuGreenCtxCreate, (void**, uintptr_t, int, unsigned), &context, description, rank, 1);
  CUDA(cuGreenCtxStreamCreate, (void**, void*, unsigned, int), &s, context, 1, 0);
  return s;
}

static uint64_t overlapping(void) { return ((uint64_t(*)(void))dlsym(driver, "cuEmulatedOverlapping"))(); }

/* overlaps makes calls, which are right, and returns how many launches may begin before the one in front of them has ended. */
static uint64_t overlaps(void* stream, int n) {
  uint64_t before = overlapping();
  for (int i = 0; i < n; i++) x[i] = 1;
  for (int i = 0; i < CALLS; i++) NCCL(ncclAllReduce(x, x, n, ncclFloat32, ncclSum, comm, stream));
  uint64_t after = overlapping();
  stream_sync(stream);
  for (int i = 0; i < n; i++) EXPECT(x[i] == (float)(1 << CALLS));
  return after - before;
}

int main(void) {
  ncclComm_t world;
  void *plain, *few, *many;
  place();
  device_open(rank);
  plain = stream_new(), few = green_stream(8), many = green_stream(120);
  x = device_alloc(LARGE * sizeof *x);
  NCCL(ncclCommInitRank(&world, nranks, id, rank));

  /* on one stream each */
  for (int i = 0; i < 3; i++) {
    NCCL(ncclCommSplit(world, 0, rank, &comm, NULL));
    void* s = i == 0 ? plain : i == 1 ? few : many;
    EXPECT(overlaps(s, SMALL) > 0);
    EXPECT((overlaps(s, LARGE) > 0) == (s != few)); /* such a launch has more blocks than the 8 processors have room for */
    NCCL(ncclCommDestroy(comm));
  }

  /* captured, before any other call */
  void *graph, *beside = green_stream(8);
  NCCL(ncclCommSplit(world, 0, rank, &comm, NULL));
  uint64_t before = overlapping();
  CUDA(cuStreamBeginCapture_v2, (void*, int), beside, 0);
  for (int i = 0; i < 2; i++) NCCL(ncclAllReduce(x, x, LARGE, ncclFloat32, ncclSum, comm, beside));
  CUDA(cuStreamEndCapture, (void*, void**), beside, &graph);
  EXPECT(overlapping() == before);
  CUDA(cuGraphDestroy, (void*), graph);
  NCCL(ncclCommDestroy(comm));

  /* and of one communicator */
  comm = world;
  for (int i = 0; i < 3; i++) {
    EXPECT(overlaps(plain, LARGE) > 0);
    EXPECT(overlaps(few, LARGE) == 0);
    EXPECT(overlaps(few, SMALL) > 0);
  }
  NCCL(ncclCommDestroy(comm));
  printf("rank %d ok\n", rank);
  return 0;
}
