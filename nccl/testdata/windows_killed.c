/* The last rank is killed when the others register a window, which ends for these, and says who it was. */
#include <signal.h>
#include <unistd.h>

#include "windows.h"

int main(void) {
  ncclComm_t comm;
  ncclWindow_t w;
  char name[32];
  place();
  device_open(rank);
  NCCL(ncclCommInitRank(&comm, nranks, id, rank));
  char* own = memory_new(MIB);
  EXPECT(window_new(comm, own, MIB) != NULL);
  /* When this has ended here, all have their window: what a rank that is killed has sent last may be lost. */
  void* stream = stream_new();
  NCCL(ncclAllReduce(own, own, 1, ncclFloat32, ncclSum, comm, stream));
  stream_sync(stream);
  if (rank == nranks - 1) kill(getpid(), SIGKILL);
  snprintf(name, sizeof name, "rank %d", nranks - 1);
  FAILS(ncclCommWindowRegister(comm, own, MIB, &w, 0), ncclRemoteError, name);
  EXPECT(w == NULL);
  NCCL(ncclCommAbort(comm));
  NCCL(ncclMemFree(own));
  printf("rank %d ok\n", rank);
  return 0;
}
