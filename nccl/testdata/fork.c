/* Forked children; two ranks on host memory, of which 1 is killed at the end. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "aborts.h"

static ncclComm_t comm;

static int sum(void) {
  int out = -1;
  NCCL(ncclAllReduce(&rank, &out, 1, ncclInt32, ncclSum, comm, NULL));
  return out;
}

#define REFUSED(call) FAILS(call, ncclInvalidUsage, "this process was forked from one that has communicators")

/* in_child calls everything: nothing hangs, nothing is undone that the parent has. */
static void in_child(void* memory, void* handle) {
  ncclComm_t c = comm;
  ncclUniqueId one;
  ncclResult_t state;
  ncclRedOp_t op;
  ncclWindow_t window;
  void* p;
  int n, others[] = {1 - rank};
  REFUSED(ncclGetUniqueId(&one));
  REFUSED(ncclCommInitRank(&c, 1, id, 0));
  REFUSED(ncclCommInitRankConfig(&c, 1, id, 0, NULL));
  REFUSED(ncclCommInitRankScalable(&c, 1, 0, 1, &id, NULL));
  REFUSED(ncclCommInitAll(&c, 1, NULL));
  REFUSED(ncclCommSplit(comm, 0, 0, &c, NULL));
  REFUSED(ncclCommShrink(comm, others, 1, &c, NULL, 0));
  REFUSED(ncclCommRevoke(comm, 0));
  REFUSED(ncclCommCount(comm, &n));
  REFUSED(ncclCommUserRank(comm, &n));
  REFUSED(ncclCommCuDevice(comm, &n));
  REFUSED(ncclCommGetAsyncError(comm, &state));
  REFUSED(ncclCommRegister(comm, memory, 8, &p));
  REFUSED(ncclCommWindowRegister(comm, memory, 8, &window, 0));
  REFUSED(ncclMemAlloc(&p, 8));
  REFUSED(ncclRedOpCreatePreMulSum(&op, &n, ncclInt32, ncclScalarHostImmediate, comm));
  REFUSED(ncclRedOpDestroy((ncclRedOp_t)9, comm));
  REFUSED(ncclAllReduce(&n, &n, 1, ncclInt32, ncclSum, comm, NULL));
  REFUSED(ncclBroadcast(&n, &n, 1, ncclInt32, 0, comm, NULL));
  REFUSED(ncclSend(&n, 1, ncclInt32, 0, comm, NULL));
  NCCL(ncclGroupStart());
  REFUSED(ncclRecv(&n, 1, ncclInt32, 0, comm, NULL));
  EXPECT(ncclGroupEnd() == ncclInvalidUsage);
  NCCL(ncclGetVersion(&n));
  EXPECT(n == 22809 && strcmp(ncclGetErrorString(ncclInProgress), "NCCL operation in progress") == 0);
  NCCL(ncclCommDeregister(comm, handle));
  NCCL(ncclCommFinalize(comm));
  NCCL(ncclCommAbort(comm));
  NCCL(ncclCommDestroy(comm));
  NCCL(ncclMemFree(memory));
}

static pid_t child(void) {
  pid_t p = fork();
  EXPECT(p >= 0);
  return p;
}

int main(void) {
  place();
  void *memory, *handle;
  int status;
  pid_t early = child(); /* before the first communicator: it may do everything */
  if (early == 0) {
    ncclUniqueId one;
    NCCL(ncclGetUniqueId(&one));
    NCCL(ncclCommInitRank(&comm, 1, one, 0));
    NCCL(ncclCommDestroy(comm));
    _exit(0);
  }
  EXPECT(waitpid(early, &status, 0) == early && status == 0);

  NCCL(ncclCommInitRank(&comm, 2, id, rank));
  NCCL(ncclMemAlloc(&memory, 64));
  NCCL(ncclCommRegister(comm, memory, 64, &handle));
  pid_t late = child();
  if (late == 0) {
    in_child(memory, handle);
    exit(0); /* which is no farewell of its parent */
  }
  EXPECT(waitpid(late, &status, 0) == late && status == 0);
  EXPECT(sum() == 1); /* the parent has lost nothing */
  NCCL(ncclCommDeregister(comm, handle));

  /* A rank is dead while its child lives. */
  int other = 0;
  if (rank == 1) {
    other = child();
    if (other == 0) {
      close(0);
      close(1);
      close(2);
      alarm(2 * PROMPT);
      for (;;) pause();
    }
  }
  NCCL(ncclAllReduce(&other, &other, 1, ncclInt32, ncclSum, comm, NULL));
  until_through(comm, 1);
  if (rank == 1) raise(SIGKILL);
  ncclResult_t state = ncclSuccess;
  double begin = seconds();
  while (state == ncclSuccess && seconds() - begin < PROMPT) {
    int x = 0; /* a call that needs the other one */
    state = ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, NULL);
  }
  double took = seconds() - begin;
  EXPECT(state == ncclRemoteError);
  EXPECT(kill(other, 0) == 0); /* the child lives */
  kill(other, SIGKILL);
  NCCL(ncclCommAbort(comm));
  printf("rank %d ok: a dead rank was noticed after %.3f s\n", rank, took);
  return 0;
}
