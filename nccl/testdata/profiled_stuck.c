/* Two ranks on emulated GPUs with a profiler, and a driver that does not return from the question how far two events are apart: only the
 * profiler's own thread is stuck in it. */
#include <sched.h>

#include "aborts.h"
#include "device.h"

enum { N = 64 };

static float *in, *out;
static void* stream;

static void sum(ncclComm_t c) { NCCL(ncclAllReduce(in, out, N, ncclFloat32, ncclSum, c, stream)); }

/* written counts lines of the plugin's file. */
static int written(const char* word) {
  char line[512];
  int n = 0;
  FILE* f = fopen(getenv("TEST_EVENTS"), "r");
  while (f && fgets(line, sizeof line, f)) n += strncmp(line, word, strlen(word)) == 0;
  if (f) fclose(f);
  return n;
}

int main(void) {
  void (*stuck_hold)(int);
  void (*stuck_wait)(void);
  ncclComm_t comm, parts[3];
  place();
  device_open(rank);
  EXPECT((*(void**)&stuck_hold = dlsym(driver, "stuck_hold")) && (*(void**)&stuck_wait = dlsym(driver, "stuck_wait")));
  stream = stream_new();
  in = device_alloc(N * sizeof *in);
  out = device_alloc(N * sizeof *out);
  NCCL(ncclCommInitRank(&comm, nranks, id, rank));
  for (int i = 0; i < 3; i++) NCCL(ncclCommSplit(comm, 0, rank, &parts[i], NULL));
  sum(comm);
  stream_sync(stream);

  stuck_hold(1);
  sum(parts[0]);
  stream_sync(stream);
  stuck_wait();
  double begin = seconds();
  for (int i = 0; i < 3; i++) { /* calls, alone and in a group */
    sum(parts[i]);
    NCCL(ncclGroupStart());
    sum(parts[i]);
    sum(comm);
    NCCL(ncclGroupEnd());
  }
  stream_sync(stream);
  EXPECT(seconds() - begin < PROMPT);
  PROMPTLY(ncclCommFinalize(parts[0]));
  PROMPTLY(ncclCommDestroy(parts[0]));
  PROMPTLY(ncclCommDestroy(parts[1]));
  sum(comm); /* both ranks are through before one aborts */
  stream_sync(stream);
  PROMPTLY(ncclCommAbort(parts[2]));
  EXPECT(written("finalize") == 0);

  stuck_hold(0); /* what had to wait for it comes now */
  sum(comm);
  stream_sync(stream);
  NCCL(ncclCommDestroy(comm));
  while (written("finalize") < 4) EXPECT(seconds() - begin < 4 * PROMPT);
  return 0;
}
