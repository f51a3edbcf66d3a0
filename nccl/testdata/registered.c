/* Two ranks on emulated GPUs that register memory, all at the same places. */
#include "device.h"

enum { MIB = 1 << 20, COUNT = MIB / 8 };
static ncclComm_t comm;
static void* stream;

/* sums checks an all-reduce from the first half of memory to its second. */
static void sums(ncclComm_t c, float* x, float more) {
  for (int i = 0; i < COUNT; i++) x[i] = (float)(rank + 1 + i % 7) + more;
  NCCL(ncclAllReduce(x, x + COUNT, COUNT, ncclFloat32, ncclSum, c, stream));
  stream_sync(stream);
  for (int i = 0; i < COUNT; i++) EXPECT(x[COUNT + i] == 3 + 2 * (float)(i % 7) + 2 * more);
}

int main(void) {
  float *a, *b;
  void *first, *second, *handle;
  ncclComm_t part;
  place();
  device_open(rank);
  stream = stream_new();
  NCCL(ncclCommInitRank(&comm, nranks, id, rank));
  NCCL(ncclMemAlloc((void**)&a, MIB));
  b = device_alloc(MIB); /* which cannot be mapped by a handle */

  NCCL(ncclCommRegister(comm, a, MIB, &first));
  sums(comm, a, 0);
  NCCL(ncclCommRegister(comm, a, MIB, &second)); /* the same once more */
  EXPECT(first == second);
  NCCL(ncclCommDeregister(comm, second));
  sums(comm, a, 1);
  NCCL(ncclCommRegister(comm, b, MIB, &handle));
  EXPECT(handle != NULL);
  sums(comm, b, 2);
  NCCL(ncclCommDeregister(comm, handle));
  NCCL(ncclCommDeregister(comm, first));
  sums(comm, a, 3);

  /* freed before it is deregistered, and other memory at the same place */
  NCCL(ncclCommRegister(comm, a, MIB, &first));
  sums(comm, a, 4);
  NCCL(ncclMemFree(a));
  NCCL(ncclMemAlloc((void**)&a, MIB));
  sums(comm, a, 5);
  NCCL(ncclCommDeregister(comm, first));
  FAILS(ncclCommDeregister(comm, first), ncclInvalidUsage, "is none of this communicator");

  /* a communicator that ends with registrations, in order and aborted */
  NCCL(ncclCommSplit(comm, 0, rank, &part, NULL));
  NCCL(ncclCommRegister(part, a, MIB, &handle));
  NCCL(ncclCommRegister(comm, a, MIB, &first));
  sums(part, a, 6);
  NCCL(ncclCommDestroy(part));
  sums(comm, a, 7);
  NCCL(ncclCommAbort(comm));
  NCCL(ncclMemFree(a));
  printf("rank %d ok\n", rank);
  return 0;
}
