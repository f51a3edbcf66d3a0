/* Communicators: their handles, states and configurations. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "../nccl.h"

enum { NAME_MAX_BYTES = 128, REDOPS = 1024, COUNTED = 8 };

/* A scalar that multiplies inputs before they are summed. */
struct redop {
  int used;
  ncclDataType_t type;
  ncclScalarResidence_t residence;
  char value[8];    /* of HostImmediate, an element */
  const void* at;   /* of Device: read when the call is carried out */
};

/* ncclComm is never unmapped: a handle that was destroyed is told from one that is alive by a
 * look at it, whatever the program does with it. */
struct ncclComm {
  atomic_uint alive;     /* ALIVE, or anything else */
  atomic_int users;      /* calls inside; the last one to leave frees a handle that was given up */
  /* What follows is zeroed when a handle is taken; whoever looks at all handles may count as a user of this one meanwhile. */
  atomic_int state;      /* ncclInProgress while something runs in the background; Success; or why calls fail */
  atomic_int given_up;   /* Destroy or Abort was called */
  atomic_int finalized, revoked;
  atomic_int launched;   /* a call was made: kernels may be on streams of the program */
  atomic_int aborted;    /* Abort was called, also while Destroy goes on */
  _Atomic(const char*) doing; /* what runs in the background */
  char ended_with[512];  /* the text of the error of that work, written before state says that it has ended */
  _Atomic(void*) inner;  /* the communicator of libmscclpp */
  _Atomic(ncclComm_t) parent; /* of which it is made, until that has ended */
  atomic_int known;      /* rank, nranks and id are there, and stay: others may look at them */
  int rank, nranks;
  _Atomic(struct peer*) peers; /* the processes of the ranks; NULL while they are not known */
  _Atomic(uint64_t) counts[COUNTED]; /* collectives that were called, by enum door_kind; written by one thread at a time */
  _Atomic(struct profile*) profile; /* a profiler's part; NULL: there is none */
  _Atomic(uint64_t) splits, shrinks; /* communicators that were made of it */
  int device;            /* ordinal of CUDA; -1: host memory */
  int nvml;              /* its number on this machine, for logs and reports */
  uint64_t bus;          /* where it is on the bus */
  int blocking;
  int chained;           /* its calls wait for those of others on the device, and these for them; see chain.h */
  uint64_t family;       /* communicators that share their resources, and so their abort */
  struct registration* registrations;
  struct page* pages;    /* of windows, on the device; see windows.c */
  uint64_t id;           /* the same on all ranks: orders communicators of a group */
  ncclConfig_t config;
  char name[NAME_MAX_BYTES];
  char net[NAME_MAX_BYTES];
  _Atomic(ncclComm_t) shadow; /* the communicator of another NCCL, which performs some operations; see fallback.h */
  void* mark;            /* an event behind the last call of a communicator that has a shadow */
  int marked;            /* it was recorded */
  cudaStream_t marked_on;
  struct redop* redops;  /* REDOPS of them once one was made */
  struct ncclComm* next; /* while it is free */
};

enum { ALIVE = 0x6d736363 };

/* comm_new takes a handle; NULL if memory is short. */
ncclComm_t comm_new(void);

/* comm_on sets the device, and what others want to know of it: no thread asks the driver for it later. */
void comm_on(ncclComm_t comm, int device);

/* comm_enter checks a handle for a call and keeps it until comm_leave. Calls that move data or
 * make communicators need one that is ready; others say what they can live with. */
enum comm_need { NEED_READY, NEED_ALIVE };
ncclResult_t comm_enter(ncclComm_t comm, const char* function, enum comm_need need);
void comm_leave(ncclComm_t comm);

/* comm_take has one call alone end a handle: true for the first that asks. */
int comm_take(ncclComm_t comm);

/* comm_give_up ends a handle that was taken: no later call can enter it. */
void comm_give_up(ncclComm_t comm);

/* comms_each calls f for every handle that has not ended, and keeps it meanwhile. It may not be known yet. */
void comms_each(void (*f)(ncclComm_t comm, void* with), void* with);

/* count_call counts a collective; one thread at a time calls. Messages have no counts: the ranks' would differ. */
static inline void count_call(ncclComm_t c, int kind) {
  if (kind < COUNTED) atomic_store_explicit(&c->counts[kind], atomic_load_explicit(&c->counts[kind], memory_order_relaxed) + 1, memory_order_relaxed);
}

/* calls_counted is how many collectives the communicator was given. */
static inline uint64_t calls_counted(ncclComm_t c) {
  uint64_t n = 0;
  for (int i = 0; i < COUNTED; i++) n += atomic_load_explicit(&c->counts[i], memory_order_relaxed);
  return n;
}

/* comm_abort ends this rank's part of a communicator, of those that share its resources, and of what is made of either;
 * their handles stay, to be ended. why completes "aborted: ". It waits for nothing. */
void comm_abort(ncclComm_t comm, const char* why);

/* comm_aborted reports whether the end of a communicator, or of the one of which it is made, has come before it was made. */
static inline int comm_aborted(ncclComm_t c) {
  ncclComm_t parent = atomic_load(&c->parent);
  return atomic_load(&c->aborted) || (parent && atomic_load(&parent->aborted));
}

/* comm_meet gives a communicator its other half: has it joined, unless it was, and has its ranks agree on what this library
 * needs. A failure, or an abort meanwhile, frees it. what begins texts. */
ncclResult_t comm_meet(ncclComm_t comm, void* inner, int joined, const char* what);

/* comm_unmade is the result of a making that has failed, with the text of libmscclpp. */
ncclResult_t comm_unmade(ncclComm_t comm, ncclResult_t r, const char* what);

/* registrations_free forgets what was registered with a communicator that has ended. */
void registrations_free(ncclComm_t comm);

/* config_take reads a caller's configuration, which may be of another version, into comm.
 * from is what undefined fields inherit, or NULL. */
ncclResult_t config_take(ncclComm_t comm, const ncclConfig_t* config, const ncclComm_t from);
