/* The RAS service: its listeners, and the conversation with a client. */
#define _GNU_SOURCE
#include "ras.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
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
#include "ras_socket.h"

/* A client of NCCL 2.24 to 2.30 speaks protocol 2. It is silent for at most PATIENCE. MOST_CLIENTS are served
 * at a time, and beside them MOST_OTHERS processes, which clients do not keep out. */
enum { PORT = 28028, PROTOCOL = 2, PATIENCE = 30000, MOST_CLIENTS = 16, MOST_OTHERS = 64, USUAL = 5000, MOST = 60000 };

static int clients = -1, others = -1; /* listeners */
static uint8_t token[PEER_TOKEN], address[PEER_ADDRESS];
static int serves; /* other processes may ask */
static atomic_int served_clients, served_others;

/* ---- a conversation ---- */

struct client {
  int fd, json, verbose, milliseconds;
};

static int say(const struct client* c, const char* text, size_t n) { return ras_move(c->fd, (void*)(uintptr_t)text, n, 1, ras_now() + PATIENCE) == 1; }

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
  int64_t until = ras_now() + PATIENCE;
  while (n < sizeof line && ras_move(fd, line + n, 1, 0, until) == 1) {
    if (line[n++] != '\n') continue;
    line[--n] = 0;
    if (n > 0 && line[n - 1] == '\r') line[n - 1] = 0; /* of telnet */
    if (!obey(&c, line)) return;
    n = 0;
    until = ras_now() + PATIENCE;
  }
}

/* ---- what other processes ask ---- */

static int equal(const uint8_t* a, const uint8_t* b, size_t n) {
  uint8_t d = 0; /* in constant time: the token is a password */
  for (size_t i = 0; i < n; i++) d |= a[i] ^ b[i];
  return d == 0;
}

static void answer(int fd) {
  struct ras_question q;
  struct ras_state s = {0};
  if (ras_move(fd, &q, sizeof q, 0, ras_now() + 2000) != 1 || memcmp(q.magic, RAS_ASKS, sizeof q.magic) != 0 || !serves || !equal(q.token, token, sizeof token)) return;
  if (ras_own(&s, 1)) {
    struct ras_answer a = {.ranks = (uint32_t)s.nranks, .size = sizeof *s.ranks};
    memcpy(a.magic, RAS_SAYS, sizeof a.magic);
    int64_t until = ras_now() + PATIENCE;
    if (ras_move(fd, &a, sizeof a, 1, until) == 1) ras_move(fd, s.ranks, s.nranks * sizeof *s.ranks, 1, until);
  }
  ras_free(&s);
}

/* ---- the thread ---- */

static void* serve_client(void* with) {
  int fd = (int)(intptr_t)with;
  converse(fd);
  ras_close(fd);
  atomic_fetch_sub(&served_clients, 1);
  return NULL;
}

static void* serve_other(void* with) {
  int fd = (int)(intptr_t)with;
  answer(fd);
  ras_close(fd);
  atomic_fetch_sub(&served_others, 1);
  return NULL;
}

static int take(int listener, void* (*serve)(void*), atomic_int* served) {
  int fd = ras_accept(listener);
  if (fd < 0) return errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
  pthread_t thread;
  atomic_fetch_add(served, 1);
  if (start_thread(&thread, 1, serve, (void*)(intptr_t)fd) != 0) {
    ras_close(fd);
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
  int fd = ras_accept(clients);
  if (fd < 0) return errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
  int n = snprintf(text, sizeof text, "ERROR: %d clients are served already: expected one of them to end first\n", MOST_CLIENTS);
  (void)!send(fd, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
  shutdown(fd, SHUT_WR);
  ras_close(refused);
  refused = fd;
  return 1;
}

static void* serve(void* unused) {
  (void)unused;
  for (;;) {
    int full = atomic_load(&served_others) >= MOST_OTHERS; /* they wait in the queue of the listener */
    struct pollfd p[2] = {{.fd = clients, .events = POLLIN}, {.fd = full ? -1 : others, .events = POLLIN}};
    int ready = poll(p, 2, full ? 20 : refused >= 0 ? LINGER : -1), taken = ready >= 0;
    if (ready == 0 && !full) {
      ras_close(refused);
      refused = -1;
    }
    if (ready > 0 && p[0].revents) taken = atomic_load(&served_clients) < MOST_CLIENTS ? take(clients, serve_client, &served_clients) : refuse();
    if (ready > 0 && taken && p[1].revents) taken = take(others, serve_other, &served_others);
    if (!taken) poll(NULL, 0, 100); /* no descriptors are left: a connection waits */
  }
  return NULL;
}

/* ---- the start ---- */

static socklen_t size_of(const struct sockaddr_storage* a) { return a->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6); }

/* shown writes an address as NCCL does: 127.0.0.1<28028>. */
static const char* shown(const struct sockaddr_storage* a, char* text, size_t size) {
  char number[64] = "?";
  int four = a->ss_family == AF_INET;
  const void* at = four ? (const void*)&((const struct sockaddr_in*)a)->sin_addr : (const void*)&((const struct sockaddr_in6*)a)->sin6_addr;
  inet_ntop(a->ss_family, at, number, sizeof number);
  snprintf(text, size, "%s<%d>", number, ntohs(four ? ((const struct sockaddr_in*)a)->sin_port : ((const struct sockaddr_in6*)a)->sin6_port));
  return text;
}

static int listen_on(struct sockaddr_storage* at, int shared) {
  int one = 1, fd = ras_socket(at->ss_family);
  socklen_t n = sizeof *at;
  if (fd < 0) return -1;
  if (shared) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (shared) setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one); /* any process of a user's answers */
  if (bind(fd, (struct sockaddr*)at, size_of(at)) == 0 && listen(fd, 128) == 0 && getsockname(fd, (struct sockaddr*)at, &n) == 0) return fd;
  int err = errno;
  ras_close(fd);
  errno = err;
  return -1;
}

/* find_address reads NCCL_RAS_ADDR; by default, and where the name is localhost, no resolver is asked. */
static int find_address(const char* text, struct sockaddr_storage* out) {
  char host[256];
  const char* colon = strrchr(text, ':');
  size_t n = colon ? (size_t)(colon - text) : 0;
  if (n == 0 || n >= sizeof host || colon[1] == 0) return 0;
  memcpy(host, text, n);
  host[n] = 0;
  if (host[0] == '[' && host[n - 1] == ']') {
    memmove(host, host + 1, n - 2);
    host[n - 2] = 0;
  }
  struct addrinfo hint = {.ai_socktype = SOCK_STREAM}, *found = NULL;
  if (getaddrinfo(strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, colon + 1, &hint, &found) != 0) return 0;
  memset(out, 0, sizeof *out);
  memcpy(out, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  return 1;
}

static void listen_for_clients(void) {
  struct sockaddr_storage at = {0};
  char text[96];
  const char* named = setting("NCCL_RAS_ADDR");
  if (named && *named && !find_address(named, &at)) {
    log_info(SUB_INIT | SUB_RAS, -1, "RAS failed to establish a client listening socket at %s: expected <ipv4>:<port>, [<ipv6>]:<port> or <host>:<port>", named);
    return;
  }
  if (named == NULL || *named == 0) {
    struct sockaddr_in* in = (struct sockaddr_in*)&at;
    in->sin_family = AF_INET;
    in->sin_port = htons(PORT);
    in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  clients = listen_on(&at, 1);
  if (clients < 0)
    log_info(SUB_INIT | SUB_RAS, -1, "RAS failed to establish a client listening socket at %s: %s", shown(&at, text, sizeof text), strerror(errno));
  else
    log_info(SUB_INIT | SUB_RAS, -1, "RAS client listening socket at %s", shown(&at, text, sizeof text));
}

static void listen_for_others(void) {
  static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
  struct interface_address found;
  if (getrandom(token, sizeof token, 0) != sizeof token || interfaces_find(&found, 1) != 1 || (others = listen_on(&found.addr, 0)) < 0) return;
  if (found.addr.ss_family == AF_INET) {
    const struct sockaddr_in* in = (const void*)&found.addr;
    memcpy(address, mapped, sizeof mapped);
    memcpy(address + 12, &in->sin_addr, 4);
    memcpy(address + 16, &in->sin_port, 2);
  } else {
    const struct sockaddr_in6* in = (const void*)&found.addr;
    memcpy(address, &in->sin6_addr, 16);
    memcpy(address + 16, &in->sin6_port, 2);
  }
  serves = 1;
}

static void start(void) {
  pthread_t thread;
  if (setting_number("NCCL_RAS_ENABLE", 1) == 0) return;
  listen_for_clients();
  listen_for_others();
  if (clients < 0 && others < 0) return;
  if (start_thread(&thread, 1, serve, NULL) == 0) return;
  ras_close(clients);
  ras_close(others);
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
