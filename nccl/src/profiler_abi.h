/* The interface of NCCL's profiler plugins, versions 4 to 6. They differ in init, and in who is whose parent. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../nccl.h"

/* Kinds of events: bits of the mask by which a plugin chooses. */
enum event_kind {
  EVENT_GROUP = 1 << 0,
  EVENT_COLL = 1 << 1,
  EVENT_P2P = 1 << 2,
  EVENT_KERNEL_CH = 1 << 6,
  EVENT_GROUP_API = 1 << 8,
  EVENT_COLL_API = 1 << 9,
  EVENT_P2P_API = 1 << 10,
  EVENT_KERNEL_LAUNCH = 1 << 11,
};

/* States of events. */
enum { STATE_KERNEL_CH_STOP = 22, STATE_GROUP_START_STOP = 23, STATE_GROUP_END_START = 24 };

/* What an event is: that of version 6 is the longest. In version 4 the kind is a byte; the other bytes are 0. */
struct event {
  uint64_t kind;
  void* parent;
  int rank;
  union {
    struct {
      bool captured;
      int depth;
    } group_api;
    struct {
      const char* func;
      size_t count;
      const char* type;
      int root;
      void* stream;
      bool captured;
    } coll_api;
    struct {
      const char* func;
      size_t count;
      const char* type;
      void* stream;
      bool captured;
    } p2p_api;
    struct {
      void* stream;
    } kernel_launch;
    struct {
      uint64_t number;
      const char* func;
      const void* send;
      void* recv;
      size_t count;
      int root;
      const char* type;
      uint8_t channels, warps;
      const char *algo, *proto;
      void* group;
    } coll;
    struct {
      const char* func;
      void* buff;
      const char* type;
      size_t count;
      int peer;
      uint8_t channels;
      void* group;
    } p2p;
    struct {
      uint8_t channel;
      uint64_t nanoseconds;
    } kernel_ch;
    char room[192];
  };
};
_Static_assert(offsetof(struct event, coll) == 24 && offsetof(struct event, coll.group) == 24 + 80, "the layout of version 5");
_Static_assert(offsetof(struct event, coll_api.captured) == 24 + 40 && offsetof(struct event, p2p.group) == 24 + 40, "the layout of version 5");

union event_state {
  struct {
    uint64_t nanoseconds;
  } kernel_ch;
  char room[32];
};

typedef void (*event_log)(int level, unsigned long flags, const char* file, int line, const char* format, ...);

struct plugin {
  const char* name;
  union {
    ncclResult_t (*init4)(void** context, int* mask, const char* name, uint64_t id, int nodes, int nranks, int rank, event_log log);
    ncclResult_t (*init5)(void** context, uint64_t id, int* mask, const char* name, int nodes, int nranks, int rank, event_log log);
  };
  ncclResult_t (*start)(void* context, void** event, struct event* what);
  ncclResult_t (*stop)(void* event);
  ncclResult_t (*state)(void* event, int state, union event_state* with);
  ncclResult_t (*finalize)(void* context);
};

/* The plugin's part of a communicator. */
struct profile {
  const struct plugin* plugin;
  void* context;
  int mask;                /* the plugin may change it at any time */
  _Atomic(int64_t) until; /* milliseconds of the monotonic clock: what is under way then ends without times; 0: the communicator lives */
  struct profile* next;    /* of those that end */
  int closed, left;        /* the plugin has ended with it; the end of the communicator waits no more */
};

/* Names of the functions, in the order of enum door_kind. */
extern const char* const profile_names[];

/* profiler_version is that of the plugin which was loaded. */
int profiler_version(void);

/* profile_wants reports whether a communicator's plugin wants to hear of a kind of events. */
static inline int profile_wants(const struct profile* p, unsigned kinds) { return (__atomic_load_n(&p->mask, __ATOMIC_RELAXED) & (int)kinds) != 0; }

/* profile_start begins an event; NULL if it is not wanted. */
void* profile_start(const struct profile* p, struct event* what);

/* performed_end has the plugin end with a communicator, behind what is under way of it, for which it waits a second at most: a
 * driver that does not return keeps nobody. */
void performed_end(struct profile* p, int aborted);
