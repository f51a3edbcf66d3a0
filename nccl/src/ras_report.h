/* What a report of the RAS service says of communicators. */
#pragma once

#include "ras.h"

/* What a rank does, and a communicator as the most advanced of its ranks does. */
enum ras_status { RAS_NOCOMM, RAS_INIT, RAS_RUNNING, RAS_FINALIZE, RAS_ABORT, RAS_STATUSES };

/* What is wrong with a communicator. */
enum { RAS_MISMATCH = 1, RAS_ERROR = 2, RAS_INCOMPLETE = 4 };

/* A communicator: its ranks that have been heard of, n of nranks. */
struct ras_comm {
  uint64_t id;
  const struct ras_rank* ranks;
  int n, nranks, silent; /* silent: ranks whose processes have not answered */
  unsigned statuses;     /* a bit for each that a rank has */
  enum ras_status status;
  unsigned errors;
};

/* A rank that was not heard of. */
struct ras_missing {
  int rank;
  const struct peer* peer; /* NULL: nothing is known of its process */
  int unresponsive, dead;
};

extern const char* const ras_status_names[RAS_STATUSES];

/* Collectives in NCCL's order: their names, and their places in counts. */
extern const struct ras_collective {
  const char* name;
  int at;
} ras_collectives[COUNTED];

enum ras_status ras_status_of(const struct ras_rank* r);

/* ras_comms returns the communicators of a state, *n of them, the largest first; free ends them. NULL: there are none, or too little memory. */
struct ras_comm* ras_comms(const struct ras_state* s, size_t* n);

/* ras_missing finds the first rank from a number on that was not heard of; 0: there is none. */
int ras_missing(const struct ras_state* s, const struct ras_comm* c, int from, struct ras_missing* out);
