/* One rank of two communicators on an emulated GPU: NCCL_LAUNCH_ORDER_IMPLICIT, or else a configuration, has a call of one wait for that
 * of the other on another stream, which else it does not know of. TEST_CONFIG is the field of a configuration of headers of TEST_VERSION. */
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

static int number(const char* variable, int otherwise) {
  const char* text = getenv(variable);
  return text ? atoi(text) : otherwise;
}

/* of_newer makes a communicator with a configuration that is longer than that of these headers, and of the first one another, which
 * takes over what that has. */
static void of_newer(int field, int version) {
  struct {
    ncclConfig_t known;
    int newer[10]; /* launchOrderImplicit is the fifth */
  } with = {.known = NCCL_CONFIG_INITIALIZER};
  ncclUniqueId own;
  with.known.size = sizeof with;
  with.known.version = (unsigned)version;
  for (int i = 0; i < 10; i++) with.newer[i] = NCCL_CONFIG_UNDEF_INT;
  NCCL(ncclGetUniqueId(&own));
  with.newer[4] = 2;
  if (version >= 23100) FAILS(ncclCommInitRankConfig(&comms[0], 1, own, 0, &with.known), ncclInvalidArgument, "launchOrderImplicit attribute value 2");
  with.newer[4] = field;
  NCCL(ncclGetUniqueId(&own));
  NCCL(ncclCommInitRankConfig(&comms[0], 1, own, 0, &with.known));
  NCCL(ncclCommSplit(comms[0], 0, 0, &comms[1], NULL));
}

int main(void) {
  int config = number("TEST_CONFIG", 0), version = number("TEST_VERSION", 23100);
  int ordered = number("NCCL_LAUNCH_ORDER_IMPLICIT", config && version >= 23100);
  device_open(0);
  word = device_alloc(8);
  from = device_alloc(sizeof(float) * N);
  middle = device_alloc(sizeof(float) * N);
  to = device_alloc(sizeof(float) * N);
  for (int i = 0; i < 2; i++) {
    ncclUniqueId own;
    streams[i] = stream_new();
    if (config) continue;
    NCCL(ncclGetUniqueId(&own));
    NCCL(ncclCommInitRank(&comms[i], 1, own, 0));
  }
  if (config) of_newer(config, version);
  for (int grouped = 0; grouped < 2; grouped++)
    for (int first = 0; first < 2; first++) behind(first, grouped, ordered);
  for (int i = 0; i < 2; i++) NCCL(ncclCommDestroy(comms[i]));
  printf("ok\n");
  return 0;
}
