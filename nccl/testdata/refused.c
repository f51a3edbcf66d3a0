/* A communicator that is made, or not: prints how it went. DIFFERENT=NAME=VALUE sets a variable in rank 1 alone. */
#include "client.h"

int main(void) {
  char* different = getenv("DIFFERENT");
  ncclComm_t comm = NULL;
  int version;
  float x = 1;
  place();
  if (different && rank == 1) putenv(different);
  ncclResult_t r = ncclCommInitRank(&comm, nranks, id, rank);
  if (r == ncclSuccess) r = ncclAllReduce(&x, &x, 1, ncclFloat32, ncclSum, comm, NULL);
  NCCL(ncclGetVersion(&version));
  printf("%d %g %s\n", (int)r, (double)x, ncclGetLastError(NULL));
  if (comm) NCCL(ncclCommDestroy(comm));
  return 0;
}
