/* Sockets of the RAS service, which a forked child gives up. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ras.h"
#include "ras_socket.h"

enum { SOCKETS = 1024 };

/* The inode tells a socket from a file of the program that got its number. */
static struct {
  int fd;
  ino_t inode;
} open_sockets[SOCKETS];
static int nopen;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held around a fork: no socket is between its making and this list */

int64_t ras_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static ino_t inode_of(int fd) {
  struct stat s;
  return fstat(fd, &s) == 0 && S_ISSOCK(s.st_mode) ? s.st_ino : 0;
}

/* keep lists a new socket, or closes it where the list is full. Under the lock. */
static int keep(int fd) {
  if (fd < 0) return fd;
  if (nopen == SOCKETS) {
    close(fd);
    errno = EMFILE;
    return -1;
  }
  open_sockets[nopen].fd = fd;
  open_sockets[nopen++].inode = inode_of(fd);
  return fd;
}

int ras_socket(int family) {
  pthread_mutex_lock(&lock);
  int fd = keep(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  pthread_mutex_unlock(&lock);
  return fd;
}

int ras_accept(int listener) {
  pthread_mutex_lock(&lock);
  int fd = keep(accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
  pthread_mutex_unlock(&lock);
  return fd;
}

void ras_close(int fd) {
  if (fd < 0) return;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < nopen; i++)
    if (open_sockets[i].fd == fd) {
      open_sockets[i] = open_sockets[--nopen];
      break;
    }
  close(fd);
  pthread_mutex_unlock(&lock);
}

int ras_move(int fd, void* bytes, size_t n, int sends, int64_t until) {
  for (size_t done = 0; done < n;) {
    struct pollfd p = {.fd = fd, .events = sends ? POLLOUT : POLLIN};
    int64_t left = until - ras_now();
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

void ras_before_fork(void) { pthread_mutex_lock(&lock); }

void ras_in_parent(void) { pthread_mutex_unlock(&lock); }

void ras_in_child(void) {
  for (int i = 0; i < nopen; i++)
    if (open_sockets[i].inode && inode_of(open_sockets[i].fd) == open_sockets[i].inode) close(open_sockets[i].fd);
  nopen = 0;
  pthread_mutex_init(&lock, NULL);
}
