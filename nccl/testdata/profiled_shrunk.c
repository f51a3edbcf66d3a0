/* Three ranks, the last one on a host of its own, whose communicators a profiler hears of: several that come of one by shrinking. */
#include "client.h"

/* without makes a communicator without a rank, and ends it. */
static void without(ncclComm_t comm, int excluded, const char* name) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t part;
  int out = 0, in = 1;
  if (rank == excluded) return;
  config.commName = name;
  NCCL(ncclCommShrink(comm, &excluded, 1, &part, &config, NCCL_SHRINK_DEFAULT));
  NCCL(ncclAllReduce(&in, &out, 1, ncclInt32, ncclSum, part, NULL));
  EXPECT(out == 2);
  NCCL(ncclCommDestroy(part));
}

int main(void) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm, part;
  place();
  setenv("MSCCLPP_BOOTSTRAP__HOST_ID", rank == 2 ? "there" : "here", 1);
  config.commName = "world";
  NCCL(ncclCommInitRankConfig(&comm, nranks, id, rank, &config));
  without(comm, 1, "first");
  without(comm, 2, "second");
  without(comm, 1, "third");
  config.commName = "part";
  NCCL(ncclCommSplit(comm, rank == 2 ? NCCL_SPLIT_NOCOLOR : 0, rank, &part, &config));
  NCCL(ncclCommDestroy(part));
  NCCL(ncclCommDestroy(comm));
  return 0;
}
