// Declarations that the parts of the engine share.
#ifndef MSCCLPP_STREAM_INNER_H_
#define MSCCLPP_STREAM_INNER_H_

#include "engine.h"

enum {
  parts_most = 16,         // puts that are sent from where they are, by one call
  buffer_bytes = 64 << 10,  // frames and small puts that are sent together
  ahead_bytes = 64 << 10,   // most that is read beside what was asked for
  small_put = mscclpp_stream_title,  // is copied, to be sent together with others
  flushes_most = 1024,      // that are not answered yet
  stripes_most = 4,         // that wait for one socket
};

enum { kind_put = 2, kind_stripe = 3, kind_signal = 4, kind_flush = 5, kind_done = 6, kind_bye = 7 };

// A frame's head, little endian on the wire.
typedef struct {
  uint8_t kind, others, zero[2];
  uint32_t handle;
  uint64_t offset, bytes, number;
} frame;

typedef struct {
  uint64_t held;  // the frames that come before it end here
  const char* data;
  uint64_t bytes;
} part;

// The outgoing side of one socket. The lock of the link's outgoing side guards it.
typedef struct {
  char* buffer;
  uint64_t used, done;  // of the buffer
  part parts[parts_most];
  int count, next;
  uint64_t large;  // bytes of parts that are not sent yet
} outgoing;

// The incoming side of one socket. The lock of the link's incoming side guards it.
typedef struct {
  char* ahead;
  uint64_t begin, end;  // of what was read and is not used
  frame f;
  int state;
  int batched;  // the last put was small
  char head[mscclpp_stream_head];  // of a part that waits for its turn
  uint64_t part;                   // of the last put that it has had a part of
  char* to;     // of the put that arrives; NULL: it is dropped
  uint64_t left;
} incoming;

enum { state_head = 0, state_body, state_blocked };

typedef struct {
  char* base;  // NULL: it was withdrawn
  uint64_t bytes;
} span;

typedef struct {
  uint64_t number;
  uint64_t* word;
  uint64_t value;
} flush;

struct mscclpp_stream_link {
  mscclpp_stream_engine* engine;
  int streams;
  int fd[mscclpp_stream_most];
  uint64_t stripe;
  uint32_t driven;  // calls that drive it now

  uint32_t state, announced, left, broken;
  int32_t error;
  char nonsense[mscclpp_stream_head];

  pthread_mutex_t out;
  outgoing o[mscclpp_stream_most];
  uint32_t pending;  // something is to be sent
  uint64_t round, asked, answered;
  flush flushes[flushes_most];
  uint64_t first, last;  // of the flushes that are not answered

  pthread_mutex_t in;
  incoming i[mscclpp_stream_most];
  span* table;
  uint64_t handles, room;
  uint64_t began;   // the put whose stripes may be performed
  uint32_t missing;  // stripes of it that are not there yet,
  uint32_t others;   // and of how many sockets, from the second on, one is expected
  uint64_t owed;    // the last flush that was asked for by the peer
  char* junk;
};

struct mscclpp_stream_engine {
  pthread_rwlock_t lists;
  mscclpp_stream_link* link[mscclpp_stream_links];
  mscclpp_stream_ring* ring[mscclpp_stream_rings];
  int links, rings;
  int bell;           // an eventfd that wakes the thread
  uint32_t stop;
  uint32_t asleep;    // the thread waits for sockets
  uint32_t excluded;  // and leaves some to threads that drive them
  uint32_t drives;    // calls so far
};

uint64_t mscclpp_stream_now(void);
void mscclpp_stream_ring_bell(mscclpp_stream_engine* e);
void mscclpp_stream_end(mscclpp_stream_link* l, uint32_t state, int32_t error);
// Sends what can be sent; l->out is held. 1: some is left.
int mscclpp_stream_push(mscclpp_stream_link* l);
int mscclpp_stream_try_push(mscclpp_stream_link* l);
int mscclpp_stream_holds(const mscclpp_stream_link* l, const char* from, uint64_t bytes);
// Performs what has arrived; 1: there was something. Nothing if others do it.
int mscclpp_stream_pull(mscclpp_stream_link* l, const uint64_t* word, uint64_t wanted);
void mscclpp_stream_complete(mscclpp_stream_link* l, uint64_t number);

void mscclpp_stream_wake(mscclpp_stream_ring* r);
int mscclpp_stream_waiting(const mscclpp_stream_ring* r);

static inline uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
#endif
