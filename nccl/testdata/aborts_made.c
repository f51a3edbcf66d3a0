/* Abort of a communicator while another one is made of it, in each state that this has, on host memory. The library has rank 0 of three. Ranks 1
 * and 2 are threads that call libmscclpp themselves, so that they stop where rank 0 then waits. */
#include <dirent.h>
#include <dlfcn.h>
#include <sched.h>
#include <stdatomic.h>

#include "../../capi/mscclpp.h"
#include "../src/peers.h"
#include "aborts.h"

enum { RANKS = 3 };

/* Where ranks 1 and 2 stop. */
enum stop { BEFORE_AGREEMENT, BEFORE_SPLIT, AFTER_SPLIT, BEFORE_SHRINK, AFTER_SHRINK, STOPS };
static const char* const stops[] = {"init, others have met", "split, others are missing", "split, others have met", "shrink, others are missing", "shrink, others have met"};

static struct {
#define FUNCTIONS(F) F(version) F(last_error) F(comm_create) F(comm_join) F(comm_exchange) F(comm_split) F(comm_shrink) F(comm_abort)
#define F(name) __typeof__(mscclpp_##name)* name;
  FUNCTIONS(F)
#undef F
} lib;

static void open_library(void) {
  void* handle = dlopen("libmscclpp.so.1", RTLD_NOW | RTLD_LOCAL);
  EXPECT(handle != NULL);
#define F(name) EXPECT((*(void**)&lib.name = dlsym(handle, "mscclpp_" #name)) != NULL);
  FUNCTIONS(F)
#undef F
}

#define OK(call)                                                                      \
  do {                                                                                \
    if ((call) != MSCCLPP_SUCCESS) {                                                  \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, lib.last_error()); \
      exit(1);                                                                        \
    }                                                                                 \
  } while (0)

static enum stop stop;
static atomic_int arrived, released;

/* other is a rank that does as the library does, until it stops. */
static void* other(void* with) {
  static const char* const settings[] = {"check.overlap=false"};
  int32_t last[] = {RANKS - 1};
  struct peer mine = {0}, all[RANKS];
  mscclpp_unique_id_t same;
  mscclpp_comm_options_t o = MSCCLPP_COMM_OPTIONS_INIT;
  mscclpp_comm_t world = NULL, part = NULL;
  char version[640];
  snprintf(version, sizeof version, "%d (%.*s)", NCCL_VERSION_CODE, (int)strcspn(lib.version(), " "), lib.version());
  memcpy(same.bytes, id.internal, sizeof same.bytes);
  o.id = &same;
  o.rank = (int32_t)(long)with;
  o.ranks = RANKS;
  o.device = "host";
  o.settings = settings;
  o.settings_count = 1;
  o.version = version;
  OK(lib.comm_create(&o, &world));
  OK(lib.comm_join(world));
  if (stop != BEFORE_AGREEMENT) OK(lib.comm_exchange(world, &mine, sizeof mine, all));
  if (stop == AFTER_SPLIT) OK(lib.comm_split(world, 0, o.rank, &part));
  if (stop == AFTER_SHRINK && o.rank != RANKS - 1) {
    OK(lib.comm_shrink(world, last, 1, 0, &part));
    OK(lib.comm_join(part));
  }
  atomic_fetch_add(&arrived, 1);
  while (!atomic_load(&released)) sched_yield();
  if (part) OK(lib.comm_abort(part, "the test"));
  OK(lib.comm_abort(world, "the test"));
  return NULL;
}

static void until_arrived(void) {
  while (atomic_load(&arrived) < RANKS - 1) sched_yield();
}

static ncclComm_t volatile world;
static ncclConfig_t config;
static atomic_int inside;

static void* inits(void* unused) {
  (void)unused;
  return (void*)(long)ncclCommInitRankConfig((ncclComm_t*)&world, RANKS, id, 0, &config);
}

static ncclResult_t make(ncclComm_t* part) {
  int last[] = {RANKS - 1};
  if (stop >= BEFORE_SHRINK) return ncclCommShrink(world, last, 1, part, &config, NCCL_SHRINK_DEFAULT);
  return ncclCommSplit(world, 0, 0, part, &config);
}

static void* makes(void* with) {
  atomic_store(&inside, 1);
  return (void*)(long)make(with);
}

static int descriptors(void) {
  int n = 0;
  DIR* d = opendir("/proc/self/fd");
  while (readdir(d)) n++;
  closedir(d);
  return n;
}

/* How rank 0 ends it. */
enum end { ABORT, ABORT_BLOCKING, DESTROY, ENDS };

/* ended has the making end: soon, with an error that says why, and without a communicator. */
static void ended(enum end end) {
  int blocking = end == ABORT_BLOCKING;
  pthread_t ranks[RANKS], thread;
  ncclComm_t part = (ncclComm_t)&part;
  config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking;
  atomic_store(&arrived, 0);
  atomic_store(&released, 0);
  atomic_store(&inside, 0);
  world = NULL;
  NCCL(ncclGetUniqueId(&id));
  for (long r = 1; r < RANKS; r++) pthread_create(&ranks[r], NULL, other, (void*)r);
  pthread_create(&thread, NULL, inits, NULL);
  if (stop != BEFORE_AGREEMENT) {
    ncclResult_t state = result_of(thread);
    EXPECT(state == (blocking ? ncclSuccess : ncclInProgress));
    do NCCL(ncclCommGetAsyncError(world, &state));
    while (state == ncclInProgress);
    EXPECT(state == ncclSuccess);
    if (stop == BEFORE_SPLIT || stop == BEFORE_SHRINK) until_arrived();
    if (blocking)
      pthread_create(&thread, NULL, makes, &part);
    else
      EXPECT(make(&part) == ncclInProgress);
    while (blocking && !atomic_load(&inside)) sched_yield();
  }
  until_arrived();
  double begin = seconds();
  if (end == DESTROY)
    FAILS(ncclCommDestroy(world), ncclRemoteError, "has not ended within 0.2 s");
  else
    PROMPTLY(ncclCommAbort(world));
  if (blocking || stop == BEFORE_AGREEMENT) {
    ncclResult_t r = result_of(thread);
    /* the thread may have come to the call after the abort */
    if (!blocking)
      EXPECT(r == ncclInProgress);
    else if (r == ncclInvalidArgument)
      EXPECT(strstr(ncclGetLastError(NULL), "was destroyed"));
    else
      EXPECT(r == ncclInvalidUsage && strstr(ncclGetLastError(NULL), "ncclCommAbort"));
  }
  ncclResult_t state;
  while (ncclCommGetAsyncError(world, &state) == ncclSuccess) EXPECT(seconds() - begin < PROMPT); /* until the handle has ended */
  EXPECT(stop == BEFORE_AGREEMENT || part == NULL);
  if (getenv("TEST_TIMES")) printf("%s, end %d: %.3f s\n", stops[stop], (int)end, seconds() - begin);
  atomic_store(&released, 1);
  for (int r = 1; r < RANKS; r++) pthread_join(ranks[r], NULL);
}

int main(void) {
  int before = 0;
  open_library();
  for (int turn = 0; turn < 2; turn++) {
    for (enum end end = 0; end < ENDS; end++)
      for (stop = 0; stop < STOPS; stop++) ended(end);
    /* The second turn leaves no more than the first, some of whose last resources are being freed still. */
    double begin = seconds();
    while (turn && descriptors() > before && seconds() - begin < PROMPT) sched_yield();
    if (turn) EXPECT(descriptors() <= before);
    before = descriptors();
  }
  printf("ok\n");
  return 0;
}
