/* The report of the RAS service as text, with the tables and words of NCCL's. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ras_report.h"
#include "version.h"

enum { DETAILS = 10 }; /* more ranks than that are listed in a verbose report alone */

static const char* plural(int n) { return n == 1 ? "" : "s"; }

/* errors_text joins what is wrong, the worst first. */
static const char* errors_text(unsigned errors, char* text, size_t size) {
  snprintf(text, size, "%s%s%s%s%s", errors & RAS_INCOMPLETE ? "INCOMPLETE" : "", errors & RAS_INCOMPLETE && errors & RAS_ERROR ? "," : "",
           errors & RAS_ERROR ? "ERROR" : "", errors & RAS_MISMATCH && errors & ~RAS_MISMATCH ? "," : "", errors & RAS_MISMATCH ? "MISMATCH" : "");
  return errors ? text : "OK";
}

/* ---- the job ---- */

static int different_hosts(const struct ras_state* s) {
  int n = 0;
  for (size_t i = 0; i < s->nmembers; i++) {
    size_t before = 0;
    while (s->members[before].peer.host != s->members[i].peer.host) before++;
    n += before == i;
  }
  return n ? n : 1;
}

/* different_devices counts devices of processes. */
static int different_devices(const struct ras_state* s) {
  int n = 0;
  for (size_t i = 0; i < s->nranks; i++) {
    size_t before = 0;
    while (s->ranks[before].pid != s->ranks[i].pid || s->ranks[before].device != s->ranks[i].device || strcmp(s->ranks[before].host, s->ranks[i].host) != 0) before++;
    n += before == i;
  }
  return n;
}

static void summary(const struct ras_state* s, struct ras_out* out) {
  char version[160];
  int hosts = different_hosts(s), processes = (int)s->npeers + 1, devices = different_devices(s);
  version_text(version, sizeof version);
  ras_print(out, "%s\n\nJob summary\n===========\n\n", version);
  ras_print(out, "  Nodes  Processes         GPUs  Processes     GPUs\n(total)   per node  per process    (total)  (total)\n");
  ras_print(out, "%7d  %9d  %11d  %9d  %7d\n", hosts, (processes + hosts - 1) / hosts, (devices + processes - 1) / processes, processes, devices);
  ras_print(out, "\nCommunicators... (%.2fs)\n=============\n\n", s->seconds);
}

/* ---- communicators ---- */

static int alike(const struct ras_comm* a, const struct ras_comm* b) { return a->nranks == b->nranks && a->status == b->status && a->errors == b->errors; }

/* hosts_of counts the machines of a communicator by the addresses of its ranks. */
static int hosts_of(const struct ras_comm* c) {
  int n = 0;
  for (int i = 0; i < c->n; i++) {
    int before = 0;
    while (strcmp(c->ranks[before].host, c->ranks[i].host) != 0) before++;
    n += before == i;
  }
  return n ? n : 1;
}

static void table(const struct ras_comm* all, size_t n, struct ras_out* out) {
  char errors[40], share[16];
  if (n == 0) {
    ras_print(out, "No communicator data collected!\n");
    return;
  }
  ras_print(out, "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n    #  in group  per comm  per node  per comm  in group\n");
  int group = 0;
  for (size_t i = 0, next; i < n; i = next) {
    int heard = 0, hosts = hosts_of(&all[i]);
    for (next = i; next < n && alike(&all[next], &all[i]); next++) heard += all[next].n;
    snprintf(share, sizeof share, "%d", (all[i].nranks + hosts - 1) / hosts);
    ras_print(out, "%5d  %8zu  %8d  %8s  %8d  %8d  %8s  %6s\n", group++, next - i, hosts, share, all[i].nranks, heard, ras_status_names[all[i].status], errors_text(all[i].errors, errors, sizeof errors));
  }
}

/* ---- what is wrong ---- */

static void rank_line(const struct ras_rank* r, const char* what, struct ras_out* out) {
  ras_print(out, "  Rank %d%s -- GPU %d managed by process %d on node %s\n", r->rank, what, r->device, r->pid, r->host[0] ? r->host : "unknown");
}

static void missing_line(const struct ras_missing* m, const char* what, struct ras_out* out) {
  char host[64];
  if (m->peer)
    ras_print(out, "  Rank %d%s -- managed by process %d on node %s\n", m->rank, what, m->peer->pid, peer_host(m->peer, host, sizeof host));
  else
    ras_print(out, "  Rank %d%s -- [process information not found]\n", m->rank, what);
}

/* processes lists those that are dead, or those that have not answered. */
static void processes(const struct ras_state* s, int dead, int verbose, struct ras_out* out) {
  char host[64];
  int n = 0;
  for (size_t i = 0; i < s->npeers; i++) n += !s->peers[i].answered && s->peers[i].dead == dead;
  if (n == 0) return;
  if (dead)
    ras_print(out, "DEAD\n  %d job process%s considered dead (unreachable via the RAS network)\n", n, n == 1 ? " is" : "es are");
  else
    ras_print(out, "INCOMPLETE\n  Missing communicator data from %d job process%s\n", n, n == 1 ? "" : "es");
  for (size_t i = 0; i < s->npeers && (verbose || n <= DETAILS); i++)
    if (!s->peers[i].answered && s->peers[i].dead == dead) ras_print(out, "  Process %d on node %s\n", s->peers[i].peer.pid, peer_host(&s->peers[i].peer, host, sizeof host));
  ras_print(out, "\n");
}

static void incomplete(const struct ras_state* s, const struct ras_comm* c, int verbose, struct ras_out* out) {
  ras_print(out, "(%016llx) INCOMPLETE\n  Missing communicator data from %d rank%s\n", (unsigned long long)c->id, c->silent, plural(c->silent));
  struct ras_missing m;
  for (int from = 0; (verbose || c->silent <= DETAILS) && ras_missing(s, c, from, &m); from = m.rank + 1)
    if (m.unresponsive) missing_line(&m, "", out);
  ras_print(out, "\n");
}

static void failed(const struct ras_comm* c, struct ras_out* out) {
  char what[128];
  ras_print(out, "(%016llx) ERROR\n", (unsigned long long)c->id);
  for (int i = 0; i < c->n; i++) {
    const struct ras_rank* r = &c->ranks[i];
    int init = r->init != ncclSuccess && r->init != ncclInProgress;
    if (!init && r->error == ncclSuccess) continue;
    snprintf(what, sizeof what, " has %s error: %s", init ? "initialization" : "asynchronous", ncclGetErrorString((ncclResult_t)(init ? r->init : r->error)));
    rank_line(r, what, out);
  }
  ras_print(out, "\n");
}

static void statuses(const struct ras_state* s, const struct ras_comm* c, int verbose, struct ras_out* out) {
  char what[64];
  ras_print(out, "  Communicator ranks have different status\n");
  for (int status = 0; status < RAS_STATUSES; status++) {
    int n = 0;
    struct ras_missing m;
    for (int i = 0; i < c->n; i++) n += ras_status_of(&c->ranks[i]) == (enum ras_status)status;
    for (int from = 0; status == RAS_NOCOMM && ras_missing(s, c, from, &m); from = m.rank + 1) n += !m.unresponsive;
    if (n == 0) continue;
    snprintf(what, sizeof what, " has status %s", ras_status_names[status]);
    if (n > 1) ras_print(out, "  %d ranks have status %s\n", n, ras_status_names[status]);
    if (!verbose && (n > DETAILS || (n > 1 && n > c->nranks / 4))) continue;
    for (int i = 0; i < c->n; i++)
      if (ras_status_of(&c->ranks[i]) == (enum ras_status)status) rank_line(&c->ranks[i], what, out);
    for (int from = 0; status == RAS_NOCOMM && ras_missing(s, c, from, &m); from = m.rank + 1)
      if (!m.unresponsive) missing_line(&m, what, out);
  }
}

/* counts says which ranks have made how many calls of a collective, where they differ. */
static void counts(const struct ras_comm* c, const struct ras_collective* f, int verbose, struct ras_out* out) {
  char what[64];
  int same = 1;
  for (int i = 1; i < c->n; i++) same &= c->ranks[i].counts[f->at] == c->ranks[0].counts[f->at];
  if (same) return;
  ras_print(out, "  Communicator ranks have different %s operation counts\n", f->name);
  for (int i = 0; i < c->n; i++) {
    unsigned long long value = c->ranks[i].counts[f->at];
    int n = 0, seen = 0;
    for (int j = 0; j < c->n; j++)
      if (c->ranks[j].counts[f->at] == value) {
        n++;
        seen |= j < i;
      }
    if (seen) continue;
    if (value)
      snprintf(what, sizeof what, " has launched up to operation %llu", value);
    else
      snprintf(what, sizeof what, " has not launched any operations");
    if (n > 1 && value) ras_print(out, "  %d ranks have launched up to operation %llu\n", n, value);
    if (n > 1 && !value) ras_print(out, "  %d ranks have not launched any operations\n", n);
    if (!verbose && (n > DETAILS || (n > 1 && n > c->nranks / 4))) continue;
    for (int j = i; j < c->n; j++)
      if (c->ranks[j].counts[f->at] == value) rank_line(&c->ranks[j], what, out);
  }
  ras_print(out, "\n");
}

void ras_text(const struct ras_state* s, int verbose, struct ras_out* out) {
  size_t n;
  struct ras_comm* all = ras_comms(s, &n);
  summary(s, out);
  table(all, n, out);
  ras_print(out, "\nErrors\n======\n\n");
  processes(s, 0, verbose, out);
  processes(s, 1, verbose, out);
  for (size_t i = 0; i < n; i++) {
    if (all[i].errors & RAS_INCOMPLETE) incomplete(s, &all[i], verbose, out);
    if (all[i].errors & RAS_ERROR) failed(&all[i], out);
  }
  ras_print(out, "Warnings\n========\n\n");
  if (s->timeouts) ras_print(out, "TIMEOUT\n  Encountered %d communication timeout%s while gathering communicator data\n\n", s->timeouts, plural(s->timeouts));
  for (size_t i = 0; i < n; i++) {
    if (!(all[i].errors & RAS_MISMATCH)) continue;
    ras_print(out, "(%016llx) MISMATCH\n", (unsigned long long)all[i].id);
    if (all[i].statuses & (all[i].statuses - 1)) statuses(s, &all[i], verbose, out);
    for (int f = 0; f < COUNTED; f++) counts(&all[i], &ras_collectives[f], verbose, out);
  }
  free(all);
}
