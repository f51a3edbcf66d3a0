/* A library with some of NCCL's functions, for tests of the fallback: it computes over a file that its ranks map, waits until
 * a stream is done before it does, and counts its calls. Without LATER it is of an older version. */
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../nccl.h"

enum { RANKS = 4, BYTES = 1 << 20, CALLS = 64, ALIVE = 0x7374616e };

struct shared {
  atomic_int here, turn, ended;
  atomic_int full[RANKS][RANKS];
  char slot[RANKS][BYTES], mail[RANKS][RANKS][4096];
};

struct ncclComm {
  int alive, rank, ranks, premul;
  float scalar;
  struct shared* shared;
};

struct call {
  char kind; /* of the functions below, or 's' and 'r' */
  const void* send;
  void* recv;
  size_t bytes, count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int peer;
  ncclComm_t comm;
  cudaStream_t stream;
};

static _Thread_local struct call queue[CALLS];
static _Thread_local int queued, depth;
static _Thread_local char text[128];
static atomic_int failing; /* what GetAsyncError says */
static void (*hook)(cudaStream_t);
static struct {
  char name[32];
  atomic_int n;
} counts[32];

static ncclResult_t wrong(ncclResult_t r, const char* why) {
  snprintf(text, sizeof text, "%s", why);
  return r;
}

static void counted(const char* name) {
  for (int i = 0; i < 32; i++) {
    if (counts[i].name[0] == 0) snprintf(counts[i].name, sizeof counts[i].name, "%s", name);
    if (strcmp(counts[i].name, name) == 0) {
      atomic_fetch_add(&counts[i].n, 1);
      return;
    }
  }
}

/* For the tests. */
int standin_count(const char* name) {
  for (int i = 0; i < 32; i++)
    if (strcmp(counts[i].name, name) == 0) return atomic_load(&counts[i].n);
  return 0;
}
void standin_fails(int result) { atomic_store(&failing, result); }
void standin_hook(void (*f)(cudaStream_t)) { hook = f; }

/* ---- memory of GPUs ---- */

static void* cuda(const char* name) {
  static void* lib;
  if (lib == NULL) lib = dlopen(getenv("MSCCLPP_CUDA_LIBRARY"), RTLD_NOW);
  return dlsym(lib, name);
}
static int on_gpu(void) { return getenv("MSCCLPP_CUDA_LIBRARY") != NULL; }

static void take(void* to, const void* from, size_t n) {
  if (on_gpu())
    ((int (*)(void*, uintptr_t, size_t))cuda("cuMemcpyDtoH_v2"))(to, (uintptr_t)from, n);
  else
    memcpy(to, from, n);
}
static void give(void* to, const void* from, size_t n) {
  if (on_gpu())
    ((int (*)(uintptr_t, const void*, size_t))cuda("cuMemcpyHtoD_v2"))((uintptr_t)to, from, n);
  else
    memcpy(to, from, n);
}

/* ---- meeting ---- */

static int meet(ncclComm_t c) {
  struct shared* s = c->shared;
  int turn = atomic_load(&s->turn);
  if (atomic_fetch_add(&s->here, 1) + 1 == c->ranks) {
    atomic_store(&s->here, 0);
    atomic_fetch_add(&s->turn, 1);
  }
  for (time_t end = time(NULL) + 240; atomic_load(&s->turn) == turn && !atomic_load(&s->ended) && time(NULL) < end;) sched_yield();
  return atomic_load(&s->turn) != turn && !atomic_load(&s->ended);
}

static void add(void* to, const void* from, size_t count, ncclDataType_t type, float factor) {
  for (size_t i = 0; i < count; i++)
    if (type == ncclFloat32)
      ((float*)to)[i] += factor * ((const float*)from)[i];
    else
      ((int32_t*)to)[i] += ((const int32_t*)from)[i];
}

static ncclResult_t perform(const struct call* c) {
  ncclComm_t m = c->comm;
  struct shared* s = m->shared;
  static _Thread_local char sum[BYTES];
  if (hook) hook(c->stream);
  if (on_gpu()) ((int (*)(cudaStream_t))cuda("cuStreamSynchronize"))(c->stream);
  if (c->kind == 's') {
    while (atomic_load(&s->full[m->rank][c->peer]) && !atomic_load(&s->ended)) sched_yield();
    take(s->mail[m->rank][c->peer], c->send, c->bytes);
    atomic_store(&s->full[m->rank][c->peer], 1);
    return ncclSuccess;
  }
  if (c->kind == 'r') {
    while (!atomic_load(&s->full[c->peer][m->rank]) && !atomic_load(&s->ended)) sched_yield();
    give(c->recv, s->mail[c->peer][m->rank], c->bytes);
    atomic_store(&s->full[c->peer][m->rank], 0);
    return ncclSuccess;
  }
  float own = m->premul && (int)c->op == 77 ? m->scalar : 1;
  memcpy(&s->slot[m->rank][BYTES - sizeof own], &own, sizeof own);
  if (c->kind == 'a' || m->rank == c->peer) take(s->slot[m->rank], c->send, c->bytes);
  if (!meet(m)) return wrong(ncclRemoteError, "the stand-in was aborted");
  if (c->kind == 'a') {
    memset(sum, 0, c->bytes);
    for (int r = 0; r < m->ranks; r++) {
      float factor;
      memcpy(&factor, &s->slot[r][BYTES - sizeof factor], sizeof factor);
      add(sum, s->slot[r], c->count, c->type, factor);
    }
    give(c->recv, sum, c->bytes);
  } else {
    give(c->recv, s->slot[c->peer], c->bytes);
  }
  return meet(m) ? ncclSuccess : wrong(ncclRemoteError, "the stand-in was aborted");
}

static ncclResult_t enqueue(const char* name, struct call c, size_t count) {
  counted(name);
  if (c.comm == NULL || c.comm->alive != ALIVE) return wrong(ncclInvalidArgument, "not a communicator of the stand-in");
  if (count == 666) return wrong(ncclSystemError, "the wire is cut");
  c.count = count;
  c.bytes = 4 * count;
  if (depth == 0) return perform(&c);
  queue[queued++] = c;
  return ncclSuccess;
}

/* ---- what NCCL has ---- */

ncclResult_t ncclGetVersion(int* v) {
  *v = VERSION;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t r) { return r == ncclSystemError ? "unhandled system error" : "error"; }
const char* ncclGetLastError(ncclComm_t c) {
  (void)c;
  return text;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  counted("GetUniqueId");
  memset(id, 0, sizeof *id);
  snprintf(id->internal, sizeof id->internal, "%s/standin-XXXXXX", getenv("STANDIN_DIR"));
  int fd = mkstemp(id->internal);
  if (fd < 0 || ftruncate(fd, sizeof(struct shared)) != 0) return wrong(ncclSystemError, "cannot make a file");
  close(fd);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRank(ncclComm_t* out, int ranks, ncclUniqueId id, int rank) {
  counted("CommInitRank");
  if (getenv("STANDIN_DIES")) raise(SIGKILL);
  ncclComm_t c = calloc(1, sizeof *c);
  int fd = open(id.internal, O_RDWR);
  if (c == NULL || fd < 0 || ranks > RANKS) return wrong(ncclSystemError, "cannot open the file");
  *c = (struct ncclComm){.alive = ALIVE, .rank = rank, .ranks = ranks};
  c->shared = mmap(NULL, sizeof *c->shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  *out = c;
  return meet(c) ? ncclSuccess : wrong(ncclRemoteError, "the stand-in was aborted");
}
ncclResult_t ncclCommCount(const ncclComm_t c, int* n) {
  if (c->alive != ALIVE) return wrong(ncclInvalidArgument, "not a communicator of the stand-in");
  *n = c->ranks;
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t c) {
  int n = 0;
  counted("CommDestroy");
  /* A call of an own function by its name, which another library of that name must not get. */
  if (ncclCommCount(c, &n) != ncclSuccess || n != c->ranks) return wrong(ncclInternalError, "the stand-in has called another library");
  c->alive = 0;
  munmap(c->shared, sizeof *c->shared);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t c) {
  counted("CommAbort");
  atomic_store(&c->shared->ended, 1);
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t* e) {
  counted("CommGetAsyncError");
  *e = (ncclResult_t)atomic_load(&failing);
  if (*e != ncclSuccess) wrong(*e, "a cable was pulled");
  return c->alive == ALIVE ? ncclSuccess : ncclInvalidArgument;
}
ncclResult_t ncclGroupStart(void) {
  counted("GroupStart");
  depth++;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd(void) {
  ncclResult_t r = ncclSuccess;
  if (--depth > 0) return ncclSuccess;
  for (int receives = 0; receives < 2; receives++) /* messages to each other: what is sent first */
    for (int i = 0; i < queued; i++)
      if ((queue[i].kind == 'r') == receives && r == ncclSuccess) r = perform(&queue[i]);
  queued = 0;
  return r;
}
ncclResult_t ncclAllReduce(const void* send, void* recv, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c, cudaStream_t s) {
  return enqueue("AllReduce", (struct call){'a', send, recv, 0, 0, t, op, 0, c, s}, n);
}
ncclResult_t ncclBroadcast(const void* send, void* recv, size_t n, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t s) {
  return enqueue("Broadcast", (struct call){'b', send, recv, 0, 0, t, ncclSum, root, c, s}, n);
}
ncclResult_t ncclSend(const void* send, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s) {
  return enqueue("Send", (struct call){'s', send, NULL, 0, 0, t, ncclSum, peer, c, s}, n);
}
ncclResult_t ncclRecv(void* recv, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s) {
  return enqueue("Recv", (struct call){'r', NULL, recv, 0, 0, t, ncclSum, peer, c, s}, n);
}
#ifdef LATER
ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config->magic != 0xcafebeef || config->blocking != NCCL_CONFIG_UNDEF_INT) return wrong(ncclInvalidArgument, "a strange configuration");
  return ncclCommInitRank(out, ranks, id, rank);
}
ncclResult_t ncclCommFinalize(ncclComm_t c) {
  counted("CommFinalize");
  return meet(c) ? ncclSuccess : ncclRemoteError;
}
ncclResult_t ncclCommRegister(const ncclComm_t c, void* buff, size_t size, void** handle) {
  counted("CommRegister");
  *handle = buff;
  return c->alive == ALIVE && size > 0 ? ncclSuccess : ncclInvalidArgument;
}
ncclResult_t ncclCommDeregister(const ncclComm_t c, void* handle) {
  counted("CommDeregister");
  return c->alive == ALIVE && handle ? ncclSuccess : ncclInvalidArgument;
}
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t t, ncclScalarResidence_t where, ncclComm_t c) {
  counted("RedOpCreatePreMulSum");
  if (t != ncclFloat32 || where != ncclScalarHostImmediate) return wrong(ncclInvalidArgument, "a strange scalar");
  memcpy(&c->scalar, scalar, sizeof c->scalar);
  c->premul = 1;
  *op = (ncclRedOp_t)77;
  return ncclSuccess;
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t c) {
  counted("RedOpDestroy");
  return (int)op == 77 && c->premul ? ncclSuccess : ncclInvalidArgument;
}
#endif
