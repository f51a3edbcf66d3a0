/* Joins, and prints the code and the last error. With TEST_OWN_ID each rank asks for an id itself. */
#include "client.h"

int main(void) {
  ncclComm_t comm;
  place();
  if (getenv("TEST_OWN_ID")) NCCL(ncclGetUniqueId(&id));
  ncclResult_t r = ncclCommInitRank(&comm, nranks, id, rank);
  int sum = 1;
  if (r == ncclSuccess) {
    NCCL(ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, comm, NULL));
    EXPECT(sum == nranks);
    NCCL(ncclCommDestroy(comm));
  }
  printf("%d %s\n", (int)r, ncclGetLastError(NULL));
  return 0;
}
