/* Two ranks whose calls a profiler or a tool of NVTX hears of; with TEST_GPUS on emulated GPUs. */
#include <time.h>

#include "device.h"

enum { N = 64 };

int main(void) {
  void *stream = NULL, *graph, *exec;
  ncclComm_t comm, part;
  static float host[2][2 * N];
  float *in = host[0], *out = host[1];
  int gpus = getenv("TEST_GPUS") != NULL;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  place();
  if (gpus) {
    device_open(rank);
    stream = stream_new();
    in = device_alloc(sizeof host[0]);
    out = device_alloc(sizeof host[1]);
  }
  config.commName = "world";
  NCCL(ncclCommInitRankConfig(&comm, nranks, id, rank, &config));
  config.commName = "part";
  NCCL(ncclCommSplit(comm, 0, rank, &part, &config));

  NCCL(ncclAllReduce(in, out, N, ncclFloat32, ncclSum, comm, stream)); /* alone */
  NCCL(ncclAllReduce(in, out, 0, ncclFloat32, ncclSum, comm, stream)); /* nothing */
  NCCL(ncclGroupStart()); /* of two communicators */
  NCCL(ncclBroadcast(in, out, N, ncclFloat32, 1, comm, stream));
  NCCL(ncclGroupStart());
  NCCL(ncclSend(in, N, ncclFloat32, 1 - rank, comm, stream));
  NCCL(ncclRecv(out, N, ncclFloat32, 1 - rank, comm, stream));
  NCCL(ncclGroupEnd());
  NCCL(ncclAllReduce(in, out, N, ncclFloat32, ncclMax, part, stream));
  NCCL(ncclAllReduce(in, out, N, ncclFloat32, ncclSum, comm, stream));
  NCCL(ncclGroupEnd());
  NCCL(ncclGroupStart()); /* that fails */
  NCCL(ncclAllReduce(in, out, N, ncclFloat32, ncclSum, comm, stream));
  FAILS(ncclBroadcast(in, out, N, ncclFloat32, 9, comm, stream), ncclInvalidArgument, "invalid root 9");
  EXPECT(ncclGroupEnd() == ncclInvalidArgument);
  if (gpus) {
    stream_sync(stream);
    CUDA(cuStreamBeginCapture_v2, (void*, int), stream, 0);
    NCCL(ncclAllReduce(in, out, N, ncclFloat32, ncclSum, comm, stream));
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* whoever looks at devices does so now, and spoils no capture */
    CUDA(cuStreamEndCapture, (void*, void**), stream, &graph);
    CUDA(cuGraphInstantiateWithFlags, (void**, void*, unsigned long long), &exec, graph, 0);
    for (int i = 0; i < 3; i++) CUDA(cuGraphLaunch, (void*, void*), exec, stream);
    stream_sync(stream);
    CUDA(cuGraphExecDestroy, (void*), exec);
    CUDA(cuGraphDestroy, (void*), graph);
  }
  NCCL(ncclCommDestroy(part));
  NCCL(ncclAllReduce(in, out, N, ncclFloat32, ncclSum, comm, stream)); /* under way, or not, when its communicator ends */
  NCCL(ncclCommDestroy(comm));
  return 0;
}
