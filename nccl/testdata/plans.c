/* Sums of two sizes, which a configured plan may perform in its own way: PLAN_FROM to PLAN_TO bytes are the rank's own numbers then. */
#include <stdint.h>

#include "client.h"

enum { MOST = 4096 };

static int32_t in[MOST], out[MOST];

int main(void) {
  ncclComm_t comm;
  int launch, i;
  size_t n, from = strtoul(getenv("PLAN_FROM"), NULL, 10), to = strtoul(getenv("PLAN_TO"), NULL, 10);
  place();
  NCCL(ncclCommInitRank(&comm, nranks, id, rank));
  for (launch = 0; launch < 3; launch++) { /* later calls are like the first */
    for (n = 4; n <= MOST; n *= 4) {
      int own = n * sizeof in[0] >= from && n * sizeof in[0] <= to;
      for (i = 0; i < (int)n; i++) in[i] = (rank + 1) * (launch + i);
      NCCL(ncclAllReduce(in, out, n, ncclInt32, ncclSum, comm, NULL));
      for (i = 0; i < (int)n; i++) EXPECT(out[i] == (own ? in[i] : 3 * (launch + i)));
    }
  }
  NCCL(ncclCommDestroy(comm));
  return 0;
}
