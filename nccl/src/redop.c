#include "redop.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "export.h"
#include "log.h"
#include "types.h"

/* A handle tells its communicator: one of another communicator is not taken for ours. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int first_of(ncclComm_t c) { return ncclNumOps + (int)(c->id % 100000) * REDOPS; }

/* find returns the operation that a handle stands for, under the lock. */
static struct redop* find(ncclComm_t c, ncclRedOp_t op) {
  int i = (int)op - first_of(c);
  return c->redops && i >= 0 && i < REDOPS && c->redops[i].used ? &c->redops[i] : NULL;
}

EXPORT(ncclResult_t, RedOpCreatePreMulSum, ncclRedOp_t* op, void* scalar, ncclDataType_t type,
       ncclScalarResidence_t residence, ncclComm_t comm) {
  ncclResult_t r = comm_enter(comm, "ncclRedOpCreatePreMulSum", NEED_READY);
  if (r != ncclSuccess) return r;
  if (op == NULL || scalar == NULL)
    r = fail(ncclInvalidArgument, "ncclRedOpCreatePreMulSum : %s argument is NULL", op ? "scalar" : "op");
  else if (!type_size(type))
    r = fail(ncclInvalidArgument, "ncclRedOpCreatePreMulSum : invalid type %d", (int)type);
  else if (residence != ncclScalarDevice && residence != ncclScalarHostImmediate)
    r = fail(ncclInvalidArgument, "ncclRedOpCreatePreMulSum : invalid residence %d", (int)residence);
  if (r == ncclSuccess) {
    pthread_mutex_lock(&lock);
    if (comm->redops == NULL) comm->redops = calloc(REDOPS, sizeof *comm->redops);
    int i = 0;
    while (comm->redops && i < REDOPS && comm->redops[i].used) i++;
    if (comm->redops && i < REDOPS) {
      struct redop* o = &comm->redops[i];
      *o = (struct redop){1, type, residence, {0}, scalar};
      if (residence == ncclScalarHostImmediate) memcpy(o->value, scalar, (size_t)type_size(type));
      *op = (ncclRedOp_t)(first_of(comm) + i);
    } else {
      r = fail(comm->redops ? ncclInvalidUsage : ncclSystemError, "ncclRedOpCreatePreMulSum : expected at most %d operations of a communicator, and memory for them", REDOPS);
    }
    pthread_mutex_unlock(&lock);
  }
  comm_leave(comm);
  return r;
}

EXPORT(ncclResult_t, RedOpDestroy, ncclRedOp_t op, ncclComm_t comm) {
  ncclResult_t r = comm_enter(comm, "ncclRedOpDestroy", NEED_ALIVE);
  if (r != ncclSuccess) return r;
  if ((int)op >= 0 && op < ncclNumOps) {
    r = fail(ncclInvalidArgument, "ncclRedOpDestroy : operator %d is a NCCL builtin.", (int)op);
  } else {
    pthread_mutex_lock(&lock);
    struct redop* o = find(comm, op);
    if (o)
      o->used = 0;
    else
      r = fail(ncclInvalidArgument, "ncclRedOpDestroy : operator %d unknown to this communicator", (int)op);
    pthread_mutex_unlock(&lock);
  }
  comm_leave(comm);
  return r;
}

ncclResult_t redop_resolve(ncclComm_t comm, const char* function, ncclRedOp_t op, ncclDataType_t type,
                           struct door_call* call) {
  if ((int)op >= 0 && op < ncclNumOps) {
    call->op = (int)op;
    return ncclSuccess;
  }
  pthread_mutex_lock(&lock);
  struct redop* found = find(comm, op);
  struct redop o = found ? *found : (struct redop){0};
  pthread_mutex_unlock(&lock);
  if (!o.used) return fail(ncclInvalidArgument, "%s : reduction operator %d unknown to this communicator", function, (int)op);
  if (o.type != type)
    return fail(ncclInvalidArgument, "%s : reduction operator %d was created with type %s: expected a call with the same, not %s",
                function, (int)op, type_name(o.type), type_name(type));
  call->op = DOOR_PREMUL_SUM;
  memcpy(call->scalar, o.value, sizeof o.value);
  call->scalar_at = o.residence == ncclScalarDevice ? o.at : NULL;
  return ncclSuccess;
}
