// The loop that drains a trigger ring by copying within the memory of one host.
//
// It runs in C on a thread of its own, because a poll loop next to Go's collector
// is stopped for milliseconds now and then. Go binds and unbinds slots while it
// runs; both sides meet in struct mscclpp_drain only.
#ifndef MSCCLPP_DRAIN_H_
#define MSCCLPP_DRAIN_H_

#include <stddef.h>
#include <stdint.h>

#include "../../../framework/observe/observe.h"
#include "../../../framework/ring/ring.h"

enum {
  mscclpp_drain_memories = 512,    // 9 bits of a trigger
  mscclpp_drain_semaphores = mscclpp_ring_flush_words,
};

// Why a loop has ended.
enum {
  mscclpp_drain_stopped = 0,
  mscclpp_drain_bad_type,         // none of put, signal, flush
  mscclpp_drain_unbound_source,
  mscclpp_drain_unbound_target,
  mscclpp_drain_source_range,
  mscclpp_drain_target_range,
  mscclpp_drain_unbound_semaphore,
  mscclpp_drain_source_is_peers,
  mscclpp_drain_target_is_own,
  mscclpp_drain_cut_short,        // stopped before everything was performed
};

// Values of stop.
enum { mscclpp_drain_run = 0, mscclpp_drain_finish = 1, mscclpp_drain_quit = 2 };

typedef struct {
  char* addr;  // NULL: not bound
  uint64_t bytes;
  uint32_t own;  // else it is a peer's
} mscclpp_drain_memory;

typedef struct {
  // Set before the loop runs.
  char* ring;
  uint64_t slots;
  uint32_t shift;
  uint64_t tail;
  uint64_t spin_ns, yield_ns, park_ns;
  int32_t cpu;  // -1: any
  const uint32_t* observed;  // the switch; never NULL
  uintptr_t observer;        // for mscclpp_drain_observe

  // Of the loop.
  mscclpp_observe_ring records;
  uint32_t* records_state;  // NULL: it has no ring
  uint32_t records_none;    // there was none to be had

  // Shared with Go.
  uint32_t stop;
  uint64_t turn;  // odd while a trigger is performed
  mscclpp_drain_memory memory[mscclpp_drain_memories];
  uint64_t* semaphore[mscclpp_drain_semaphores];
  uint64_t performed, copied, parked;

  // Set when the loop has ended.
  uint32_t reason;
  uint64_t position, fst, snd;
} mscclpp_drain;

mscclpp_drain* mscclpp_drain_new(void);
// Drains until a request to stop, or until a trigger makes no sense; returns the reason.
uint32_t mscclpp_drain_loop(mscclpp_drain* d);
void mscclpp_drain_stop(mscclpp_drain* d, uint32_t how);

// Gives the loop a ring for records, if there is one: in Go. It is called once a record is wanted.
extern void mscclpp_drain_observe(uintptr_t observer, mscclpp_drain* d);

void mscclpp_drain_bind_memory(mscclpp_drain* d, uint32_t slot, void* addr, uint64_t bytes, uint32_t own);
void mscclpp_drain_bind_semaphore(mscclpp_drain* d, uint32_t slot, void* word);
// After unbind, and once quiet has returned 1 for the turn that it got, the loop
// does not touch the memory any more.
uint64_t mscclpp_drain_turn(const mscclpp_drain* d);
int mscclpp_drain_quiet(const mscclpp_drain* d, uint64_t turn);
uint64_t mscclpp_drain_count(const uint64_t* counter);

#endif
