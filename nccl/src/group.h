/* Groups: calls of a thread between GroupStart and GroupEnd. */
#pragma once

#include <pthread.h>

#include "comm.h"
#include "door.h"

/* group_begin and group_end enclose every call; outside of a group, the end performs it. */
void group_begin(void);
ncclResult_t group_end(ncclResult_t result);

/* group_call adds a call. The handle was entered; the group leaves it. */
ncclResult_t group_call(ncclComm_t comm, const struct door_call* call);

/* A piece of work that makes or ends communicators. run returns when it is done; it belongs to
 * the group once group_work has returned Success, which frees it. */
struct work {
  struct work* next;
  ncclComm_t comm;   /* whose state says how it went */
  ncclComm_t parent; /* works of one parent are done in their order, and it is in progress meanwhile; or NULL */
  ncclResult_t (*run)(struct work* w);
  void (*done)(struct work* w, ncclResult_t result); /* publishes; on the thread of the caller if that waits */
  const char* what;  /* for texts; NULL: ncclCommSplit */
};
ncclResult_t group_work(struct work* w);

/* group_has reports whether work for a communicator waits for the end of this thread's group. */
int group_has(ncclComm_t comm);

/* start_thread runs f with all signals blocked: they belong to the program. Returns an errno. */
int start_thread(pthread_t* thread, int detached, void* (*f)(void*), void* with);

/* name_thread names the calling thread, if NCCL_SET_THREAD_NAME says so. */
void name_thread(const char* name);

/* group_profile is what the profiler of a communicator has begun for this thread's group. */
void* group_profile(ncclComm_t comm, cudaStream_t stream);

/* group_depth is how many groups this thread has open. */
int group_depth(void);
