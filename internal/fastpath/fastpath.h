/* Calls that are made without Go: see fastpath.go. */
#ifndef MSCCLPP_FASTPATH_H_
#define MSCCLPP_FASTPATH_H_

#include <stddef.h>
#include <stdint.h>

enum { FASTPATH_ENTRIES = 64, FASTPATH_ARGUMENTS = 256, FASTPATH_RANGES = 8, FASTPATH_WORDS = 5 };

struct fastpath_range {
  uintptr_t from, to;
};

/* Where calls are counted for observers: see Words in framework/observe. NULL: nowhere. */
struct fastpath_board {
  uint64_t *begun, *ended, *bytes, *total;
  uint32_t *kind, *algorithm;
};

/* A call, apart from its buffers. */
struct fastpath_key {
  uint64_t count;
  uintptr_t stream;
  uint32_t kind, type, op, root;
};

typedef int (*fastpath_launch)(uintptr_t context, uintptr_t function, uintptr_t stream, uint32_t grid, uint32_t block,
                               uint32_t shared, int overlap, uintptr_t arguments, size_t bytes);

/* tells a stream from others that had its handle before */
typedef uint64_t (*fastpath_identify)(uintptr_t context, uintptr_t stream);

/* A call that was made by Go: as long as nothing has changed, one with the same key is the same launch with other buffers. */
struct fastpath_entry {
  uint64_t epoch; /* of the table, when Go made the call; 0: none */
  struct fastpath_key key;
  uint32_t in_place, grid, block, overlap;
  int64_t between;              /* from the output to the input, of calls in place */
  uint64_t in_bytes, out_bytes;
  uintptr_t launch, context, function;
  uintptr_t identify; /* a fastpath_identify */
  uint64_t stream_id; /* 0: it is not asked for */
  uint64_t bytes;
  uint64_t seen_bytes; /* by observers */
  uint32_t seen_kind, seen_algorithm;
  unsigned char arguments[FASTPATH_ARGUMENTS] __attribute__((aligned(16)));
};

/* The table of a communicator. It is never freed, so that a stale pointer to it is harmless. */
struct fastpath_table {
  uint32_t lock;  /* somebody makes a call, or takes the table back */
  uint32_t open;  /* C may make calls */
  uint64_t epoch; /* entries of others count no more */
  uint64_t owner; /* handle of the communicator */
  uint64_t sequence, step; /* of the last call, and between two */
  uint64_t calls;          /* so far */
  uint32_t waiting, most, early; /* see residents in collectives/internal/intra */
  uint32_t at_once, sent, met;   /* values of the argument at_release */
  uint32_t at_input, at_output, at_sequence, at_release; /* of the arguments */
  const uint32_t* words[FASTPATH_WORDS]; /* 0 as long as C may make calls; the second one is compared with 1 */
  struct fastpath_board board;
  uint32_t ranges;
  struct fastpath_range exchanged[FASTPATH_RANGES]; /* memory that was exchanged in this epoch: calls with it are for Go */
  struct fastpath_entry entries[FASTPATH_ENTRIES];
};

/* fastpath_call makes a call if there is an entry for it: 1. Else Go has to. */
int fastpath_call(struct fastpath_table* t, uint64_t owner, const struct fastpath_key* key, const void* in, void* out);

uint32_t fastpath_enter(const struct fastpath_table* t, uint32_t grid, uint32_t block, uint32_t* waiting, int* overlap);

#endif
