/* What the RAS service knows itself, and what it asks other processes. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cuda.h"
#include "ras.h"
#include "sockets.h"

/* Bounds of what an answer may make this process do: ranks of one process, and of one communicator. */
enum { AT_A_TIME = 64, MOST_RANKS = 1 << 16, MOST_OF_ONE = 1 << 16 };

/* grown makes room for one more element of a list. */
static void* grown(void* list, size_t n, size_t size) {
  if (n & (n - 1)) return list; /* room is a power of two */
  return realloc(list, (n ? 2 * n : 1) * size);
}

static int add_rank(struct ras_state* s, const struct ras_rank* r) {
  struct ras_rank* bigger = grown(s->ranks, s->nranks, sizeof *bigger);
  if (bigger == NULL) return 0;
  s->ranks = bigger;
  s->ranks[s->nranks++] = *r;
  return 1;
}

static int add_member(struct ras_state* s, uint64_t id, int rank, const struct peer* p) {
  struct ras_member* bigger = grown(s->members, s->nmembers, sizeof *bigger);
  if (bigger == NULL) return 0;
  s->members = bigger;
  s->members[s->nmembers++] = (struct ras_member){id, rank, *p};
  return 1;
}

static int add_peer(struct ras_state* s, const struct peer* p) {
  struct ras_peer* bigger = grown(s->peers, s->npeers, sizeof *bigger);
  if (bigger == NULL) return 0;
  s->peers = bigger;
  s->peers[s->npeers++] = (struct ras_peer){.peer = *p};
  return 1;
}

/* ---- this process ---- */

struct walk {
  struct ras_state* state;
  int for_others, failed;
};

static void note(ncclComm_t c, void* with) {
  struct walk* w = with;
  if (!atomic_load_explicit(&c->known, memory_order_acquire)) return; /* its ranks have not met */
  const struct peer* peers = atomic_load_explicit(&c->peers, memory_order_acquire);
  int state = atomic_load(&c->state);
  struct ras_rank r = {.id = c->id, .rank = c->rank, .nranks = c->nranks, .device = c->device < 0 ? 0 : c->device, .pid = (int32_t)getpid(), .nvml = c->nvml};
  if (peers == NULL && state != ncclSuccess)
    r.init = state;
  else if (state != ncclSuccess && state != ncclInProgress)
    r.error = state;
  r.finalized = atomic_load(&c->finalized) != 0;
  r.destroyed = atomic_load(&c->given_up) != 0;
  r.aborted = atomic_load(&c->aborted) != 0;
  for (int i = 0; i < COUNTED; i++) r.counts[i] = atomic_load_explicit(&c->counts[i], memory_order_relaxed);
  struct peer self = {0};
  ras_describe(&self);
  peer_host(&self, r.host, sizeof r.host);
  if (strcmp(r.host, "unknown") == 0) r.host[0] = 0;
  w->failed |= !add_rank(w->state, &r);
  for (int i = 0; peers && !w->for_others && i < c->nranks; i++) w->failed |= !add_member(w->state, c->id, i, &peers[i]);
}

static int by_rank(const void* a, const void* b) {
  const struct ras_rank *x = a, *y = b;
  return x->id != y->id ? (x->id < y->id ? -1 : 1) : (x->rank > y->rank) - (x->rank < y->rank);
}

static int by_member(const void* a, const void* b) {
  const struct ras_member *x = a, *y = b;
  return x->id != y->id ? (x->id < y->id ? -1 : 1) : (x->rank > y->rank) - (x->rank < y->rank);
}

static int by_token(const void* a, const void* b) {
  return memcmp(((const struct ras_member*)a)->peer.token, ((const struct ras_member*)b)->peer.token, PEER_TOKEN);
}

/* find_peers lists each other process once that has a service. */
static int find_peers(struct ras_state* s) {
  if (s->nmembers) qsort(s->members, s->nmembers, sizeof *s->members, by_token);
  for (size_t i = 0; i < s->nmembers; i++) {
    const struct peer* p = &s->members[i].peer;
    if (i > 0 && memcmp(p->token, s->members[i - 1].peer.token, PEER_TOKEN) == 0) continue;
    if (!ras_serves(p) || ras_is_self(p)) continue;
    if (!add_peer(s, p)) return 0;
  }
  if (s->nmembers) qsort(s->members, s->nmembers, sizeof *s->members, by_member);
  return 1;
}

int ras_own(struct ras_state* s, int for_others) {
  struct walk w = {s, for_others, 0};
  comms_each(note, &w);
  if (s->nranks) qsort(s->ranks, s->nranks, sizeof *s->ranks, by_rank);
  return !w.failed && (for_others || find_peers(s));
}

/* ---- the others ---- */

/* One question under way: the process, and what has come of its answer. */
struct asking {
  struct ras_peer* peer;
  int fd;
  size_t sent, have, room;
  char* answer;
};

/* begin connects. A process that refuses is none any more. */
static void begin(struct asking* a, struct ras_peer* p) {
  struct sockaddr_storage at;
  socklen_t n = address_get(p->peer.address, &at);
  *a = (struct asking){.peer = p, .fd = sockets_new(at.ss_family)};
  if (a->fd >= 0 && connect(a->fd, (struct sockaddr*)&at, n) != 0 && errno != EINPROGRESS) {
    p->dead = errno == ECONNREFUSED;
    sockets_close(a->fd);
    a->fd = -1;
  }
}

static void end(struct asking* a) {
  sockets_close(a->fd);
  free(a->answer);
  *a = (struct asking){.fd = -1};
}

/* take reads an answer that is complete. */
static void take(struct ras_state* s, struct asking* a) {
  struct ras_answer head;
  struct ras_rank r;
  memcpy(&head, a->answer, sizeof head);
  a->peer->answered = 1;
  for (uint32_t i = 0; i < head.ranks; i++) {
    memcpy(&r, a->answer + sizeof head + i * sizeof r, sizeof r);
    r.host[sizeof r.host - 1] = 0;
    if (r.host[strspn(r.host, "0123456789abcdefABCDEF.:")]) r.host[0] = 0; /* no address: it goes into a report */
    if (r.rank >= 0 && r.rank < r.nranks && r.nranks <= MOST_OF_ONE) add_rank(s, &r);
  }
}

/* receive returns 1 when the answer is complete, and -1 when there will be none. */
static int receive(struct asking* a) {
  struct ras_answer head;
  size_t want = sizeof head;
  if (a->have >= sizeof head) {
    memcpy(&head, a->answer, sizeof head);
    if (memcmp(head.magic, RAS_SAYS, sizeof head.magic) != 0 || head.size != sizeof(struct ras_rank) || head.ranks > MOST_RANKS) return -1;
    want += (size_t)head.ranks * head.size;
    if (a->have == want) return 1;
  }
  if (want > a->room) {
    char* bigger = realloc(a->answer, want);
    if (bigger == NULL) return -1;
    a->answer = bigger;
    a->room = want;
  }
  ssize_t n = recv(a->fd, a->answer + a->have, want - a->have, MSG_DONTWAIT);
  if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
  if (n == 0) return -1;
  a->have += (size_t)n;
  return a->have == want && want > sizeof head ? 1 : receive(a);
}

/* proceed sends the question, then reads the answer. It returns as receive does. */
static int proceed(struct asking* a) {
  struct ras_question q;
  memcpy(q.magic, RAS_ASKS, sizeof q.magic);
  memcpy(q.token, a->peer->peer.token, sizeof q.token);
  if (a->sent < sizeof q) {
    int err = 0;
    socklen_t n = sizeof err;
    if (getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &err, &n) != 0 || err) {
      a->peer->dead = err == ECONNREFUSED;
      return -1;
    }
    ssize_t m = send(a->fd, (char*)&q + a->sent, sizeof q - a->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (m < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
    a->sent += (size_t)m;
    return 0;
  }
  return receive(a);
}

void ras_ask(struct ras_state* s, int milliseconds) {
  struct asking all[AT_A_TIME];
  struct pollfd set[AT_A_TIME];
  int64_t started = sockets_now(), until = started + milliseconds;
  size_t next = 0, under_way = 0;
  while (sockets_now() < until) {
    while (under_way < AT_A_TIME && next < s->npeers) {
      begin(&all[under_way], &s->peers[next++]);
      under_way += all[under_way].fd >= 0;
    }
    if (under_way == 0) break;
    for (size_t i = 0; i < under_way; i++) set[i] = (struct pollfd){.fd = all[i].fd, .events = all[i].sent < sizeof(struct ras_question) ? POLLOUT : POLLIN};
    int64_t left = until - sockets_now();
    if (poll(set, (nfds_t)under_way, left > 0 ? (int)left : 0) <= 0) continue;
    for (size_t i = under_way; i-- > 0;) { /* from the last: one that ends gives its place to the last */
      int done = set[i].revents ? proceed(&all[i]) : 0;
      if (done == 0) continue;
      if (done > 0) take(s, &all[i]);
      end(&all[i]);
      all[i] = all[--under_way];
    }
  }
  s->timeouts = (int)(under_way + s->npeers - next);
  while (under_way) end(&all[--under_way]);
  s->seconds = (double)(sockets_now() - started) / 1000;
  if (s->nranks) qsort(s->ranks, s->nranks, sizeof *s->ranks, by_rank);
}

void ras_free(struct ras_state* s) {
  free(s->ranks);
  free(s->peers);
  free(s->members);
}
