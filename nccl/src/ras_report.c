/* What the RAS service makes of what it has heard, and the report as JSON, in the schema of NCCL 2.28. */
#define _GNU_SOURCE
#include "ras_report.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "door.h"
#include "version.h"

const char* const ras_status_names[RAS_STATUSES] = {"NOCOMM", "INIT", "RUNNING", "FINALIZE", "ABORT"};

const struct ras_collective ras_collectives[COUNTED] = {
    {"Broadcast", DOOR_BROADCAST}, {"Reduce", DOOR_REDUCE},      {"AllGather", DOOR_ALL_GATHER}, {"ReduceScatter", DOOR_REDUCE_SCATTER},
    {"AllReduce", DOOR_ALL_REDUCE}, {"AlltoAll", DOOR_ALL_TO_ALL}, {"Scatter", DOOR_SCATTER},      {"Gather", DOOR_GATHER},
};

void ras_print(struct ras_out* out, const char* format, ...) {
  char* text;
  va_list args;
  va_start(args, format);
  int n = vasprintf(&text, format, args);
  va_end(args);
  if (n < 0) {
    out->failed = 1;
    return;
  }
  if (out->n + (size_t)n > out->room) {
    size_t room = 2 * (out->n + (size_t)n) + 1024;
    char* bigger = realloc(out->text, room);
    if (bigger == NULL) {
      out->failed = 1;
      free(text);
      return;
    }
    out->text = bigger;
    out->room = room;
  }
  memcpy(out->text + out->n, text, (size_t)n);
  out->n += (size_t)n;
  free(text);
}

enum ras_status ras_status_of(const struct ras_rank* r) {
  if (r->aborted) return RAS_ABORT;
  if (r->finalized || r->destroyed) return RAS_FINALIZE;
  return r->init == ncclSuccess ? RAS_RUNNING : RAS_INIT;
}

/* ---- communicators ---- */

static void look(const struct ras_state* s, struct ras_comm* c) {
  for (int i = 0; i < c->n; i++) {
    const struct ras_rank* r = &c->ranks[i];
    enum ras_status status = ras_status_of(r);
    c->statuses |= 1u << status;
    if (status > c->status) c->status = status;
    if (memcmp(r->counts, c->ranks[0].counts, sizeof r->counts) != 0) c->errors |= RAS_MISMATCH;
    if ((r->init != ncclSuccess && r->init != ncclInProgress) || r->error != ncclSuccess) c->errors |= RAS_ERROR;
  }
  struct ras_missing m;
  int meeting = c->status == RAS_INIT; /* ranks that have not come yet, of which nothing is known, are no fault */
  for (int from = 0; ras_missing(s, c, from, &m); from = m.rank + 1) {
    if (meeting && m.peer == NULL) continue;
    c->silent += m.unresponsive;
    if (!m.unresponsive) c->statuses |= 1u << RAS_NOCOMM;
  }
  if (c->silent) c->errors |= RAS_INCOMPLETE;
  if (c->statuses & (c->statuses - 1)) c->errors |= RAS_MISMATCH;
}

/* by_size has the largest first, and those that look alike beside each other. */
static int by_size(const void* a, const void* b) {
  const struct ras_comm *x = a, *y = b;
  if (x->nranks != y->nranks) return y->nranks - x->nranks;
  if (x->status != y->status) return (int)y->status - (int)x->status;
  if (x->errors != y->errors) return (int)y->errors - (int)x->errors;
  return (x->id > y->id) - (x->id < y->id);
}

struct ras_comm* ras_comms(const struct ras_state* s, size_t* n) {
  struct ras_comm* all = s->nranks ? calloc(s->nranks, sizeof *all) : NULL;
  *n = 0;
  for (size_t i = 0; all && i < s->nranks; i++) {
    if (i == 0 || s->ranks[i].id != s->ranks[i - 1].id) all[(*n)++] = (struct ras_comm){.id = s->ranks[i].id, .ranks = &s->ranks[i], .nranks = s->ranks[i].nranks};
    all[*n - 1].n++;
  }
  for (size_t i = 0; i < *n; i++) look(s, &all[i]);
  if (all) qsort(all, *n, sizeof *all, by_size);
  return all;
}

static int compare_member(const void* key, const void* member) {
  const struct ras_member *k = key, *m = member;
  return k->id != m->id ? (k->id < m->id ? -1 : 1) : (k->rank > m->rank) - (k->rank < m->rank);
}

int ras_missing(const struct ras_state* s, const struct ras_comm* c, int from, struct ras_missing* out) {
  struct ras_member key = {.id = c->id};
  for (int rank = from; rank < c->nranks; rank++) {
    int low = 0, high = c->n;
    while (low < high) { /* the ranks are in order */
      int middle = (low + high) / 2;
      if (c->ranks[middle].rank < rank)
        low = middle + 1;
      else
        high = middle;
    }
    if (low < c->n && c->ranks[low].rank == rank) continue;
    key.rank = rank;
    const struct ras_member* m = s->nmembers ? bsearch(&key, s->members, s->nmembers, sizeof key, compare_member) : NULL;
    *out = (struct ras_missing){.rank = rank, .peer = m ? &m->peer : NULL, .unresponsive = 1};
    if (m && ras_is_self(&m->peer)) out->unresponsive = 0;
    for (size_t p = 0; m && p < s->npeers; p++)
      if (memcmp(s->peers[p].peer.token, m->peer.token, PEER_TOKEN) == 0) {
        out->unresponsive = !s->peers[p].answered;
        out->dead = s->peers[p].dead;
      }
    return 1;
  }
  return 0;
}

/* ---- JSON ---- */

static const char* yes(int is) { return is ? "true" : "false"; }

static void json_rank(const struct ras_rank* r, struct ras_out* out) {
  ras_print(out, "        {\n          \"rank\": %d,\n          \"host\": \"%s\",\n          \"pid\": %d,\n", r->rank, r->host[0] ? r->host : "unknown", r->pid);
  ras_print(out, "          \"cuda_dev\": %d,\n          \"nvml_dev\": %d,\n", r->device, r->nvml);
  ras_print(out, "          \"status\": {\n            \"init_state\": %d,\n            \"async_error\": %d,\n", r->init, r->error);
  ras_print(out, "            \"finalize_called\": %s,\n            \"destroy_flag\": %s,\n            \"abort_flag\": %s\n          },\n", yes(r->finalized), yes(r->destroyed), yes(r->aborted));
  ras_print(out, "          \"collective_counts\": {\n");
  for (int i = 0; i < COUNTED; i++)
    ras_print(out, "            \"%s\": %llu%s\n", ras_collectives[i].name, (unsigned long long)r->counts[ras_collectives[i].at], i + 1 < COUNTED ? "," : "");
  ras_print(out, "          }\n        }");
}

static void json_missing(const struct ras_missing* m, struct ras_out* out) {
  char host[64];
  ras_print(out, "        {\n          \"rank\": %d,\n          \"host\": \"%s\",\n          \"pid\": %d,\n", m->rank, peer_host(m->peer, host, sizeof host), m->peer ? m->peer->pid : -1);
  ras_print(out, "          \"cuda_dev\": %d,\n          \"nvml_dev\": %d,\n", -1, -1);
  ras_print(out, "          \"status\": {\n            \"unresponsive\": %s,\n            \"considered_dead\": %s\n          }\n        }", yes(m->unresponsive), yes(m->dead));
}

static void json_comm(const struct ras_state* s, const struct ras_comm* c, struct ras_out* out) {
  ras_print(out, "    {\n      \"hash\": \"0x%llx\",\n      \"secondary_hash\": \"0x0:0x0\",\n", (unsigned long long)c->id);
  ras_print(out, "      \"size\": %d,\n      \"ranks_count\": %d,\n      \"missing_ranks_count\": %d,\n      \"ranks\": [\n", c->nranks, c->n, c->nranks - c->n);
  for (int i = 0; i < c->n; i++) {
    if (i) ras_print(out, ",\n");
    json_rank(&c->ranks[i], out);
  }
  ras_print(out, "\n      ],\n      \"missing_ranks\": [\n");
  struct ras_missing m;
  const char* between = "";
  for (int from = 0; ras_missing(s, c, from, &m); from = m.rank + 1) {
    ras_print(out, "%s", between);
    json_missing(&m, out);
    between = ",\n";
  }
  ras_print(out, "\n      ]\n    }");
}

void ras_json(const struct ras_state* s, struct ras_out* out) {
  size_t n;
  char number[32], stamp[64] = "";
  struct ras_comm* comms = ras_comms(s, &n);
  time_t now = time(NULL);
  struct tm local;
  strftime(stamp, sizeof stamp, "%F %T", localtime_r(&now, &local));
  version_number(number, sizeof number);
  ras_print(out, "{\n  \"nccl_version\": \"%s\",\n  \"cuda_runtime_version\": 0,\n  \"cuda_driver_version\": 0,\n", number);
  ras_print(out, "  \"timestamp\": \"%s\",\n  \"communicators_count\": %zu,\n  \"communicators\": [\n", stamp, n);
  for (size_t i = 0; i < n; i++) {
    if (i) ras_print(out, ",\n");
    json_comm(s, &comms[i], out);
  }
  ras_print(out, "\n  ],\n  \"ras\": {\n    \"collection_time_sec\": %.3f,\n    \"timeouts_count\": %d\n  }\n}\n", s->seconds, s->timeouts);
  free(comms);
}
