/* One rank sends to itself from a buffer into half of which it receives, and prints how that went. */
#include "client.h"

int main(void) {
  ncclComm_t comm;
  int x[3] = {1, 2, 3};
  place();
  NCCL(ncclCommInitRank(&comm, nranks, id, rank));
  NCCL(ncclGroupStart());
  NCCL(ncclSend(x, 2, ncclInt32, rank, comm, NULL));
  NCCL(ncclRecv(x + 1, 2, ncclInt32, rank, comm, NULL));
  ncclResult_t r = ncclGroupEnd();
  printf("%d %s\n", (int)r, ncclGetLastError(NULL));
  NCCL(ncclCommDestroy(comm));
  return 0;
}
