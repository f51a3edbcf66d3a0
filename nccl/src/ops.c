/* Collectives and messages: every argument is checked here, the rest is libmscclpp's. */
#include <pthread.h>
#include <strings.h>

#include "chain.h"
#include "comm.h"
#include "cuda.h"
#include "door.h"
#include "env.h"
#include "export.h"
#include "fallback.h"
#include "group.h"
#include "log.h"
#include "maker.h"
#include "profiler.h"
#include "redop.h"
#include "types.h"
#include "watch.h"

/* What the arguments of a function mean. */
struct shape {
  const char* function;
  enum door_kind kind;
  char reduces, rooted; /* 'p': root is a peer */
  char send, recv;      /* who uses the buffer: 'a' all, 'r' the root, '-' nobody */
};

static const struct shape all_reduce = {"ncclAllReduce", DOOR_ALL_REDUCE, 1, 0, 'a', 'a'};
static const struct shape all_gather = {"ncclAllGather", DOOR_ALL_GATHER, 0, 0, 'a', 'a'};
static const struct shape reduce_scatter = {"ncclReduceScatter", DOOR_REDUCE_SCATTER, 1, 0, 'a', 'a'};
static const struct shape broadcast = {"ncclBroadcast", DOOR_BROADCAST, 0, 'r', 'r', 'a'};
static const struct shape reduce = {"ncclReduce", DOOR_REDUCE, 1, 'r', 'a', 'r'};
static const struct shape all_to_all = {"ncclAlltoAll", DOOR_ALL_TO_ALL, 0, 0, 'a', 'a'};
static const struct shape gather = {"ncclGather", DOOR_GATHER, 0, 'r', 'a', 'r'};
static const struct shape scatter = {"ncclScatter", DOOR_SCATTER, 0, 'r', 'r', 'a'};
static const struct shape send_message = {"ncclSend", DOOR_SEND, 0, 'p', 'a', '-'};
static const struct shape recv_message = {"ncclRecv", DOOR_RECV, 0, 'p', '-', 'a'};

/* uses reports whether this rank uses a buffer. */
static int uses(char who, ncclComm_t c, int root) { return who == 'a' || (who == 'r' && root == c->rank); }

static int checks_pointers;
static pthread_once_t checks_once = PTHREAD_ONCE_INIT;

static void read_checks(void) {
  const char* mode = setting("NCCL_CHECK_MODE");
  checks_pointers = setting_number("NCCL_CHECK_POINTERS", 0) != 0 ||
                    (mode && (strcasecmp(mode, "DEBUG_LOCAL") == 0 || strcasecmp(mode, "DEBUG_GLOBAL") == 0));
}

/* check_pointers asks the driver about the buffers, if NCCL_CHECK_POINTERS or NCCL_CHECK_MODE say so. */
static ncclResult_t check_pointers(ncclComm_t c, const struct shape* s, const struct door_call* call, const char* function) {
  pthread_once(&checks_once, read_checks);
  if (!checks_pointers || c->device < 0) return ncclSuccess;
  ncclResult_t r = uses(s->send, c, call->root) ? cuda_check_pointer(c->device, call->send, function, "sendbuff") : ncclSuccess;
  return r == ncclSuccess && uses(s->recv, c, call->root) ? cuda_check_pointer(c->device, call->recv, function, "recvbuff") : r;
}

static ncclResult_t check(ncclComm_t c, const struct shape* s, const struct door_call* call, const char* function) {
  int root = call->root;
  if (s->rooted && (root < 0 || root >= c->nranks))
    return fail(ncclInvalidArgument, "%s : invalid %s %d (%s should be in the 0..%d range)", function,
                s->rooted == 'p' ? "peer" : "root", root, s->rooted == 'p' ? "peer" : "root", c->nranks - 1);
  if (!type_size((ncclDataType_t)call->type)) return fail(ncclInvalidArgument, "%s : invalid type %d", function, call->type);
  if (FP8_IS_FNUZ && s->reduces && (call->type == ncclFloat8e4m3 || call->type == ncclFloat8e5m2))
    return fail(ncclInvalidArgument, "%s : %s : AMD's GPUs of gfx90a and gfx942 read such bits as FNUZ, and the kernels here add them as OCP: expected another type", function,
                type_name((ncclDataType_t)call->type));
  if (atomic_load_explicit(&c->revoked, memory_order_relaxed))
    return fail(ncclInvalidUsage, "%s : communicator %p was revoked", function, (void*)c);
  if (call->count == 0) return ncclSuccess;
  if (call->send == NULL && uses(s->send, c, root))
    return fail(ncclInvalidArgument, "%s : sendbuff argument is NULL", function);
  if (call->recv == NULL && uses(s->recv, c, root))
    return fail(ncclInvalidArgument, "%s : recvbuff argument is NULL", function);
  return check_pointers(c, s, call, function);
}

static ncclResult_t perform_now(ncclComm_t comm, const struct door_call* call) {
  const struct door* d = door_opened();
  void* inner = atomic_load_explicit(&comm->inner, memory_order_acquire);
  if (d == NULL || inner == NULL) return fail(ncclInternalError, "communicator %p is ready but has no other half", (void*)comm);
  if (!atomic_load_explicit(&comm->launched, memory_order_relaxed)) atomic_store(&comm->launched, 1);
  count_call(comm, call->kind);
  if (atomic_load_explicit(&comm->shadow, memory_order_relaxed)) return fallback_call(comm, inner, call);
  ncclResult_t r = d->call(inner, call);
  return r == ncclSuccess ? r : fail(r, "%s", d->error());
}

static ncclResult_t perform_one(ncclComm_t comm, const struct door_call* call) {
  if (!comm->chained) return perform_now(comm, call);
  uint64_t behind;
  ncclResult_t r = chain_begin(comm, call->stream, &behind);
  if (r == ncclSuccess) r = perform_now(comm, call);
  return r == ncclSuccess ? chain_end(comm, call->stream, behind) : r;
}

/* perform_profiled is perform_one, or group_call, of which a profiler hears. */
static ncclResult_t perform_profiled(ncclComm_t comm, struct door_call* call) {
  int grouped = group_depth() > 0;
  void* group = grouped ? group_profile(comm, call->stream) : profile_group(comm, 1, call->stream);
  void* event = call->event = profile_api(comm, group, call);
  ncclResult_t r;
  if (grouped) {
    r = group_call(comm, call);
  } else {
    profile_group_ends(comm, group);
    struct launch l = profile_launch(comm, group, call, 1);
    r = perform_one(comm, call);
    profile_launched(comm, &l, r);
  }
  profile_stop(comm, event);
  if (!grouped) profile_stop(comm, group);
  return r;
}

/* bytes_of is the size of a buffer, for NVTX. */
static size_t bytes_of(size_t count, ncclDataType_t type) { return count * (size_t)type_size(type); }

static ncclResult_t launch(const struct shape* s, const void* send, void* recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  const char* function = s->function;
  RANGE_OF(function, bytes_of(count, type));
  ncclResult_t r = comm_enter(comm, function, NEED_READY);
  if (r != ncclSuccess) goto end;
  struct door_call call = {.send = send, .recv = recv, .count = count, .stream = stream, .kind = s->kind, .type = (int)type, .root = root};
  r = check(comm, s, &call, function);
  if (r == ncclSuccess && s->reduces) r = redop_resolve(comm, function, op, type, &call);
  if (r == ncclSuccess && log_shown(LOG_INFO, SUB_COLL))
    log_info(SUB_COLL, comm->device, "%s: opCount %llx sendbuff %p recvbuff %p count %zu datatype %d op %d root %d comm %p [nranks=%d] stream %p",
             function + 4, (unsigned long long)calls_counted(comm), send, recv, count, (int)type, (int)op, root, (void*)comm, comm->nranks, (void*)stream);
  /* Nothing to do is done, except for messages: those of no bytes are matched too. */
  int nothing = count == 0 && s->rooted != 'p';
  if (r == ncclSuccess && !nothing) {
    int grouped = group_depth() > 0;
    if (watched() && atomic_load_explicit(&comm->profile, memory_order_relaxed))
      r = perform_profiled(comm, &call);
    else
      r = grouped ? group_call(comm, &call) : perform_one(comm, &call);
    if (grouped && r == ncclSuccess) return r; /* the group leaves the communicator */
  }
  comm_leave(comm);
end:
  if (group_depth() > 0) {
    group_begin();
    r = group_end(r);
  }
  return r;
}

EXPORT(ncclResult_t, AllReduce, const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
       ncclComm_t comm, cudaStream_t stream) {
  return launch(&all_reduce, send, recv, count, type, op, 0, comm, stream);
}

EXPORT(ncclResult_t, AllGather, const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,
       cudaStream_t stream) {
  return launch(&all_gather, send, recv, count, type, ncclSum, 0, comm, stream);
}

EXPORT(ncclResult_t, ReduceScatter, const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
       ncclComm_t comm, cudaStream_t stream) {
  return launch(&reduce_scatter, send, recv, count, type, op, 0, comm, stream);
}

EXPORT(ncclResult_t, Broadcast, const void* send, void* recv, size_t count, ncclDataType_t type, int root,
       ncclComm_t comm, cudaStream_t stream) {
  return launch(&broadcast, send, recv, count, type, ncclSum, root, comm, stream);
}

EXPORT(ncclResult_t, Bcast, void* buff, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
       cudaStream_t stream) {
  return launch(&broadcast, buff, buff, count, type, ncclSum, root, comm, stream);
}

EXPORT(ncclResult_t, Reduce, const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
       ncclComm_t comm, cudaStream_t stream) {
  return launch(&reduce, send, recv, count, type, op, root, comm, stream);
}

EXPORT(ncclResult_t, AlltoAll, const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,
       cudaStream_t stream) {
  return launch(&all_to_all, send, recv, count, type, ncclSum, 0, comm, stream);
}

EXPORT(ncclResult_t, Gather, const void* send, void* recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
       cudaStream_t stream) {
  return launch(&gather, send, recv, count, type, ncclSum, root, comm, stream);
}

EXPORT(ncclResult_t, Scatter, const void* send, void* recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
       cudaStream_t stream) {
  return launch(&scatter, send, recv, count, type, ncclSum, root, comm, stream);
}

EXPORT(ncclResult_t, Send, const void* send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
       cudaStream_t stream) {
  return launch(&send_message, send, NULL, count, type, ncclSum, peer, comm, stream);
}

EXPORT(ncclResult_t, Recv, void* recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
       cudaStream_t stream) {
  return launch(&recv_message, NULL, recv, count, type, ncclSum, peer, comm, stream);
}
