// The engine that drives connected sockets from within the rank: a thread that waits sends
// and receives, and a thread does it while none waits. See stream.go.
#ifndef MSCCLPP_STREAM_ENGINE_H_
#define MSCCLPP_STREAM_ENGINE_H_

#include <pthread.h>
#include <stdint.h>

#include "../ring/ring.h"

// Limits, and the format of frames. Go compares these numbers with its own.
enum {
  mscclpp_stream_memories = 512,    // 9 bits of a trigger
  mscclpp_stream_title = 8 << 10,   // bytes of a head that is given
  mscclpp_stream_semaphores = mscclpp_ring_flush_words,
  mscclpp_stream_most = 64,         // sockets of a link
  mscclpp_stream_links = 4096,      // of an engine
  mscclpp_stream_rings = 256,       // of an engine
  mscclpp_stream_head = 32,         // bytes of a frame's head
};

// Why a link or a ring has ended.
enum {
  mscclpp_stream_alive = 0,
  mscclpp_stream_over,      // the connection was closed, without a goodbye
  mscclpp_stream_failed,    // error says why
  mscclpp_stream_nonsense,  // a frame that makes no sense; head has it
  mscclpp_stream_bad_type,  // of triggers, from here on
  mscclpp_stream_unbound_source,
  mscclpp_stream_unbound_target,
  mscclpp_stream_unbound_semaphore,
  mscclpp_stream_source_range,
  mscclpp_stream_target_range,
};

typedef struct mscclpp_stream_engine mscclpp_stream_engine;
typedef struct mscclpp_stream_link mscclpp_stream_link;

// One end of what triggers cite: own memory, or a handle that the peer has given out.
typedef struct {
  mscclpp_stream_link* link;  // NULL: own memory
  char* base;                 // own memory; NULL: not bound
  uint64_t bytes;
  uint64_t offset;  // of a semaphore
  uint32_t handle;
} mscclpp_stream_slot;

// A trigger ring. The thread that gets the lock performs its triggers.
typedef struct {
  mscclpp_stream_engine* engine;
  pthread_mutex_t lock;
  char* ring;
  uint64_t slots, tail;
  uint64_t half;  // 1 + the position of a trigger whose data is queued already
  uint32_t shift;
  uint32_t stop;    // 1: the thread is to end
  uint32_t reason;  // why the ring has ended
  uint64_t fst, snd;
  mscclpp_stream_slot memory[mscclpp_stream_memories];
  mscclpp_stream_slot semaphore[mscclpp_stream_semaphores];
} mscclpp_stream_ring;

mscclpp_stream_engine* mscclpp_stream_engine_new(void);
void mscclpp_stream_engine_free(mscclpp_stream_engine* e);

// The thread that drives what nobody else does. Returns 1 when a link has ended that
// was not reported yet, 0 once the engine was stopped.
int mscclpp_stream_run(mscclpp_stream_engine* e);
void mscclpp_stream_stop(mscclpp_stream_engine* e);

// A link owns its sockets. NULL: no memory, or too many links.
mscclpp_stream_link* mscclpp_stream_link_new(mscclpp_stream_engine* e, const int* fds, int n, uint64_t stripe);
// Says goodbye if the link lives, and frees it. No other call with it may be in progress.
void mscclpp_stream_link_free(mscclpp_stream_link* l);
void mscclpp_stream_link_cut(mscclpp_stream_link* l);
uint32_t mscclpp_stream_link_state(mscclpp_stream_link* l, int32_t* error, char* head);
// Lets a new handle stand for memory; -1: no memory.
int64_t mscclpp_stream_expose(mscclpp_stream_link* l, void* base, uint64_t bytes);
// Lets a handle stand for other memory from now on; NULL: what is put there is dropped.
void mscclpp_stream_point(mscclpp_stream_link* l, uint32_t handle, void* base, uint64_t bytes);
// When it returns nothing reads into the memory of the handle any more.
void mscclpp_stream_withdraw(mscclpp_stream_link* l, uint32_t handle);
// When it returns nothing sends from the range any more. 0: some of it was not sent,
// and the link was cut.
int mscclpp_stream_forget(mscclpp_stream_link* l, const void* base, uint64_t bytes);

mscclpp_stream_ring* mscclpp_stream_ring_new(mscclpp_stream_engine* e, void* base, uint64_t slots, uint64_t tail);
void mscclpp_stream_ring_free(mscclpp_stream_ring* r);
// The thread for kernels, which push and do not send. Returns once stopped, or when
// the ring has ended.
void mscclpp_stream_ring_run(mscclpp_stream_ring* r, uint64_t park_ns);
void mscclpp_stream_ring_stop(mscclpp_stream_ring* r);
uint32_t mscclpp_stream_ring_reason(mscclpp_stream_ring* r, uint64_t* fst, uint64_t* snd);
void mscclpp_stream_bind(mscclpp_stream_ring* r, mscclpp_stream_slot* slot, mscclpp_stream_slot value);

// Performs what is in the ring, as far as sockets take it.
void mscclpp_stream_drain(mscclpp_stream_ring* r);

// Puts a head, which is copied, and data behind it to a bound target, and signals, behind
// what is in the ring. 2: data is not needed any more; 1: once mscclpp_stream_sent says
// so; 0: nothing was done, since sockets are full; -1: nor will it be.
int mscclpp_stream_give(mscclpp_stream_ring* r, uint32_t target, uint32_t semaphore, uint64_t to, const void* head, uint64_t title, const void* data,
                        uint64_t bytes);
// Sends what sockets take. 1: nothing of the range is left.
int mscclpp_stream_sent(mscclpp_stream_link* l, const void* data, uint64_t bytes);

// Says that there is something in the ring that can wait for a moment.
void mscclpp_stream_later(mscclpp_stream_ring* r);

// Drives a link until the word is at least as large as wanted (1), or the time is
// over (0). It polls, yields from spin_ns on (later if the peer has another core), and
// sleeps from yield_ns on.
int mscclpp_stream_await(mscclpp_stream_link* l, mscclpp_stream_ring* r, const uint64_t* word, uint64_t wanted, uint64_t waited_ns, uint64_t spin_ns,
                         uint64_t yield_ns, uint64_t slice_ns);

#endif
