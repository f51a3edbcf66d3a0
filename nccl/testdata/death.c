/* Ranks that exit and have not destroyed their communicators, as most programs do, and one that goes on. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"

int main(int argc, char** argv) {
  place();
  ncclComm_t comm, other;
  int mine = (int)getpid(), pids[64];
  NCCL(ncclCommInitRank(&comm, nranks, id, rank));
  if (rank == 0) { /* the exit of a child is not this rank's */
    pid_t child = fork();
    if (child == 0) exit(0);
    int status;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
  }
  NCCL(ncclCommSplit(comm, 0, rank, &other, NULL));
  NCCL(ncclAllGather(&mine, pids, 1, ncclInt32, comm, NULL));
  NCCL(ncclAllReduce(&mine, &mine, 1, ncclInt32, ncclSum, other, NULL));
  if (argc > 1) until_through(other, 1);
  printf("rank %d ok\n", rank);
  fflush(stdout);
  if (rank < nranks - 1) {
    if (argc > 1 && rank == 1) {
      if (strcmp(argv[1], "killed") == 0) kill(getpid(), SIGKILL);
      exit(atoi(argv[1]));
    }
    return 0;
  }
  for (int r = 0; r < nranks - 1; r++)
    while (kill(pids[r], 0) == 0 || errno != ESRCH) sched_yield();

  ncclResult_t state;
  if (argc > 1) { /* a death is everybody's, and at once */
    do NCCL(ncclCommGetAsyncError(comm, &state));
    while (state == ncclSuccess);
    EXPECT(state == ncclRemoteError && strstr(ncclGetLastError(NULL), "rank 1"));
    FAILS(ncclAllReduce(&mine, &mine, 1, ncclInt32, ncclSum, comm, NULL), ncclRemoteError, "cannot be used any more");
    NCCL(ncclCommDestroy(other));
    NCCL(ncclCommDestroy(comm));
    return 0;
  }

  /* A call that needs the others fails, and says why; another communicator is as it was. */
  FAILS(ncclAllReduce(&mine, &mine, 1, ncclInt32, ncclSum, other, NULL), ncclRemoteError, "left the job");
  NCCL(ncclCommGetAsyncError(comm, &state));
  EXPECT(state == ncclSuccess);
  NCCL(ncclCommGetAsyncError(other, &state));
  EXPECT(state == ncclRemoteError);
  NCCL(ncclCommDestroy(other));
  NCCL(ncclCommDestroy(comm));
  return 0;
}
