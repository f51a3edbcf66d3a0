/* What looks on while calls are made: NVTX ranges and a profiler plugin. Without either, one word says so, and a call costs
 * a load and a branch more. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>

enum { WATCH_NVTX = 1, WATCH_PROFILER = 2, WATCH_UNKNOWN = 4 };

extern atomic_int watching; /* bits of these; UNKNOWN until the first call asks whether a tool is there */

/* watched reports whether anybody looks on; the first call finds out. */
static inline int watched(void) { return __builtin_expect(atomic_load_explicit(&watching, memory_order_relaxed), 0); }

/* watch_profiler says that a plugin was loaded. */
void watch_profiler(void);

/* A range lasts until its variable goes. */
struct range {
  int open;
};
struct range range_begin(const char* name, size_t bytes);
void range_end(struct range* r);

#define RANGE_OF(name, bytes) \
  __attribute__((cleanup(range_end))) struct range range_ = watched() ? range_begin(name, bytes) : (struct range){0}
#define RANGE(name) RANGE_OF(name, 0)
