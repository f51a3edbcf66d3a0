/* The RAS service: a thread of each process that has communicators answers, in NCCL's text protocol, what the communicators
 * of this process and of those that it shares one with are doing. It asks others only while somebody asks it, takes no lock that
 * a call holds, and calls nothing of libmscclpp. NCCL_RAS_ENABLE=0 turns it off. */
#pragma once

#include "comm.h"
#include "peers.h"

/* What a process says of a rank that it has. The same build is on both sides, so this is what goes over the network. */
struct ras_rank {
  uint64_t id;
  int32_t rank, nranks, device, pid, nvml, zero2;
  int32_t init, error; /* results of NCCL */
  uint8_t finalized, destroyed, aborted, zero[5];
  uint64_t counts[COUNTED];
  char host[48];
};

/* ras_start starts the service, once a process. A failure is a line of the log. */
void ras_start(void);

/* ras_describe adds to a process's description where its service answers other processes. */
void ras_describe(struct peer* p);

/* ras_serves reports whether a process has a service that answers others: one that has none has no token either. */
int ras_serves(const struct peer* p);

/* ras_is_self reports whether a process is this one. */
int ras_is_self(const struct peer* p);

/* ---- between the files of the service ---- */

/* What an answer is made of. Ranks are in the order of their communicators' ids, and then of their numbers. */
struct ras_state {
  struct ras_rank* ranks;
  size_t nranks;
  struct ras_peer {
    struct peer peer;
    int answered, dead; /* neither: it has not answered in time */
  }* peers;             /* the other processes */
  size_t npeers;
  struct ras_member {
    uint64_t id;
    int32_t rank;
    struct peer peer;
  }* members; /* the ranks of this process's communicators, wherever they are, in the same order */
  size_t nmembers;
  double seconds; /* that asking took */
  int timeouts;
};

/* ras_own appends the ranks of this process; for_others leaves out the rest: peers and members. */
int ras_own(struct ras_state* s, int for_others);

/* ras_ask asks the other processes, for at most so many milliseconds. */
void ras_ask(struct ras_state* s, int milliseconds);

/* ras_text and ras_json write the report to a stream. */
struct ras_out;
void ras_text(const struct ras_state* s, int verbose, struct ras_out* out);
void ras_json(const struct ras_state* s, struct ras_out* out);
void ras_free(struct ras_state* s);

/* Text that grows. */
struct ras_out {
  char* text;
  size_t n, room;
  int failed;
};
void ras_print(struct ras_out* out, const char* format, ...) __attribute__((format(printf, 2, 3)));

/* What a process sends first to another one's service, and what it gets before its ranks. */
struct ras_question {
  char magic[8];
  uint8_t token[PEER_TOKEN];
};
struct ras_answer {
  char magic[8];
  uint32_t ranks, size;
};
#define RAS_ASKS "MSRASQ\0\1"
#define RAS_SAYS "MSRASA\0\1"
