/* A rank that does what lines of its input say, and prints a line when it has. */
#include <unistd.h>

#include "client.h"

int main(void) {
  char line[64];
  int in = 1, out = 0;
  ncclComm_t comm = NULL, part = NULL;
  place();
  setvbuf(stdout, NULL, _IOLBF, 0);
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = 0;
    if (strcmp(line, "init") == 0) {
      NCCL(ncclCommInitRank(&comm, nranks, id, rank));
    } else if (strcmp(line, "sum") == 0) {
      NCCL(ncclAllReduce(&in, &out, 1, ncclInt32, ncclSum, comm, NULL));
      EXPECT(out == nranks);
    } else if (strcmp(line, "sums") == 0) {
      for (int i = 0; i < 300; i++) {
        NCCL(ncclAllReduce(&in, &out, 1, ncclInt32, ncclSum, comm, NULL));
        EXPECT(out == nranks);
      }
    } else if (strcmp(line, "broadcasts") == 0) { /* in a group */
      NCCL(ncclGroupStart());
      NCCL(ncclBroadcast(&in, &out, 1, ncclInt32, 0, comm, NULL));
      NCCL(ncclBroadcast(&in, &out, 1, ncclInt32, 0, comm, NULL));
      NCCL(ncclGroupEnd());
    } else if (strcmp(line, "split") == 0) { /* the last rank is in none */
      NCCL(ncclCommSplit(comm, rank == nranks - 1 ? NCCL_SPLIT_NOCOLOR : 0, rank, &part, NULL));
    } else if (strcmp(line, "finalize") == 0) {
      NCCL(ncclCommFinalize(comm));
    } else if (strcmp(line, "destroy") == 0) {
      NCCL(ncclCommDestroy(part));
      NCCL(ncclCommDestroy(comm));
      part = comm = NULL;
    } else {
      EXPECT(!"a known command");
    }
    printf("did %s\n", line);
  }
  return 0;
}
