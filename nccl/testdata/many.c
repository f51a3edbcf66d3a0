/* Several ranks of one process, groups over their communicators, and many communicators in turn. */
#include <pthread.h>

#include "client.h"

enum { RANKS = 4, N = 1000 };
static ncclComm_t comms[RANKS];

int main(void) {
  NCCL(ncclCommInitAll(comms, RANKS, NULL));
  static int in[RANKS][N], out[RANKS][N];
  for (int r = 0; r < RANKS; r++)
    for (int i = 0; i < N; i++) in[r][i] = r + i;
  /* one thread, all ranks: only a group can do that */
  NCCL(ncclGroupStart());
  for (int r = 0; r < RANKS; r++) {
    NCCL(ncclAllReduce(in[r], out[r], N, ncclInt32, ncclSum, comms[r], NULL));
    NCCL(ncclAllReduce(in[r], out[r], N, ncclInt32, ncclMax, comms[r], NULL));
  }
  NCCL(ncclGroupEnd());
  for (int r = 0; r < RANKS; r++)
    for (int i = 0; i < N; i++) EXPECT(out[r][i] == RANKS - 1 + i);
  /* messages between them, also to oneself */
  NCCL(ncclGroupStart());
  for (int r = 0; r < RANKS; r++)
    for (int p = 0; p < RANKS; p++) {
      NCCL(ncclSend(&in[r][p], 1, ncclInt32, p, comms[r], NULL));
      NCCL(ncclRecv(&out[r][p], 1, ncclInt32, p, comms[r], NULL));
    }
  NCCL(ncclGroupEnd());
  for (int r = 0; r < RANKS; r++)
    for (int p = 0; p < RANKS; p++) EXPECT(out[r][p] == in[p][r]);
  for (int r = 0; r < RANKS; r++) NCCL(ncclCommDestroy(comms[r]));

  for (int i = 0; i < 200; i++) { /* one rank each: what is left of each would add up */
    ncclComm_t c;
    int x = i, y = -1;
    NCCL(ncclGetUniqueId(&id));
    NCCL(ncclCommInitRank(&c, 1, id, 0));
    NCCL(ncclAllReduce(&x, &y, 1, ncclInt32, ncclSum, c, NULL));
    EXPECT(y == i);
    NCCL(ncclCommDestroy(c));
  }
  printf("ok\n");
  return 0;
}
