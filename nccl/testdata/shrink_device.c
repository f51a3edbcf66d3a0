/* Kernels of a communicator spin, as a rank is dead, when it is shrunk; three emulated GPUs, of which 0 is killed. */
#include <signal.h>

#include "device.h"

enum { N = 1000 };

int main(void) {
  place();
  ncclComm_t comm, part;
  device_open(rank);
  void *stream = stream_new(), *other = stream_new();
  float *x = device_alloc(N * sizeof *x), *y = device_alloc(N * sizeof *y);
  NCCL(ncclCommInitRank(&comm, 3, id, rank));
  for (int i = 0; i < N; i++) x[i] = (float)(rank + 1);
  NCCL(ncclAllReduce(x, x, N, ncclFloat32, ncclSum, comm, stream));
  stream_sync(stream);
  EXPECT(x[0] == 6 && x[N - 1] == 6);
  /* A death ends what others are in: when this has ended for rank 0, all are through with what comes before. */
  ncclResult_t r = ncclAllReduce(y, y, N, ncclFloat32, ncclSum, comm, stream);
  EXPECT(r == ncclSuccess || (rank != 0 && r == ncclRemoteError));
  stream_sync(stream);
  if (rank == 0) raise(SIGKILL);
  /* What is queued cannot end. The other one may have shrunk already: then nothing is queued. */
  r = ncclAllReduce(x, x, N, ncclFloat32, ncclSum, comm, stream);
  EXPECT(r == ncclSuccess || r == ncclRemoteError);
  int dead[] = {0};
  NCCL(ncclCommShrink(comm, dead, 1, &part, NULL, NCCL_SHRINK_ABORT));
  CUDA(cuStreamSynchronize, (void*), stream); /* it drains */
  for (int i = 0; i < N; i++) y[i] = (float)rank;
  NCCL(ncclAllReduce(y, y, N, ncclFloat32, ncclSum, part, other));
  stream_sync(other);
  EXPECT(y[0] == 3 && y[N - 1] == 3);
  NCCL(ncclCommAbort(comm));
  NCCL(ncclAllReduce(y, y, N, ncclFloat32, ncclSum, part, other));
  stream_sync(other);
  EXPECT(y[0] == 6 && y[N - 1] == 6);
  NCCL(ncclCommDestroy(part));
  printf("rank %d ok\n", rank);
  return 0;
}
