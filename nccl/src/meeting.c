#define _GNU_SOURCE
#include "meeting.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "group.h"
#include "interfaces.h"
#include "log.h"
#include "sockets.h"

/* Layout of an id; framework/bootstrap/uniqueid.go has the same.
 *
 *   0  "MSID"
 *   4  u8 version 1 | u8 number of addresses | u8 flags | u8 0
 *   8  job id, 16 bytes
 *  24  secret, 32 bytes
 *  56  up to 3 addresses: 16 bytes IPv6 (IPv4 mapped), u16 port, big-endian
 * 110  token of the meeting place, 14 bytes
 * 124  u32 CRC-32 of all before, little-endian
 */
enum { ADDRESSES = 3, TOKEN = 14, AT_ADDRESSES = 56, AT_TOKEN = 110, AT_SUM = 124, FLAG_MEETING = 2 };

/* A question of a rank, and the answer. All numbers are big-endian. */
struct question {
  char magic[4]; /* "MSMQ" */
  uint8_t version, kind, addresses, zero;
  uint8_t token[TOKEN], zero2[2];
  uint32_t rank, size;
  uint8_t address[ADDRESSES][18]; /* of rank 0, if that asks */
  uint8_t zero3[2];
} __attribute__((packed));

struct answer {
  char magic[4]; /* "MSMA" */
  uint8_t version, status, addresses, zero;
  uint8_t address[ADDRESSES][18];
  uint8_t zero2[2];
} __attribute__((packed));

enum { KIND_LISTENS = 1, KIND_ASKS = 2 };
enum { STATUS_KNOWN = 0, STATUS_NO_SUCH_ID = 1, STATUS_TAKEN = 2, STATUS_SIZE_DIFFERS = 3 };

/* A client has this long for its question, in milliseconds; then it may wait for rank 0 as long
 * as its connection lasts. */
enum { PATIENCE = 10000, CLIENTS = 4096 };

struct job {
  struct job* next;
  uint8_t token[TOKEN];
  uint32_t size, answered; /* size 0: nobody has asked yet */
  int known;
  struct answer where;
};

struct client {
  int fd;
  size_t have;
  struct question q;
  int64_t since;
  struct job* waits; /* for rank 0 of this job */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all below; the thread holds it while it works, not while it waits */
static struct job* jobs;
static struct client* clients;
static int nclients, capacity;
static int listeners[ADDRESSES], nlisteners;
static struct sockaddr_storage addresses[ADDRESSES];
static int running;
static int64_t paused; /* until then no connection is taken: there are no descriptors for them */

static uint32_t crc32(const uint8_t* p, size_t n) {
  uint32_t c = ~0u;
  for (; n; n--) {
    c ^= *p++;
    for (int i = 0; i < 8; i++) c = c >> 1 ^ (c & 1 ? 0xedb88320u : 0);
  }
  return ~c;
}

static void seal(uint8_t* id) {
  uint32_t sum = crc32(id, AT_SUM);
  for (int i = 0; i < 4; i++) id[AT_SUM + i] = (uint8_t)(sum >> 8 * i);
}

/* ---- the thread ---- */

static void drop(int i) {
  sockets_close(clients[i].fd);
  clients[i] = clients[--nclients];
}

/* reply answers and closes. The answer fits into the buffer of a new socket. */
static void reply(int i, const struct answer* a, uint8_t status) {
  struct answer out = *a;
  memcpy(out.magic, "MSMA", 4);
  out.version = 1;
  out.status = status;
  (void)!send(clients[i].fd, &out, sizeof out, MSG_NOSIGNAL | MSG_DONTWAIT);
  shutdown(clients[i].fd, SHUT_WR);
  drop(i);
}

static void forget(struct job* j) {
  for (struct job** at = &jobs; *at; at = &(*at)->next)
    if (*at == j) {
      *at = j->next;
      free(j);
      return;
    }
}

static void answered(struct job* j) {
  if (++j->answered >= j->size) forget(j); /* every rank knows */
}

/* settle answers those who wait for rank 0 of a job, which has come. */
static void settle(struct job* j) {
  uint32_t n = 0;
  for (int i = nclients - 1; i >= 0; i--)
    if (clients[i].waits == j) {
      reply(i, &j->where, STATUS_KNOWN);
      n++;
    }
  j->answered += n;
}

/* asked handles a complete question of client i. */
static void asked(int i) {
  static const struct answer nothing;
  const struct question* q = &clients[i].q;
  struct job* j = jobs;
  while (j && !sockets_equal(j->token, q->token, TOKEN)) j = j->next;
  if (memcmp(q->magic, "MSMQ", 4) != 0 || q->version != 1 || j == NULL) {
    reply(i, &nothing, STATUS_NO_SUCH_ID);
    return;
  }
  uint32_t size = ntohl(q->size);
  if (j->size == 0) j->size = size;
  if (size == 0) {
    reply(i, &nothing, STATUS_SIZE_DIFFERS);
    return;
  } /* ranks that do not agree on it find out at rank 0, which then knows as well */
  if (q->kind == KIND_LISTENS) {
    if (j->known || q->addresses == 0 || q->addresses > ADDRESSES) {
      reply(i, &nothing, STATUS_TAKEN);
      return;
    }
    j->known = 1;
    j->where.addresses = q->addresses;
    memcpy(j->where.address, q->address, sizeof j->where.address);
    reply(i, &j->where, STATUS_KNOWN);
    settle(j);
    answered(j);
  } else if (j->known) {
    reply(i, &j->where, STATUS_KNOWN);
    answered(j);
  } else {
    clients[i].waits = j;
  }
}

static void readable(int i) {
  struct client* c = &clients[i];
  char more;
  ssize_t n = c->waits ? recv(c->fd, &more, 1, MSG_DONTWAIT)
                       : recv(c->fd, (char*)&c->q + c->have, sizeof c->q - c->have, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0 || c->waits) { /* gone, or it says more than it should */
    drop(i);
    return;
  }
  c->have += (size_t)n;
  if (c->have == sizeof c->q) asked(i);
}

static void accept_client(int listener) {
  int fd = sockets_accept(listener);
  if (fd < 0) {
    if (errno == EMFILE || errno == ENFILE) paused = sockets_now() + 100;
    return;
  }
  if (nclients == CLIENTS) { /* the one that has been silent longest makes room */
    int oldest = -1;
    for (int i = 0; i < nclients; i++)
      if (!clients[i].waits && (oldest < 0 || clients[i].since < clients[oldest].since)) oldest = i;
    if (oldest < 0) {
      sockets_close(fd);
      return;
    }
    drop(oldest);
  }
  if (nclients == capacity) {
    int more = capacity ? 2 * capacity : 64;
    struct client* bigger = realloc(clients, (size_t)more * sizeof *bigger);
    if (bigger == NULL) {
      sockets_close(fd);
      return;
    }
    clients = bigger;
    capacity = more;
  }
  clients[nclients++] = (struct client){.fd = fd, .since = sockets_now()};
}

static void* serve(void* unused) {
  (void)unused;
  name_thread("NCCL Bootstrap");
  struct pollfd* set = NULL;
  int room = 0;
  pthread_mutex_lock(&lock);
  for (;;) {
    int n = nlisteners + nclients;
    if (n > room) {
      struct pollfd* bigger = realloc(set, (size_t)(n + 64) * sizeof *set);
      if (bigger) {
        set = bigger;
        room = n + 64;
      } else {
        n = room; /* the others wait for the next turn */
      }
    }
    int64_t now = sockets_now(), next = now < paused ? paused - now : -1;
    for (int i = 0; i < n; i++) {
      set[i] = (struct pollfd){.events = POLLIN};
      set[i].fd = i < nlisteners ? (now < paused ? -1 : listeners[i]) : clients[i - nlisteners].fd;
      if (i >= nlisteners && !clients[i - nlisteners].waits) {
        int64_t left = clients[i - nlisteners].since + PATIENCE - now;
        if (left < 0) left = 0;
        if (next < 0 || left < next) next = left;
      }
    }
    int had = n - nlisteners;
    pthread_mutex_unlock(&lock);
    int ready = poll(set, (nfds_t)n, (int)next);
    pthread_mutex_lock(&lock);
    now = sockets_now();
    /* From the last to the first: drop moves the last client to the place of the one that goes,
     * which has been looked at. */
    for (int i = had - 1; i >= 0; i--) {
      if (ready > 0 && set[nlisteners + i].revents) {
        int before = nclients;
        readable(i);
        if (nclients < before - 1) break; /* settle dropped several: the numbers are others now */
      } else if (!clients[i].waits && clients[i].since + PATIENCE <= now) {
        drop(i);
      }
    }
    for (int i = 0; i < nlisteners; i++)
      if (ready > 0 && set[i].revents) accept_client(listeners[i]);
  }
  return NULL;
}

/* ---- ids ---- */

/* raise_limit lets the process have as many descriptors as it may: each rank that asks is one. */
static void raise_limit(void) {
  struct rlimit r;
  if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur >= r.rlim_max) return;
  r.rlim_cur = r.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &r); /* without, a large job waits for its turn */
}

/* start opens the listeners and starts the thread, once a process. */
static ncclResult_t start(void) {
  if (running) return ncclSuccess;
  raise_limit();
  struct interface_address found[ADDRESSES];
  int n = interfaces_find(found, ADDRESSES);
  for (int i = 0; i < n; i++) {
    int fd = sockets_listen(&found[i].addr, 0);
    if (fd < 0) continue;
    addresses[nlisteners] = found[i].addr;
    listeners[nlisteners++] = fd;
  }
  if (nlisteners == 0)
    return fail(ncclSystemError, "Bootstrap : no socket interface found: expected a network interface that is up%s",
                n ? ", and a free port on it" : "; NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY restrict the choice");
  pthread_t thread;
  int err = start_thread(&thread, 1, serve, NULL);
  if (err) {
    while (nlisteners) sockets_close(listeners[--nlisteners]);
    return fail(ncclSystemError, "cannot start the thread of an id's meeting place: %s", strerror(err));
  }
  running = 1;
  return ncclSuccess;
}

ncclResult_t meeting_create(ncclUniqueId* id) {
  uint8_t* b = (uint8_t*)id->internal;
  memset(b, 0, sizeof id->internal);
  struct job* j = calloc(1, sizeof *j);
  if (j == NULL) return fail(ncclSystemError, "out of memory for an id");
  uint8_t random[48 + TOKEN];
  for (size_t have = 0; have < sizeof random;) {
    ssize_t n = getrandom(random + have, sizeof random - have, 0);
    if (n > 0) have += (size_t)n;
    if (n < 0 && errno != EINTR) {
      free(j);
      return fail(ncclSystemError, "getrandom: %s", strerror(errno));
    }
  }
  pthread_mutex_lock(&lock);
  ncclResult_t r = start();
  if (r == ncclSuccess) {
    memcpy(b, "MSID\1", 5);
    b[5] = (uint8_t)nlisteners;
    b[6] = FLAG_MEETING;
    memcpy(b + 8, random, 48);
    memcpy(b + AT_TOKEN, random + 48, TOKEN);
    for (int i = 0; i < nlisteners; i++) address_put(b + AT_ADDRESSES + 18 * i, &addresses[i]);
    seal(b);
    memcpy(j->token, random + 48, TOKEN);
    j->next = jobs;
    jobs = j;
  }
  pthread_mutex_unlock(&lock);
  if (r != ncclSuccess) free(j);
  return r;
}

ncclResult_t meeting_at(const char* address, ncclUniqueId* id) {
  const char* why;
  struct addrinfo* found = address_find(address, &why);
  if (found == NULL) return fail(ncclInvalidArgument, "NCCL_COMM_ID is \"%s\": %s", address, why);
  uint8_t* b = (uint8_t*)id->internal;
  memset(b, 0, sizeof id->internal);
  memcpy(b, "MSID\1", 5);
  for (struct addrinfo* a = found; a && b[5] < ADDRESSES; a = a->ai_next) {
    struct sockaddr_storage s = {0};
    memcpy(&s, a->ai_addr, a->ai_addrlen);
    address_put(b + AT_ADDRESSES + 18 * b[5]++, &s);
  }
  freeaddrinfo(found);
  /* Everybody makes the same id from the same text: there is no secret in it. */
  snprintf((char*)b + 8, 16, "%08x", crc32((const uint8_t*)address, strlen(address)));
  seal(b);
  return ncclSuccess;
}

int meeting_check(const ncclUniqueId* id, const char** text) {
  const uint8_t* b = (const uint8_t*)id->internal;
  uint32_t sum = crc32(b, AT_SUM);
  uint32_t got = b[AT_SUM] | b[AT_SUM + 1] << 8 | b[AT_SUM + 2] << 16 | (uint32_t)b[AT_SUM + 3] << 24;
  if (memcmp(b, "MSID", 4) != 0)
    *text = "expected an id of ncclGetUniqueId of this library: another NCCL has made it, or nobody";
  else if (b[4] != 1)
    *text = "expected an id of version 1: another version of this library has made it";
  else if (sum != got)
    *text = "wrong checksum: the id was cut or changed on its way";
  else if (b[5] == 0 || b[5] > ADDRESSES)
    *text = "expected an id with one to three addresses";
  else
    return 1;
  return 0;
}

void meeting_forget(const ncclUniqueId* id) {
  pthread_mutex_lock(&lock);
  for (struct job* j = jobs; j; j = j->next)
    if (sockets_equal(j->token, (const uint8_t*)id->internal + AT_TOKEN, TOKEN) && j->size == 0) {
      forget(j);
      break;
    }
  pthread_mutex_unlock(&lock);
}

void meeting_in_child(void) {
  nlisteners = nclients = capacity = running = 0;
  clients = NULL;
  jobs = NULL;
  pthread_mutex_init(&lock, NULL);
}
