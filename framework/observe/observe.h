// Records of what happens, for loops in C: the layout of framework/observe, which a test compares with Go. Kernels have records of
// their own, for several writers: framework/kernel/include/mscclpp/records.h.
//
// A writer has one ring, and looks at the switch before each record: one load, and a compare with a branch that is not taken.
#ifndef MSCCLPP_OBSERVE_H_
#define MSCCLPP_OBSERVE_H_

#include <stdint.h>

enum {
  mscclpp_observe_records = 4096,
  mscclpp_observe_record = 32,
  mscclpp_observe_ended = 3,  // the state of a ring whose writer has ended

  // Events; the lowest two bits are 0 at the beginning, 1 at the end, and 2 if it takes no time.
  mscclpp_observe_trigger = 28,
  mscclpp_observe_posted = 32,
  mscclpp_observe_completed = 36,
  mscclpp_observe_put = 128,
  mscclpp_observe_get = 132,
  mscclpp_observe_signal = 136,
  mscclpp_observe_wait = 140,
};

typedef struct {
  uint64_t time;
  uint64_t call;
  uint64_t bytes;
  uint16_t event;
  uint16_t block;
  int32_t peer;
} mscclpp_observe_event;

typedef struct {
  const uint32_t* on;             // the switch of the rank; never NULL
  uint64_t* next;                 // NULL: there is no ring
  mscclpp_observe_event* events;  // as many as the ring has
} mscclpp_observe_ring;

// Writes a record. The position is stored behind it.
static inline void mscclpp_observe_write(const mscclpp_observe_ring* r, uint64_t time, uint16_t event, uint64_t call, uint64_t bytes,
                                         uint16_t block, int32_t peer) {
  const uint64_t n = *r->next;
  mscclpp_observe_event* e = &r->events[n % mscclpp_observe_records];
  e->time = time;
  e->call = call;
  e->bytes = bytes;
  e->event = event;
  e->block = block;
  e->peer = peer;
  __atomic_store_n(r->next, n + 1, __ATOMIC_RELEASE);
}

#endif
