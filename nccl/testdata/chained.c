/* One rank of two communicators on an emulated GPU: NCCL_LAUNCH_ORDER_IMPLICIT has a call of one wait for that of the other on
 * another stream, which else it does not know of. */
#include "device.h"

enum { N = 1000, BUSY = 600 /* CUDA_ERROR_NOT_READY */ };

static ncclComm_t comms[2];
static void* streams[2];
static uint64_t* word;
static float *from, *middle, *to;

static void fill(float* p, float value) {
  for (int i = 0; i < N; i++) p[i] = value;
}

/* behind queues a call of one communicator, held, and one of the other that reads its result. */
static void behind(int first, int grouped, int ordered) {
  int second = 1 - first;
  fill(from, 2);
  fill(middle, 1);
  hold(streams[first], word);
  NCCL(ncclAllReduce(from, middle, N, ncclFloat32, ncclSum, comms[first], streams[first]));
  if (grouped) NCCL(ncclGroupStart());
  NCCL(ncclAllReduce(middle, to, N, ncclFloat32, ncclSum, comms[second], streams[second]));
  if (grouped) NCCL(ncclGroupEnd());
  if (!ordered) stream_sync(streams[second]);
  int waits = DRIVER(cuStreamQuery, (void*), streams[second]) == BUSY;
  release(word);
  for (int i = 0; i < 2; i++) stream_sync(streams[i]);
  EXPECT(waits == ordered);
  for (int i = 0; i < N; i++) EXPECT(to[i] == (ordered ? 2 : 1));
}

int main(void) {
  const char* set = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  int ordered = set && strcmp(set, "1") == 0;
  device_open(0);
  word = device_alloc(8);
  from = device_alloc(sizeof(float) * N);
  middle = device_alloc(sizeof(float) * N);
  to = device_alloc(sizeof(float) * N);
  for (int i = 0; i < 2; i++) {
    ncclUniqueId own;
    NCCL(ncclGetUniqueId(&own));
    NCCL(ncclCommInitRank(&comms[i], 1, own, 0));
    streams[i] = stream_new();
  }
  for (int grouped = 0; grouped < 2; grouped++)
    for (int first = 0; first < 2; first++) behind(first, grouped, ordered);
  for (int i = 0; i < 2; i++) NCCL(ncclCommDestroy(comms[i]));
  printf("ok\n");
  return 0;
}
