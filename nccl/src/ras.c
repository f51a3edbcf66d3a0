/* The RAS service: its listeners, and the conversation with a client. */
#define _GNU_SOURCE
#include "ras.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "env.h"
#include "group.h"
#include "interfaces.h"
#include "log.h"
#include "sockets.h"

/* A client of NCCL 2.24 to 2.30 speaks protocol 2. It is silent for at most PATIENCE, and another process, which asks at once unless its
 * machine is very busy, for at most OTHERS_PATIENCE. MOST_CLIENTS are served at a time, and beside them MOST_OTHERS processes, which
 * clients do not keep out. */
enum { PORT = 28028, PROTOCOL = 2, PATIENCE = 30000, OTHERS_PATIENCE = 10000, MOST_CLIENTS = 16, MOST_OTHERS = 64, USUAL = 5000, MOST = 60000 };

static int clients = -1, others = -1; /* listeners */
static uint8_t token[PEER_TOKEN], address[PEER_ADDRESS];
static int serves; /* other processes may ask */
static atomic_int served_clients, served_others;

/* ---- a conversation ---- */

struct client {
  int fd, json, verbose, milliseconds;
};

static int say(const struct client* c, const char* text, size_t n) { return sockets_move(c->fd, (void*)(uintptr_t)text, n, 1, sockets_now() + PATIENCE) == 1; }

static void report(const struct client* c, int verbose) {
  struct ras_state s = {0};
  struct ras_out out = {0};
  if (ras_own(&s, 0)) {
    ras_ask(&s, c->milliseconds);
    if (c->json)
      ras_json(&s, &out);
    else
      ras_text(&s, verbose, &out);
  }
  if (!out.failed && out.n)
    say(c, out.text, out.n);
  else
    say(c, "ERROR: out of memory\n", 21);
  free(out.text);
  ras_free(&s);
}

static const char* after(const char* line, const char* begin) {
  size_t n = strlen(begin);
  return strncasecmp(line, begin, n) == 0 ? line + n : NULL;
}

/* obey answers one line. It returns 0 when the conversation is over. */
static int obey(struct client* c, const char* line) {
  struct ras_out out = {0};
  const char* rest;
  int verbose = strcasecmp(line, "verbose status") == 0;
  if (verbose || strcasecmp(line, "status") == 0) {
    report(c, verbose);
    return 0;
  }
  if (after(line, "client protocol ")) {
    ras_print(&out, "SERVER PROTOCOL %d\n", PROTOCOL);
  } else if ((rest = after(line, "timeout "))) {
    char* end;
    double seconds = strtod(rest, &end);
    if (end == rest || *end || !(seconds >= 0 && seconds < 1e9)) {
      ras_print(&out, "ERROR: Invalid timeout value %s\n", rest);
    } else { /* 0 stands for no limit: there is one all the same */
      c->milliseconds = seconds == 0 || seconds * 1000 > MOST ? MOST : (int)(seconds * 1000);
      ras_print(&out, "OK\n");
    }
  } else if ((rest = after(line, "set format "))) {
    int json = strcasecmp(rest, "json") == 0;
    if (json || strcasecmp(rest, "text") == 0) c->json = json;
    ras_print(&out, json || strcasecmp(rest, "text") == 0 ? "OK\n" : "ERROR: Invalid format %s\n", rest);
  } else {
    ras_print(&out, "ERROR: Unknown command %s\n", line);
  }
  int heard = !out.failed && say(c, out.text, out.n);
  free(out.text);
  return heard;
}

static void converse(int fd) {
  struct client c = {.fd = fd, .milliseconds = USUAL};
  char line[512];
  size_t n = 0;
  int64_t until = sockets_now() + PATIENCE;
  while (n < sizeof line && sockets_move(fd, line + n, 1, 0, until) == 1) {
    if (line[n++] != '\n') continue;
    line[--n] = 0;
    if (n > 0 && line[n - 1] == '\r') line[n - 1] = 0; /* of telnet */
    if (!obey(&c, line)) return;
    n = 0;
    until = sockets_now() + PATIENCE;
  }
}

/* ---- what other processes ask ---- */

static void answer(int fd) {
  struct ras_question q;
  struct ras_state s = {0};
  if (sockets_move(fd, &q, sizeof q, 0, sockets_now() + OTHERS_PATIENCE) != 1 || memcmp(q.magic, RAS_ASKS, sizeof q.magic) != 0 || !serves || !sockets_equal(q.token, token, sizeof token)) return;
  if (ras_own(&s, 1)) {
    struct ras_answer a = {.ranks = (uint32_t)s.nranks, .size = sizeof *s.ranks};
    memcpy(a.magic, RAS_SAYS, sizeof a.magic);
    int64_t until = sockets_now() + PATIENCE;
    if (sockets_move(fd, &a, sizeof a, 1, until) == 1) sockets_move(fd, s.ranks, s.nranks * sizeof *s.ranks, 1, until);
  }
  ras_free(&s);
}

/* ---- the thread ---- */

static void* serve_client(void* with) {
  int fd = (int)(intptr_t)with;
  name_thread("NCCL RAS");
  converse(fd);
  sockets_close(fd);
  atomic_fetch_sub(&served_clients, 1);
  return NULL;
}

static void* serve_other(void* with) {
  int fd = (int)(intptr_t)with;
  name_thread("NCCL RAS");
  answer(fd);
  sockets_close(fd);
  atomic_fetch_sub(&served_others, 1);
  return NULL;
}

static int take(int listener, void* (*serve)(void*), atomic_int* served) {
  int fd = sockets_accept(listener);
  if (fd < 0) return errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
  pthread_t thread;
  atomic_fetch_add(served, 1);
  if (start_thread(&thread, 1, serve, (void*)(intptr_t)fd) != 0) {
    sockets_close(fd);
    atomic_fetch_sub(served, 1);
  }
  return 1;
}

/* refuse tells a client that there are too many: the text fits into the buffer of a new connection. That is open for a while: what the
 * client has said is unread, and a connection that ends so may lose the text. */
static int refused = -1;
enum { LINGER = 1000 };

static int refuse(void) {
  char text[96];
  int fd = sockets_accept(clients);
  if (fd < 0) return errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
  int n = snprintf(text, sizeof text, "ERROR: %d clients are served already: expected one of them to end first\n", MOST_CLIENTS);
  (void)!send(fd, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
  shutdown(fd, SHUT_WR);
  sockets_close(refused);
  refused = fd;
  return 1;
}

static void* serve(void* unused) {
  (void)unused;
  name_thread("NCCL RAS");
  for (;;) {
    int full = atomic_load(&served_others) >= MOST_OTHERS; /* they wait in the queue of the listener */
    struct pollfd p[2] = {{.fd = clients, .events = POLLIN}, {.fd = full ? -1 : others, .events = POLLIN}};
    int ready = poll(p, 2, full ? 20 : refused >= 0 ? LINGER : -1), taken = ready >= 0;
    if (ready == 0 && !full) {
      sockets_close(refused);
      refused = -1;
    }
    if (ready > 0 && p[0].revents) taken = atomic_load(&served_clients) < MOST_CLIENTS ? take(clients, serve_client, &served_clients) : refuse();
    if (ready > 0 && taken && p[1].revents) taken = take(others, serve_other, &served_others);
    if (!taken) poll(NULL, 0, 100); /* no descriptors are left: a connection waits */
  }
  return NULL;
}

/* ---- the start ---- */

/* shown writes an address as NCCL does: 127.0.0.1<28028>. */
static const char* shown(const struct sockaddr_storage* a, char* text, size_t size) {
  char number[64] = "?";
  int four = a->ss_family == AF_INET;
  const void* at = four ? (const void*)&((const struct sockaddr_in*)a)->sin_addr : (const void*)&((const struct sockaddr_in6*)a)->sin6_addr;
  inet_ntop(a->ss_family, at, number, sizeof number);
  snprintf(text, size, "%s<%d>", number, ntohs(four ? ((const struct sockaddr_in*)a)->sin_port : ((const struct sockaddr_in6*)a)->sin6_port));
  return text;
}

static void listen_for_clients(void) {
  struct sockaddr_storage at = {0};
  char text[96];
  const char *named = setting("NCCL_RAS_ADDR"), *why;
  if (named && *named) {
    struct addrinfo* found = address_find(named, &why);
    if (found == NULL) {
      log_info(SUB_INIT | SUB_RAS, -1, "RAS failed to establish a client listening socket at %s: %s", named, why);
      return;
    }
    memcpy(&at, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
  }
  if (named == NULL || *named == 0) {
    struct sockaddr_in* in = (struct sockaddr_in*)&at;
    in->sin_family = AF_INET;
    in->sin_port = htons(PORT);
    in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  clients = sockets_listen(&at, 1);
  if (clients < 0)
    log_info(SUB_INIT | SUB_RAS, -1, "RAS failed to establish a client listening socket at %s: %s", shown(&at, text, sizeof text), strerror(errno));
  else
    log_info(SUB_INIT | SUB_RAS, -1, "RAS client listening socket at %s", shown(&at, text, sizeof text));
}

static void listen_for_others(void) {
  struct interface_address found;
  if (getrandom(token, sizeof token, 0) != sizeof token || interfaces_find(&found, 1) != 1 || (others = sockets_listen(&found.addr, 0)) < 0) return;
  address_put(address, &found.addr);
  serves = 1;
}

static void start(void) {
  pthread_t thread;
  if (setting_number("NCCL_RAS_ENABLE", 1) == 0) return;
  listen_for_clients();
  listen_for_others();
  if (clients < 0 && others < 0) return;
  if (start_thread(&thread, 1, serve, NULL) == 0) return;
  sockets_close(clients);
  sockets_close(others);
  serves = 0;
  log_info(SUB_INIT | SUB_RAS, -1, "RAS cannot start its thread");
}

void ras_start(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, start);
}

int ras_serves(const struct peer* p) {
  static const uint8_t none[PEER_TOKEN];
  return memcmp(p->token, none, sizeof none) != 0;
}

int ras_is_self(const struct peer* p) {
  if (serves || ras_serves(p)) return serves && memcmp(p->token, token, sizeof token) == 0;
  return p->host == peers_this_host() && p->pid == (int32_t)getpid();
}

void ras_describe(struct peer* p) {
  if (!serves) return;
  memcpy(p->token, token, sizeof token);
  memcpy(p->address, address, sizeof address);
}
