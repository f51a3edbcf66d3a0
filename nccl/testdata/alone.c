/* What one process can see alone, line by line: configurations of all versions, handles, memory, texts, threads. */
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>

#include "client.h"

/* ---- texts ---- */

static void texts(void) {
  static const char* const of[] = {
      "no error",
      "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
      "unhandled system error (run with NCCL_DEBUG=INFO for details)",
      "internal error - please report this issue to the NCCL developers",
      "invalid argument (run with NCCL_DEBUG=WARN for details)",
      "invalid usage (run with NCCL_DEBUG=WARN for details)",
      "remote process exited or there was a network error",
      "NCCL operation in progress",
      "timeout",
      "unknown result code",
  };
  EXPECT(ncclGetLastError(NULL)[0] == 0); /* nothing has failed */
  for (int i = 0; i < 10; i++) EXPECT(strcmp(ncclGetErrorString((ncclResult_t)i), of[i]) == 0);
  EXPECT(strcmp(ncclGetErrorString((ncclResult_t)-1), of[9]) == 0);
  FAILS(ncclGetVersion(NULL), ncclInvalidArgument, "version argument is NULL");
  const char* kept = ncclGetLastError((ncclComm_t)&kept); /* the argument is not looked at */
  for (int i = 0; i < 100; i++) FAILS(ncclGroupEnd(), ncclInvalidUsage, "not in a group");
  EXPECT(kept[0] != 0 && strlen(kept) < 1024); /* it stays readable */
}

/* ---- configurations ---- */

static void end(ncclComm_t c) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    NCCL(ncclCommGetAsyncError(c, &state));
    sched_yield();
  }
  EXPECT(state == ncclSuccess);
  NCCL(ncclCommDestroy(c));
}

/* A configuration as the headers of a version lay it out, in memory that ends where it does. */
struct header {
  const char* what;
  unsigned version;
  size_t size;
};

static const struct header headers[] = {
    {"2.14", 21400, 24}, {"2.17", 21700, 40}, {"2.18", 21800, 48},         {"2.26", 22600, 48},
    {"2.27", 22700, 72}, {"2.28", 22809, 80}, {"vLLM, as 2.28", 22809, 80}, {"2.29", 22900, 88},
    {"2.30", 23000, 96}, {"2.30.7", 23007, 96}, {"SGLang, as 2.28", 22809, 96}, {"one to come", 24000, 256},
};

static char* config_of(size_t size, unsigned version) {
  static const int undefined[] = {16, 20, 24, 28, 40, 44, 56, 60, 64, 68, 72, 76, 80, 84, 88, 92};
  char* c = calloc(1, size);
  unsigned magic = 0xcafebeef;
  int none = INT_MIN;
  EXPECT(c != NULL);
  memcpy(c, &size, sizeof size);
  memcpy(c + 8, &magic, 4);
  memcpy(c + 12, &version, 4);
  for (size_t i = 0; i < sizeof undefined / sizeof *undefined; i++)
    if ((size_t)undefined[i] + 4 <= size) memcpy(c + undefined[i], &none, 4);
  return c;
}

static ncclResult_t init_with(char* config, ncclComm_t* out) {
  ncclUniqueId one;
  NCCL(ncclGetUniqueId(&one));
  ncclResult_t r = ncclCommInitRankConfig(out, 1, one, 0, (ncclConfig_t*)config);
  free(config);
  return r;
}

static void sizes(void) {
  for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
    const struct header* h = &headers[i];
    ncclComm_t c;
    char* config = config_of(h->size, h->version);
    if (h->what[0] == 'S') memset(config + 92, 0, 4); /* of a field that it does not know */
    static const char* const net = "Socket";
    if (h->what[0] == 'v') memcpy(config + 32, &net, sizeof net);
    memset(config + 16, 0, 4); /* not blocking */
    ncclResult_t r = init_with(config, &c);
    if (r != ncclSuccess && r != ncclInProgress) fprintf(stderr, "configuration of %s\n", h->what);
    EXPECT(r == ncclSuccess || r == ncclInProgress);
    end(c);
  }
}

/* A field that is newer than the caller's version is not looked at. */
static void fields(void) {
  static const struct {
    int at, wrong;
    unsigned since;
    const char* name;
  } of[] = {
      {16, 2, 21400, "blocking"},   {20, -1, 21700, "cgaClusterSize"}, {24, 0, 21700, "minCTAs"},
      {28, 0, 21700, "maxCTAs"},    {40, 2, 21800, "splitShare"},      {56, 5, 22700, "collnetEnable"},
      {60, 4, 22700, "CTAPolicy"},  {64, -1, 22700, "shrinkShare"},    {68, 0, 22700, "nvlsCTAs"},
      {72, 0, 22800, "nChannelsPerNetPeer"}, {76, 2, 22800, "nvlinkCentricSched"},
  };
  for (size_t i = 0; i < sizeof of / sizeof *of; i++)
    for (unsigned older = 0; older < 2; older++) {
      char* config = config_of(96, of[i].since - older);
      memcpy(config + of[i].at, &of[i].wrong, 4);
      ncclComm_t c = (ncclComm_t)&c;
      if (older) {
        NCCL(init_with(config, &c));
        NCCL(ncclCommDestroy(c));
      } else {
        FAILS(init_with(config, &c), ncclInvalidArgument, of[i].name);
        EXPECT(c == NULL);
      }
    }
  int both[] = {8, 4};
  char* config = config_of(80, 22809);
  memcpy(config + 24, both, sizeof both);
  ncclComm_t c;
  FAILS(init_with(config, &c), ncclInvalidArgument, "min/max CTAs 8/4");
  config = config_of(80, 22809);
  config[8] ^= 1;
  FAILS(init_with(config, &c), ncclInvalidArgument, "not initialized via NCCL_CONFIG_INITIALIZER");
  config = config_of(80, 22809);
  memset(config, 0, 8);
  FAILS(init_with(config, &c), ncclInvalidArgument, "of 0 bytes");
}

/* ---- handles ---- */

static void every_function(ncclComm_t c, const char* part) {
  ncclResult_t state;
  ncclRedOp_t op;
  ncclComm_t out = c;
  ncclWindow_t window;
  void* handle;
  int n, two[2] = {0, 0};
  FAILS(ncclCommCount(c, &n), ncclInvalidArgument, part);
  FAILS(ncclCommUserRank(c, &n), ncclInvalidArgument, part);
  FAILS(ncclCommCuDevice(c, &n), ncclInvalidArgument, part);
  FAILS(ncclCommGetAsyncError(c, &state), ncclInvalidArgument, part);
  FAILS(ncclCommSplit(c, 0, 0, &out, NULL), ncclInvalidArgument, part);
  EXPECT(out == NULL);
  FAILS(ncclCommShrink(c, two, 1, &out, NULL, 0), ncclInvalidArgument, part);
  FAILS(ncclCommRevoke(c, 0), ncclInvalidArgument, part);
  FAILS(ncclCommRegister(c, two, 8, &handle), ncclInvalidArgument, part);
  FAILS(ncclCommDeregister(c, two), ncclInvalidArgument, part);
  FAILS(ncclCommWindowRegister(c, two, 8, &window, 0), ncclInvalidArgument, part);
  FAILS(ncclCommWindowDeregister(c, (ncclWindow_t)two), ncclInvalidArgument, part);
  FAILS(ncclRedOpCreatePreMulSum(&op, two, ncclInt32, ncclScalarHostImmediate, c), ncclInvalidArgument, part);
  FAILS(ncclRedOpDestroy((ncclRedOp_t)9, c), ncclInvalidArgument, part);
  FAILS(ncclAllReduce(two, two, 1, ncclInt32, ncclSum, c, NULL), ncclInvalidArgument, part);
  FAILS(ncclReduce(two, two, 1, ncclInt32, ncclSum, 0, c, NULL), ncclInvalidArgument, part);
  FAILS(ncclReduceScatter(two, two, 1, ncclInt32, ncclSum, c, NULL), ncclInvalidArgument, part);
  FAILS(ncclAllGather(two, two, 1, ncclInt32, c, NULL), ncclInvalidArgument, part);
  FAILS(ncclBroadcast(two, two, 1, ncclInt32, 0, c, NULL), ncclInvalidArgument, part);
  FAILS(ncclBcast(two, 1, ncclInt32, 0, c, NULL), ncclInvalidArgument, part);
  FAILS(ncclAlltoAll(two, two, 1, ncclInt32, c, NULL), ncclInvalidArgument, part);
  FAILS(ncclGather(two, two, 1, ncclInt32, 0, c, NULL), ncclInvalidArgument, part);
  FAILS(ncclScatter(two, two, 1, ncclInt32, 0, c, NULL), ncclInvalidArgument, part);
  FAILS(ncclSend(two, 1, ncclInt32, 0, c, NULL), ncclInvalidArgument, part);
  FAILS(ncclRecv(two, 1, ncclInt32, 0, c, NULL), ncclInvalidArgument, part);
  if (c == NULL) { /* nothing to end is a success */
    NCCL(ncclCommFinalize(c));
    NCCL(ncclCommDestroy(c));
    NCCL(ncclCommAbort(c));
    return;
  }
  FAILS(ncclCommFinalize(c), ncclInvalidArgument, part);
  FAILS(ncclCommDestroy(c), ncclInvalidArgument, part);
  FAILS(ncclCommAbort(c), ncclInvalidArgument, part);
}

static void handles(void) {
  static char garbage[4096];
  ncclComm_t dead;
  memset(garbage, 0xa5, sizeof garbage);
  every_function(NULL, "comm argument is NULL");
  every_function((ncclComm_t)garbage, "corrupted comm object detected");
  every_function((ncclComm_t)8, "corrupted comm object detected"); /* where there is no memory */
  NCCL(init_with(config_of(80, 22809), &dead));
  ncclComm_t inside = (ncclComm_t)((char*)dead + 8);
  every_function(inside, "corrupted comm object detected");
  NCCL(ncclCommDestroy(dead));
  every_function(dead, "was destroyed");
}

static void null_results(ncclComm_t c) {
  FAILS(ncclCommCount(c, NULL), ncclInvalidArgument, "count argument is NULL");
  FAILS(ncclCommUserRank(c, NULL), ncclInvalidArgument, "rank argument is NULL");
  FAILS(ncclCommCuDevice(c, NULL), ncclInvalidArgument, "device argument is NULL");
  FAILS(ncclCommGetAsyncError(c, NULL), ncclInvalidArgument, "asyncError argument is NULL");
}

/* ---- memory ---- */

static void memory(ncclComm_t c, ncclComm_t other) {
  void *p, *h[3], *foreign = malloc(64);
  char garbage[64];
  FAILS(ncclMemAlloc(&p, SIZE_MAX), ncclSystemError, "out of memory");
  FAILS(ncclMemAlloc(&p, SIZE_MAX - 4095), ncclSystemError, "out of memory");
  EXPECT(p == NULL);
  NCCL(ncclMemAlloc(&p, 0));
  EXPECT(p == NULL);
  NCCL(ncclMemFree(NULL));
  FAILS(ncclMemFree(foreign), ncclInvalidArgument, "expected memory that ncclMemAlloc has given"); /* on the host */
  free(foreign);
  NCCL(ncclMemAlloc(&p, 10000));
  float* middle = (float*)((char*)p + 5000);
  middle[0] = 4;
  NCCL(ncclAllReduce(middle, middle + 1, 1, ncclFloat32, ncclSum, c, NULL));
  EXPECT(middle[1] == 4);

  NCCL(ncclCommRegister(c, p, 10000, &h[0]));
  NCCL(ncclCommRegister(c, p, 10000, &h[1])); /* counted */
  NCCL(ncclCommRegister(other, p, 10000, &h[2]));
  EXPECT(h[0] != NULL && h[2] != NULL);
  FAILS(ncclCommDeregister(other, h[0]), ncclInvalidUsage, "none of this communicator");
  NCCL(ncclCommDeregister(c, h[0]));
  NCCL(ncclCommDeregister(c, h[1]));
  FAILS(ncclCommDeregister(c, h[1]), ncclInvalidUsage, "none of this communicator");
  FAILS(ncclCommDeregister(c, garbage), ncclInvalidUsage, "none of this communicator");
  FAILS(ncclCommDeregister(c, (void*)8), ncclInvalidUsage, "none of this communicator"); /* where there is no memory */
  NCCL(ncclCommDeregister(other, h[2]));
  NCCL(ncclCommDeregister(c, NULL));
  FAILS(ncclCommRegister(c, p, 0, &h[0]), ncclInvalidArgument, "size argument is 0");
  FAILS(ncclCommRegister(c, NULL, 8, &h[0]), ncclInvalidArgument, "buff argument is NULL");
  NCCL(ncclCommRegister(c, p, 77, &h[0])); /* which ends with the communicator */

  ncclWindow_t window = (ncclWindow_t)p;
  NCCL(ncclGroupStart());
  NCCL(ncclCommWindowRegister(c, p, 4096, &window, NCCL_WIN_COLL_SYMMETRIC));
  NCCL(ncclGroupEnd());
  EXPECT(window == NULL); /* "not supported" */
  FAILS(ncclCommWindowRegister(c, NULL, 4096, &window, 0), ncclInvalidArgument, "expected a buffer and a size");
  FAILS(ncclCommWindowRegister(c, p, 0, &window, 0), ncclInvalidArgument, "expected a buffer and a size");
  FAILS(ncclCommWindowRegister(c, p, 8, NULL, 0), ncclInvalidArgument, "win argument is NULL");
  NCCL(ncclCommWindowDeregister(c, NULL));
  FAILS(ncclCommWindowDeregister(c, (ncclWindow_t)p), ncclInvalidUsage, "none of this communicator");
  NCCL(ncclMemFree(p));
}

/* ---- threads ---- */

enum { RANKS = 4, CALLS = 50 };
static ncclComm_t comms[RANKS];

static void* calls_of(void* with) {
  ncclComm_t c = *(ncclComm_t*)with;
  int me, out;
  NCCL(ncclCommUserRank(c, &me));
  for (int i = 0; i < CALLS; i++) {
    int x = me + i;
    NCCL(ncclAllReduce(&x, &out, 1, ncclInt32, ncclSum, c, NULL));
    EXPECT(out == 6 + RANKS * i);
  }
  return NULL;
}

/* Threads of several ranks call at the same time; then other threads do. */
static void threads(void) {
  pthread_t thread[RANKS];
  int twice[] = {0, 0}, none;
  FAILS(ncclCommInitAll(comms, 2, twice), ncclInvalidUsage, "duplicate device 0");
  NCCL(ncclCommInitAll(comms, 0, &none));
  NCCL(ncclCommInitAll(comms, RANKS, NULL));
  for (int turn = 0; turn < 2; turn++) {
    for (int i = 0; i < RANKS; i++) EXPECT(pthread_create(&thread[i], NULL, calls_of, &comms[i]) == 0);
    for (int i = 0; i < RANKS; i++) pthread_join(thread[i], NULL);
  }
  for (int i = 0; i < RANKS; i++) NCCL(ncclCommDestroy(comms[i]));
}

int main(void) {
  ncclComm_t one, two;
  texts();
  sizes();
  fields();
  handles();
  NCCL(init_with(config_of(80, 22809), &one));
  NCCL(init_with(config_of(80, 22809), &two));
  null_results(one);
  memory(one, two);
  NCCL(ncclCommDestroy(two));
  NCCL(ncclCommDestroy(one));
  threads();
  printf("ok\n");
  return 0;
}
