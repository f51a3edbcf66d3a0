/* A profiler plugin that writes a line for all that it hears. VERSION is its version; FAILS has its init fail for rank 1, and IDLE has it take no part there. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../nccl.h"

#ifndef VERSION
#define VERSION 5
#endif
#define JOINED(a, b) a##b
#define PLUGIN(version) JOINED(ncclProfiler_v, version)

typedef struct {
#if VERSION == 4
  uint8_t type;
#else
  uint64_t type;
#endif
  void* parentObj;
  int rank;
  union {
    struct { bool graphCaptured; int groupDepth; } groupApi;
    struct { const char* func; size_t count; const char* datatype; int root; void* stream; bool graphCaptured; } collApi;
    struct { const char* func; size_t count; const char* datatype; void* stream; bool graphCaptured; } p2pApi;
    struct { void* stream; } kernelLaunch;
    struct { uint64_t seqNumber; const char* func; const void* sendBuff; void* recvBuff; size_t count; int root; const char* datatype; uint8_t nChannels, nWarps; const char *algo, *proto; void* parentGroup; } coll;
    struct { const char* func; void* buff; const char* datatype; size_t count; int peer; uint8_t nChannels; void* parentGroup; } p2p;
    struct { uint8_t channelId; uint64_t pTimer; } kernelCh;
  };
} descriptor;

typedef union {
  struct { uint64_t pTimer; } kernelCh;
} arguments;

/* What the plugin makes of a communicator and of an event: numbers, so that lines can be compared. They stay: an event's
 * parent may have ended before it. */
struct thing {
  uintptr_t number, context;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uintptr_t things;
static FILE* out;

static struct thing* thing(uintptr_t context) {
  struct thing* t = malloc(sizeof *t);
  t->number = ++things;
  t->context = context ? context : t->number;
  return t;
}

static uintptr_t number(void* of) { return of ? ((struct thing*)of)->number : 0; }

/* A forked child has no communicator, and no event. */
static void in_its_process(void) {
  static pid_t owner;
  if (owner == 0) owner = getpid();
  if (owner != getpid()) abort();
}

#define WRITE(...)          \
  do {                      \
    in_its_process();       \
    fprintf(out, __VA_ARGS__); \
    fflush(out);            \
  } while (0)

#if VERSION == 4
static ncclResult_t init(void** context, int* mask, const char* name, uint64_t id, int nodes, int nranks, int rank, void (*log)(int, unsigned long, const char*, int, const char*, ...)) {
#else
static ncclResult_t init(void** context, uint64_t id, int* mask, const char* name, int nodes, int nranks, int rank, void (*log)(int, unsigned long, const char*, int, const char*, ...)) {
#endif
#ifdef FAILS
  if (rank == 1) return ncclSystemError;
#endif
#ifdef IDLE
  if (rank == 1) return ncclSuccess; /* without a context: there is nothing to finalize */
#endif
  pthread_mutex_lock(&lock);
  if (out == NULL) out = fopen(getenv("TEST_EVENTS"), "w");
  struct thing* t = thing(0);
  *context = t;
  *mask = getenv("TEST_MASK") ? atoi(getenv("TEST_MASK")) : 0xfff;
  WRITE("init %zu name=%s id=%llx nodes=%d nranks=%d rank=%d\n", t->number, name ? name : "-", (unsigned long long)id, nodes, nranks, rank);
  pthread_mutex_unlock(&lock);
  log(3, 0x4000, "profiler.c", 77, "the plugin of rank %d begins", rank);
  log(2, 0x4000, "profiler.c", 78, "the plugin warns");
  return ncclSuccess;
}

static ncclResult_t start(void* context, void** event, descriptor* d) {
  pthread_mutex_lock(&lock);
  struct thing* t = thing(number(context));
  *event = t;
  WRITE("start %zu kind=%d context=%zu parent=%zu rank=%d", t->number, (int)d->type, number(context), number(d->parentObj), d->rank);
  switch ((int)d->type) {
    case 1: break;
    case 2:
      WRITE(" seq=%llu func=%s send=%d recv=%d count=%zu root=%d type=%s channels=%d algo=%s proto=%s group=%zu", (unsigned long long)d->coll.seqNumber, d->coll.func, d->coll.sendBuff != NULL, d->coll.recvBuff != NULL, d->coll.count, d->coll.root, d->coll.datatype, d->coll.nChannels, d->coll.algo, d->coll.proto, VERSION == 4 ? 0 : number(d->coll.parentGroup));
      break;
    case 4: WRITE(" func=%s buff=%d count=%zu type=%s peer=%d channels=%d group=%zu", d->p2p.func, d->p2p.buff != NULL, d->p2p.count, d->p2p.datatype, d->p2p.peer, d->p2p.nChannels, VERSION == 4 ? 0 : number(d->p2p.parentGroup)); break;
    case 64: WRITE(" channel=%d time=%llu", d->kernelCh.channelId, (unsigned long long)d->kernelCh.pTimer); break;
    case 256: WRITE(" depth=%d captured=%d", d->groupApi.groupDepth, d->groupApi.graphCaptured); break;
    case 512: WRITE(" func=%s count=%zu type=%s root=%d stream=%d captured=%d", d->collApi.func, d->collApi.count, d->collApi.datatype, d->collApi.root, d->collApi.stream != NULL, d->collApi.graphCaptured); break;
    case 1024: WRITE(" func=%s count=%zu type=%s stream=%d captured=%d", d->p2pApi.func, d->p2pApi.count, d->p2pApi.datatype, d->p2pApi.stream != NULL, d->p2pApi.graphCaptured); break;
    case 2048: WRITE(" stream=%d", d->kernelLaunch.stream != NULL); break;
    default: WRITE(" unknown");
  }
  WRITE("\n");
  pthread_mutex_unlock(&lock);
  return ncclSuccess;
}

static ncclResult_t stop(void* event) {
  pthread_mutex_lock(&lock);
  WRITE("stop %zu\n", number(event));
  pthread_mutex_unlock(&lock);
  return ncclSuccess;
}

static ncclResult_t state(void* event, int to, arguments* with) {
  pthread_mutex_lock(&lock);
  WRITE("state %zu %d time=%llu\n", number(event), to, (unsigned long long)(with && to == 22 ? with->kernelCh.pTimer : 0));
  pthread_mutex_unlock(&lock);
  return ncclSuccess;
}

static ncclResult_t finalize(void* context) {
  pthread_mutex_lock(&lock);
  WRITE("finalize %zu\n", number(context));
  pthread_mutex_unlock(&lock);
  return ncclSuccess;
}

const struct {
  const char* name;
  __typeof__(init)* init;
  __typeof__(start)* start;
  __typeof__(stop)* stop;
  __typeof__(state)* state;
  __typeof__(finalize)* finalize;
} PLUGIN(VERSION) = {"recorder", init, start, stop, state, finalize};
