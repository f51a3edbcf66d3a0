#define _GNU_SOURCE
#include "fallback.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda.h"
#include "group.h"
#include "log.h"
#include "other.h"

void fallback_describe(char* text, size_t size) {
  const struct other* o = other_open();
  size_t n = strlen(text);
  char names[160];
  if (o == NULL || n >= size) return;
  other_names(o->kinds, names, sizeof names);
  if (o->wrong[0])
    snprintf(text + n, size - n, ", no fallback: %s", o->wrong);
  else
    snprintf(text + n, size - n, ", %s by NCCL %d", names, o->version);
}

/* why is the other library's text for a result of this thread. */
static const char* why(const struct other* o, ncclResult_t r) {
  const char* text = o->GetLastError ? o->GetLastError(NULL) : NULL;
  return text && *text ? text : o->GetErrorString(r);
}

/* forward returns a result of the other library, whose text becomes that of this one. */
static ncclResult_t forward_text(const struct other* o, ncclResult_t r, const char* function, const char* text) {
  if (r == ncclSuccess) return r;
  return fail((int)r < ncclInProgress ? r : ncclSystemError, "NCCL %d: %s: %s", o->version, function, text);
}

static ncclResult_t forward(const struct other* o, ncclResult_t r, const char* function) {
  return r == ncclSuccess ? r : forward_text(o, r, function, why(o, r));
}

/* ---- its life ---- */

/* A rank's part of the meeting: rank 0 has made an id, or says why not. */
struct offer {
  int result;
  ncclUniqueId id;
};

/* A shadow that is made by a thread of its own: the other library waits for all ranks, and cannot be told that one has died. */
struct making {
  ncclComm_t made;
  ncclUniqueId id;
  ncclConfig_t config;
  char name[NAME_MAX_BYTES], net[NAME_MAX_BYTES];
  int device, rank, ranks;
  ncclResult_t entered, result; /* of this library, and of the other one */
  char why[512];                /* its text: the thread does not say it itself, as the caller may have left */
  int ended, left; /* the thread has ended; the caller waits no more */
  pthread_mutex_t lock;
  pthread_cond_t changed;
};

static void making_free(struct making* m) {
  pthread_mutex_destroy(&m->lock);
  pthread_cond_destroy(&m->changed);
  free(m);
}

static void* make_there(void* with) {
  struct making* m = with;
  const struct other* o = other_open();
  name_thread("NCCL Init");
  m->entered = cuda_enter(m->device);
  ncclResult_t r = ncclSuccess;
  if (m->entered == ncclSuccess) {
    r = o->CommInitRankConfig ? o->CommInitRankConfig(&m->made, m->ranks, m->id, m->rank, &m->config) : o->CommInitRank(&m->made, m->ranks, m->id, m->rank);
    if (r != ncclSuccess) snprintf(m->why, sizeof m->why, "%s", why(o, r));
    cuda_leave(m->device);
  }
  pthread_mutex_lock(&m->lock);
  m->result = r;
  m->ended = 1;
  int alone = m->left;
  pthread_cond_signal(&m->changed);
  pthread_mutex_unlock(&m->lock);
  if (!alone) return NULL;
  if (m->entered == ncclSuccess && r == ncclSuccess) (void)o->CommAbort(m->made);
  making_free(m);
  return NULL;
}

/* await_made waits for the thread, unless a rank dies or the communicator is aborted: then *left is 1, and the thread frees m. */
static ncclResult_t await_made(ncclComm_t c, struct making* m, int* left) {
  enum { LOOK_NS = 20000000 };
  const struct door* d = door_opened();
  ncclResult_t r = ncclSuccess;
  pthread_mutex_lock(&m->lock);
  while (!m->ended && r == ncclSuccess) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LOOK_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (pthread_cond_timedwait(&m->changed, &m->lock, &until) == 0) continue;
    if (comm_aborted(c))
      r = ncclInvalidUsage; /* comm_meet has the text */
    else if ((r = d->failed(atomic_load(&c->inner))) != ncclSuccess)
      fail(r, "the fallback's communicator is not made: %s", d->error());
  }
  if (m->ended) r = m->entered == ncclSuccess ? forward_text(other_open(), m->result, "ncclCommInitRank", m->why) : m->entered;
  *left = m->left = !m->ended;
  pthread_mutex_unlock(&m->lock);
  return r;
}

static ncclResult_t make(const struct other* o, ncclComm_t c, const ncclUniqueId* id) {
  pthread_t thread;
  struct making* m = calloc(1, sizeof *m);
  if (m == NULL) return fail(ncclSystemError, "out of memory");
  *m = (struct making){.id = *id, .config = NCCL_CONFIG_INITIALIZER, .device = c->device, .rank = c->rank, .ranks = c->nranks};
  pthread_mutex_init(&m->lock, NULL);
  pthread_cond_init(&m->changed, NULL);
  memcpy(m->name, c->name, sizeof m->name);
  memcpy(m->net, c->net, sizeof m->net);
  if (c->config.maxCTAs > 0) m->config.maxCTAs = c->config.maxCTAs;
  if (m->net[0]) m->config.netName = m->net;
  if (m->name[0]) m->config.commName = m->name;
  if (start_thread(&thread, 1, make_there, m) != 0) {
    making_free(m);
    return fail(ncclSystemError, "cannot start a thread for the fallback");
  }
  int left;
  ncclResult_t r = await_made(c, m, &left);
  if (left) return r;
  ncclComm_t made = m->made;
  making_free(m);
  if (r == ncclSuccess && (r = cuda_event_new(&c->mark, c->device)) != ncclSuccess) (void)o->CommAbort(made);
  if (r != ncclSuccess) return r;
  atomic_store(&c->shadow, made);
  if (comm_aborted(c)) fallback_abort(c); /* an abort that came meanwhile found none */
  return ncclSuccess;
}

ncclResult_t fallback_join(ncclComm_t c) {
  const struct other* o = other_open();
  const struct door* d = door_opened();
  if (o == NULL) return ncclSuccess;
  if (o->wrong[0]) return fail(ncclInvalidUsage, "%s", o->wrong); /* on all ranks, or they would not have met */
  struct offer mine = {0}, *all = calloc((size_t)c->nranks, sizeof *all);
  if (all == NULL) return fail(ncclSystemError, "out of memory");
  if (c->rank == 0) mine.result = forward(o, o->GetUniqueId(&mine.id), "ncclGetUniqueId");
  ncclResult_t r = d->exchange(atomic_load(&c->inner), &mine, sizeof mine, all);
  if (r != ncclSuccess)
    fail(r, "%s", d->error());
  else if (all[0].result != ncclSuccess)
    r = c->rank ? fail((ncclResult_t)all[0].result, "NCCL %d: rank 0 has made no id: %s", o->version, o->GetErrorString((ncclResult_t)all[0].result)) : (ncclResult_t)mine.result;
  else
    r = make(o, c, &all[0].id);
  free(all);
  return r;
}

ncclResult_t fallback_failed(ncclComm_t c) {
  ncclComm_t shadow = atomic_load(&c->shadow);
  ncclResult_t state = ncclSuccess;
  if (shadow == NULL) return ncclSuccess;
  const struct other* o = other_open();
  ncclResult_t r = forward(o, o->CommGetAsyncError(shadow, &state), "ncclCommGetAsyncError");
  if (r != ncclSuccess) return r;
  return state == ncclInProgress ? ncclSuccess : forward(o, state, "asynchronous error");
}

ncclResult_t fallback_register(ncclComm_t c, void* buff, size_t size, void** handle) {
  ncclComm_t shadow = atomic_load(&c->shadow);
  *handle = NULL;
  if (shadow == NULL) return ncclSuccess;
  const struct other* o = other_open();
  return o->CommRegister ? forward(o, o->CommRegister(shadow, buff, size, handle), "ncclCommRegister") : ncclSuccess;
}

void fallback_deregister(ncclComm_t c, void* handle) {
  ncclComm_t shadow = atomic_load(&c->shadow);
  const struct other* o = other_open();
  if (shadow && handle && o->CommDeregister) (void)o->CommDeregister(shadow, handle);
}

ncclResult_t fallback_finalize(ncclComm_t c) {
  ncclComm_t shadow = atomic_load(&c->shadow);
  if (shadow == NULL) return ncclSuccess;
  const struct other* o = other_open();
  return o->CommFinalize ? forward(o, o->CommFinalize(shadow), "ncclCommFinalize") : ncclSuccess;
}

/* take gives the shadow to the one call that ends it. */
static ncclComm_t take(ncclComm_t c) { return atomic_exchange(&c->shadow, NULL); }

ncclResult_t fallback_destroy(ncclComm_t c) {
  ncclComm_t shadow = take(c);
  if (shadow == NULL) return ncclSuccess;
  const struct other* o = other_open();
  cuda_event_free(c->mark, c->device);
  return forward(o, o->CommDestroy(shadow), "ncclCommDestroy");
}

void fallback_abort(ncclComm_t c) {
  ncclComm_t shadow = take(c);
  if (shadow) (void)other_open()->CommAbort(shadow); /* calls that are inside may use the mark still: it stays */
}

/* ---- calls ---- */

static ncclResult_t perform(const struct other* o, ncclComm_t s, const struct door_call* c, ncclRedOp_t op) {
  ncclDataType_t t = (ncclDataType_t)c->type;
  switch (c->kind) {
    case DOOR_ALL_REDUCE: return forward(o, o->AllReduce(c->send, c->recv, c->count, t, op, s, c->stream), "ncclAllReduce");
    case DOOR_ALL_GATHER: return forward(o, o->AllGather(c->send, c->recv, c->count, t, s, c->stream), "ncclAllGather");
    case DOOR_REDUCE_SCATTER: return forward(o, o->ReduceScatter(c->send, c->recv, c->count, t, op, s, c->stream), "ncclReduceScatter");
    case DOOR_BROADCAST: return forward(o, o->Broadcast(c->send, c->recv, c->count, t, c->root, s, c->stream), "ncclBroadcast");
    case DOOR_REDUCE: return forward(o, o->Reduce(c->send, c->recv, c->count, t, op, c->root, s, c->stream), "ncclReduce");
    case DOOR_ALL_TO_ALL: return forward(o, o->AlltoAll(c->send, c->recv, c->count, t, s, c->stream), "ncclAlltoAll");
    case DOOR_GATHER: return forward(o, o->Gather(c->send, c->recv, c->count, t, c->root, s, c->stream), "ncclGather");
    case DOOR_SCATTER: return forward(o, o->Scatter(c->send, c->recv, c->count, t, c->root, s, c->stream), "ncclScatter");
    case DOOR_SEND: return forward(o, o->Send(c->send, c->count, t, c->root, s, c->stream), "ncclSend");
    case DOOR_RECV: return forward(o, o->Recv(c->recv, c->count, t, c->root, s, c->stream), "ncclRecv");
  }
  return fail(ncclInternalError, "operation %d is none", c->kind);
}

/* call_other makes one call. An operation with a scalar is made for it: the other library copies it at the call. */
static ncclResult_t call_other(const struct other* o, ncclComm_t s, const struct door_call* c) {
  ncclRedOp_t op = (ncclRedOp_t)c->op;
  if (c->op != DOOR_PREMUL_SUM) return perform(o, s, c, op);
  if (o->RedOpCreatePreMulSum == NULL || o->RedOpDestroy == NULL) return fail(ncclInvalidUsage, "NCCL %d has no ncclRedOpCreatePreMulSum", o->version);
  void* scalar = c->scalar_at ? (void*)(uintptr_t)c->scalar_at : (void*)(uintptr_t)c->scalar;
  ncclResult_t r = forward(o, o->RedOpCreatePreMulSum(&op, scalar, (ncclDataType_t)c->type, c->scalar_at ? ncclScalarDevice : ncclScalarHostImmediate, s), "ncclRedOpCreatePreMulSum");
  if (r != ncclSuccess) return r;
  r = perform(o, s, c, op);
  ncclResult_t end = forward(o, o->RedOpDestroy(op, s), "ncclRedOpDestroy");
  return r == ncclSuccess ? end : r;
}

/* order has a call wait for the last one of its communicator, if that was made on another stream: each library orders
 * its own calls, and neither knows of those of the other. Streams that are being captured are ordered by the program. */
static ncclResult_t order(ncclComm_t c, cudaStream_t stream) {
  if (c->device < 0 || !c->marked || c->marked_on == stream) return ncclSuccess;
  return cuda_event_wait(c->mark, c->device, stream);
}

static ncclResult_t note(ncclComm_t c, cudaStream_t stream) {
  if (c->device < 0) return ncclSuccess;
  ncclResult_t r = cuda_event_record(c->mark, c->device, stream, &c->marked);
  c->marked_on = stream;
  return r;
}

/* by_other performs calls by the other library, as one group if there are several. */
static ncclResult_t by_other(const struct other* o, ncclComm_t shadow, const struct door_call* calls, size_t n) {
  if (n == 1) return call_other(o, shadow, calls);
  ncclResult_t r = forward(o, o->GroupStart(), "ncclGroupStart");
  if (r != ncclSuccess) return r;
  for (size_t i = 0; i < n && r == ncclSuccess; i++) r = call_other(o, shadow, &calls[i]);
  ncclResult_t end = o->GroupEnd();
  return r == ncclSuccess ? forward(o, end, "ncclGroupEnd") : r;
}

static ncclResult_t by_this(void* inner, const struct door_call* calls, size_t n) {
  const struct door* d = door_opened();
  ncclResult_t r = n == 1 ? d->call(inner, calls) : d->group(inner, calls, n);
  return r == ncclSuccess ? r : fail(r, "%s", d->error());
}

/* run performs calls of one library. */
static ncclResult_t run(const struct other* o, ncclComm_t c, void* inner, const struct door_call* calls, size_t n, int others) {
  ncclResult_t r = ncclSuccess;
  ncclComm_t shadow = atomic_load(&c->shadow);
  for (size_t i = 0; i < n && r == ncclSuccess; i++)
    if (i == 0 || calls[i].stream != calls[i - 1].stream) r = order(c, calls[i].stream);
  if (r != ncclSuccess) return r;
  if (others && shadow == NULL) return fail(ncclInvalidUsage, "communicator %p was aborted", (void*)c);
  r = others ? by_other(o, shadow, calls, n) : by_this(inner, calls, n);
  for (size_t i = 0; i < n && r == ncclSuccess; i++)
    if (i + 1 == n || calls[i].stream != calls[i + 1].stream) {
      r = order(c, calls[i].stream); /* several streams of a group: the mark is behind all of them */
      if (r == ncclSuccess) r = note(c, calls[i].stream);
    }
  return r;
}

ncclResult_t fallback_call(ncclComm_t c, void* inner, const struct door_call* call) {
  const struct other* o = other_open();
  return run(o, c, inner, call, 1, o->kinds >> call->kind & 1);
}

/* A group is divided: this library's calls first, then those of the other, each in their order. All ranks divide it so. */
ncclResult_t fallback_group(ncclComm_t c, void* inner, const struct door_call* calls, size_t n) {
  const struct other* o = other_open();
  struct door_call* sorted = malloc(n * sizeof *sorted);
  size_t own = 0, all = 0;
  if (sorted == NULL) return fail(ncclSystemError, "out of memory for a group of %zu calls", n);
  for (int others = 0; others < 2; others++) {
    for (size_t i = 0; i < n; i++)
      if ((int)(o->kinds >> calls[i].kind & 1) == others) sorted[all++] = calls[i];
    if (!others) own = all;
  }
  ncclResult_t r = own ? run(o, c, inner, sorted, own, 0) : ncclSuccess;
  if (r == ncclSuccess && n > own) r = run(o, c, inner, sorted + own, n - own, 1);
  free(sorted);
  return r;
}
