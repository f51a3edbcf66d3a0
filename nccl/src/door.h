/* The door to libmscclpp.so: opened at the first communicator, so that processes which never
 * communicate load nothing and start nothing. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "../nccl.h"

/* What a communicator is made of. */
struct door_comm {
  const ncclUniqueId* id;
  int rank, size;
  int device;       /* ordinal of the driver; -1: host memory */
  int max_blocks;   /* of one kernel; 0: as many as are fastest */
  const char* net;  /* netName of the configuration, or "" */
};

enum door_kind {
  DOOR_ALL_REDUCE,
  DOOR_ALL_GATHER,
  DOOR_REDUCE_SCATTER,
  DOOR_BROADCAST,
  DOOR_REDUCE,
  DOOR_ALL_TO_ALL,
  DOOR_GATHER,
  DOOR_SCATTER,
  DOOR_SEND,
  DOOR_RECV,
};

/* A call. Types and built-in operations have NCCL's numbers; op is DOOR_PREMUL_SUM where the scalar counts. */
enum { DOOR_PREMUL_SUM = 5 };
struct door_call {
  const void* send;
  void* recv;
  size_t count;
  char scalar[8];        /* an element… */
  const void* scalar_at; /* …or if not NULL, where one is on the device when the call is carried out */
  cudaStream_t stream;
  int kind, type, op, root; /* root, or peer */
  void* event;              /* of a profiler */
};

/* Memory for a window. buff NULL: libmscclpp allocates it; none: this rank has none, and the window fails on all. */
struct door_memory {
  void* buff;
  size_t size;
  int none, private; /* private: collectives do not use it in place */
};

/* A window: all ranks' memory at one stride from base, and the handles of libmscclpp. */
struct door_window {
  void *window, *memory;
  void* own; /* this rank's memory, as it was given or allocated */
  char* base;
  size_t stride;
};

/* Results are those of NCCL; texts of failures come from door_error, of this thread. */
struct door {
  ncclResult_t (*create)(const struct door_comm* options, void** comm); /* does not wait */
  ncclResult_t (*join)(void* comm);                                    /* waits for all ranks */
  ncclResult_t (*split)(void* comm, int color, int key, void** out, int* rank, int* size);
  ncclResult_t (*shrink)(void* comm, const int* excluded, size_t count, int abort, void** out); /* to be joined */
  ncclResult_t (*place)(void* comm, int* rank, int* size);
  ncclResult_t (*exchange)(void* comm, const void* mine, size_t bytes, void* all); /* among the ranks, on the host */
  ncclResult_t (*call)(void* comm, const struct door_call* call);
  ncclResult_t (*group)(void* comm, const struct door_call* calls, size_t n);
  ncclResult_t (*window_open)(void* comm, const struct door_memory* m, struct door_window* out); /* window NULL: a rank cannot take part */
  void (*window_close)(struct door_window* w);
  ncclResult_t (*store_new)(void* comm, size_t bytes, void** memory, void** at); /* zeroed, on the device */
  ncclResult_t (*store)(void* memory, size_t offset, const void* bytes, size_t n);
  void (*store_free)(void* memory);
  void (*host)(void* comm, char* text, size_t size); /* what stands for this rank's host; "" if it is not known */
  int (*shared)(void* comm); /* kernels reach the memory of all ranks */
  ncclResult_t (*close)(void* comm);
  void (*abort)(void* comm, const char* why); /* takes no lock that a call holds, and waits for nobody */
  int (*settle)(void* comm, ncclResult_t* r); /* waits for what calls have enqueued; 0: it is not known */
  ncclResult_t (*failed)(void* comm);         /* never blocks */
  const char* (*error)(void);
};

/* on_host reports whether communicators and memory are to be on the host by the configuration. It opens the library only if there is a file
 * that may say so: a mistake in it is an error of the first communicator. */
int on_host(void);

/* door_open returns the functions, or NULL after fail(). */
const struct door* door_open(void);

/* door_opened returns the functions if they were ever needed. */
const struct door* door_opened(void);
