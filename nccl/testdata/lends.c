/* Five communicators of two ranks on emulated GPUs, of ids of their own: those that make no large calls lend their memory for copies. */
#include "device.h"

enum { COMMS = 5, N = 4 << 20, MIB = 1 << 20, PIECES = 32 }; /* PIECES: MiB that one has for its copies, at least */

static size_t held(void) {
  size_t left, all;
  CUDA(cuMemGetInfo_v2, (size_t*, size_t*), &left, &all);
  return (all - left) / MIB;
}

int main(void) {
  ncclComm_t comms[COMMS];
  float value = 1;
  place();
  device_open(rank);
  void* stream = stream_new();
  float* data = device_alloc(N * sizeof *data);
  char* ids = device_alloc(sizeof id);
  NCCL(ncclCommInitRank(&comms[0], nranks, id, rank));
  for (int k = 1; k < COMMS; k++) {
    if (rank == 0) {
      NCCL(ncclGetUniqueId(&id));
      memcpy(ids, &id, sizeof id);
    }
    NCCL(ncclBroadcast(ids, ids, sizeof id, ncclInt8, 0, comms[0], stream));
    stream_sync(stream);
    memcpy(&id, ids, sizeof id);
    NCCL(ncclCommInitRank(&comms[k], nranks, id, rank));
  }
  data[0] = data[N - 1] = value;
  for (int k = 0; k < COMMS; k++) NCCL(ncclAllReduce(data, data, 1000, ncclFloat32, ncclSum, comms[k], stream)); /* what first calls load */
  stream_sync(stream);
  memset(data, 0, N * sizeof *data);
  data[0] = data[N - 1] = value;
  size_t before = held();
  for (int turn = 0; turn < 4; turn++) {
    for (int k = 0; k < COMMS; k++, value *= 2) {
      NCCL(ncclAllReduce(data, data, N, ncclFloat32, ncclSum, comms[k], stream));
      if (turn % 2 == 0) stream_sync(stream);
    }
    if (turn > 1) continue; /* by then communicators whose calls alternate have memory of their own */
    stream_sync(stream);
    size_t more = held() - before;
    if (more < PIECES || more > PIECES + 24) {
      fprintf(stderr, "rank %d: turn %d: %zu MiB are held for copies, expected about %d\n", rank, turn, more, PIECES);
      return 1;
    }
  }
  stream_sync(stream);
  EXPECT(data[0] == value && data[N - 1] == value);
  for (int k = 0; k < COMMS; k++) NCCL(ncclCommDestroy(comms[k]));
  printf("rank %d ok\n", rank);
  return 0;
}
