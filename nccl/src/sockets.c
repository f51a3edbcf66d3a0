#define _GNU_SOURCE
#include "sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The inode tells a socket from a file of the program that got its number. */
static struct {
  int fd;
  ino_t inode;
}* list;
static int listed, room;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held around a fork: no socket is between its making and this list */

int64_t sockets_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static ino_t inode_of(int fd) {
  struct stat s;
  return fstat(fd, &s) == 0 && S_ISSOCK(s.st_mode) ? s.st_ino : 0;
}

/* keep lists a new socket, or closes it where memory is short. Under the lock. */
static int keep(int fd) {
  if (fd < 0) return fd;
  if (listed == room) {
    int more = room ? 2 * room : 64;
    void* bigger = realloc(list, (size_t)more * sizeof *list);
    if (bigger == NULL) {
      close(fd);
      errno = ENOMEM;
      return -1;
    }
    list = bigger;
    room = more;
  }
  list[listed].fd = fd;
  list[listed++].inode = inode_of(fd);
  return fd;
}

int sockets_new(int family) {
  pthread_mutex_lock(&lock);
  int fd = keep(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  pthread_mutex_unlock(&lock);
  return fd;
}

int sockets_accept(int listener) {
  pthread_mutex_lock(&lock);
  int fd = keep(accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
  pthread_mutex_unlock(&lock);
  return fd;
}

void sockets_close(int fd) {
  if (fd < 0) return;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < listed; i++)
    if (list[i].fd == fd) {
      list[i] = list[--listed];
      break;
    }
  close(fd);
  pthread_mutex_unlock(&lock);
}

static socklen_t size_of(const struct sockaddr_storage* a) { return a->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6); }

int sockets_listen(struct sockaddr_storage* at, int shared) {
  int one = 1, fd = sockets_new(at->ss_family);
  socklen_t n = sizeof *at;
  if (fd < 0) return -1;
  if (shared) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (shared) setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one); /* any process of a user's answers */
  if (bind(fd, (struct sockaddr*)at, size_of(at)) == 0 && listen(fd, 4096) == 0 && getsockname(fd, (struct sockaddr*)at, &n) == 0) return fd;
  int err = errno;
  sockets_close(fd);
  errno = err;
  return -1;
}

int sockets_move(int fd, void* bytes, size_t n, int sends, int64_t until) {
  for (size_t done = 0; done < n;) {
    struct pollfd p = {.fd = fd, .events = sends ? POLLOUT : POLLIN};
    int64_t left = until - sockets_now();
    int ready = left > 0 ? poll(&p, 1, (int)left) : 0;
    if (ready == 0) return 0;
    if (ready < 0) {
      if (errno == EINTR) continue;
      return -1;
    }
    ssize_t m = sends ? send(fd, (char*)bytes + done, n - done, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(fd, (char*)bytes + done, n - done, MSG_DONTWAIT);
    if (m == 0 && !sends) return -1;
    if (m < 0 && errno != EAGAIN && errno != EINTR) return -1;
    if (m > 0) done += (size_t)m;
  }
  return 1;
}

void sockets_before_fork(void) { pthread_mutex_lock(&lock); }

void sockets_in_parent(void) { pthread_mutex_unlock(&lock); }

void sockets_in_child(void) {
  for (int i = 0; i < listed; i++)
    if (list[i].inode && inode_of(list[i].fd) == list[i].inode) close(list[i].fd);
  listed = 0;
  pthread_mutex_init(&lock, NULL);
}

/* ---- addresses ---- */

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

int sockets_equal(const uint8_t* a, const uint8_t* b, size_t n) {
  uint8_t d = 0;
  for (size_t i = 0; i < n; i++) d |= a[i] ^ b[i];
  return d == 0;
}

void address_put(uint8_t out[ADDRESS_BYTES], const struct sockaddr_storage* a) {
  if (a->ss_family == AF_INET) {
    const struct sockaddr_in* in = (const void*)a;
    memcpy(out, mapped, sizeof mapped);
    memcpy(out + 12, &in->sin_addr, 4);
    memcpy(out + 16, &in->sin_port, 2);
  } else {
    const struct sockaddr_in6* in = (const void*)a;
    memcpy(out, &in->sin6_addr, 16);
    memcpy(out + 16, &in->sin6_port, 2);
  }
}

socklen_t address_get(const uint8_t in[ADDRESS_BYTES], struct sockaddr_storage* out) {
  memset(out, 0, sizeof *out);
  if (memcmp(in, mapped, sizeof mapped) == 0) {
    struct sockaddr_in* four = (struct sockaddr_in*)out;
    four->sin_family = AF_INET;
    memcpy(&four->sin_addr, in + 12, 4);
    memcpy(&four->sin_port, in + 16, 2);
  } else {
    struct sockaddr_in6* six = (struct sockaddr_in6*)out;
    six->sin6_family = AF_INET6;
    memcpy(&six->sin6_addr, in, 16);
    memcpy(&six->sin6_port, in + 16, 2);
  }
  return size_of(out);
}

struct addrinfo* address_find(const char* text, const char** why) {
  char host[256];
  const char* colon = strrchr(text, ':');
  size_t n = colon ? (size_t)(colon - text) : 0;
  *why = ADDRESS_FORM;
  if (n == 0 || n >= sizeof host || colon[1] == 0) return NULL;
  memcpy(host, text, n);
  host[n] = 0;
  if (host[0] == '[' && host[n - 1] == ']') {
    memmove(host, host + 1, n - 2);
    host[n - 2] = 0;
  }
  struct addrinfo hint = {.ai_socktype = SOCK_STREAM}, *found = NULL;
  int err = getaddrinfo(host, colon + 1, &hint, &found);
  *why = err ? gai_strerror(err) : NULL;
  return err ? NULL : found;
}
