// The yardstick of the tcp transport: two processes that do what the plugins do, and
// nothing else.
//
//   peer [-at ADDRESS] [-from NETNS -to NETNS] [-congestion NAME] put STREAMS BYTES:COUNT…
//   peer [-at ADDRESS] [-from NETNS -to NETNS] [-congestion NAME] pingpong BYTES:COUNT…
//
// put: the sender cuts each message into one part for each stream and writes a head
// and the part with one call; the receiver reads both, the part to where it belongs,
// and answers the last message of a point. All messages come from one buffer, and go
// to one. The time is that of one message.
//
// pingpong: a message goes there and comes back; the time is half of a round.
//
// With -from and -to (files of network namespaces) the two processes run in them. With
// -congestion sockets have another congestion control than that of the system.
// One JSON object a line goes to stdout; COUNT messages are timed after a few others.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { most = 64, head = 32 };

static int streams = 1, count;
static size_t bytes;
static char* memory;
static int sockets[most];

static void must(int ok, const char* what) {
  if (ok) return;
  fprintf(stderr, "peer: %s: %s\n", what, strerror(errno));
  _exit(1);
}

static void range(long n, size_t* from, size_t* size) {
  const size_t part = bytes / (size_t)streams;
  *from = part * (size_t)n;
  *size = n == streams - 1 ? bytes - *from : part;
}

static void give(int s, struct iovec* v, size_t parts) {
  struct msghdr m = {.msg_iov = v, .msg_iovlen = parts};
  while (m.msg_iovlen > 0) {
    ssize_t done = sendmsg(s, &m, MSG_NOSIGNAL);
    must(done > 0, "sendmsg");
    while (m.msg_iovlen > 0 && (size_t)done >= m.msg_iov->iov_len) {
      done -= (ssize_t)m.msg_iov->iov_len;
      ++m.msg_iov;
      --m.msg_iovlen;
    }
    if (m.msg_iovlen > 0) {
      m.msg_iov->iov_base = (char*)m.msg_iov->iov_base + done;
      m.msg_iov->iov_len -= (size_t)done;
    }
  }
}

static void take(int s, char* to, size_t size) {
  while (size > 0) {
    const ssize_t done = recv(s, to, size, 0);
    must(done > 0, "recv");
    to += done;
    size -= (size_t)done;
  }
}

static void* send_parts(void* arg) {
  const long n = (long)arg;
  char title[head] = {0}, answer;
  size_t from, size;
  range(n, &from, &size);
  for (int i = 0; i < count; ++i) {
    struct iovec v[2] = {{title, head}, {memory + from, size}};
    give(sockets[n], v, 2);
  }
  take(sockets[n], &answer, 1);
  return NULL;
}

static void* receive_parts(void* arg) {
  const long n = (long)arg;
  char title[head];
  size_t from, size;
  range(n, &from, &size);
  for (int i = 0; i < count; ++i) {
    take(sockets[n], title, head);
    take(sockets[n], memory + from, size);
  }
  give(sockets[n], &(struct iovec){"", 1}, 1);
  return NULL;
}

static void* serve(void* arg) {
  for (int i = 0; i < count; ++i) {
    give(sockets[0], &(struct iovec){memory, bytes}, 1);
    take(sockets[0], memory, bytes);
  }
  return arg;
}

static void* give_back(void* arg) {
  for (int i = 0; i < count; ++i) {
    take(sockets[0], memory, bytes);
    give(sockets[0], &(struct iovec){memory, bytes}, 1);
  }
  return arg;
}

static void run(void* (*work)(void*)) {
  pthread_t threads[most];
  for (long n = 1; n < streams; ++n) must(pthread_create(&threads[n], NULL, work, (void*)n) == 0, "thread");
  work((void*)0);
  for (int n = 1; n < streams; ++n) pthread_join(threads[n], NULL);
}

static void enter(const char* namespace) {
  if (namespace == NULL) return;
  const int fd = open(namespace, O_RDONLY | O_CLOEXEC);
  must(fd >= 0 && setns(fd, CLONE_NEWNET) == 0, namespace);
  close(fd);
}

// A socket; those that it accepts have its congestion control.
static int make(const char* congestion) {
  const int s = socket(AF_INET, SOCK_STREAM, 0);
  must(s >= 0, "socket");
  if (congestion != NULL) must(setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, congestion, (socklen_t)strlen(congestion)) == 0, congestion);
  return s;
}

// Connects the two processes; 1 in the receiver.
static int join(const char* at, const char* from, const char* to, const char* congestion) {
  struct sockaddr_in place = {.sin_family = AF_INET};
  socklen_t len = sizeof place;
  must(inet_pton(AF_INET, at, &place.sin_addr) == 1, "address");
  int ends[2];
  must(pipe(ends) == 0, "pipe");
  const pid_t child = fork();
  must(child >= 0, "fork");
  enter(child == 0 ? to : from);
  int l = -1;
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    l = make(congestion);
    must(bind(l, (struct sockaddr*)&place, len) == 0 && listen(l, most) == 0 && getsockname(l, (struct sockaddr*)&place, &len) == 0, "listen");
    must(write(ends[1], &place.sin_port, 2) == 2, "pipe");
  } else {
    close(ends[1]);
    must(read(ends[0], &place.sin_port, 2) == 2, "receiver");
  }
  const int one = 1;
  for (int n = 0; n < streams; ++n) {
    if (child == 0) {
      sockets[n] = accept(l, NULL, NULL);
      must(sockets[n] >= 0, "accept");
    } else {
      sockets[n] = make(congestion);
      must(connect(sockets[n], (struct sockaddr*)&place, len) == 0, "connect");
    }
    must(setsockopt(sockets[n], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0, "nodelay");
  }
  return child == 0;
}

int main(int argc, char** argv) {
  const char *at = "127.0.0.1", *from = NULL, *to = NULL, *congestion = NULL;
  int a = 1;
  for (; a + 1 < argc && argv[a][0] == '-'; a += 2) {
    if (strcmp(argv[a], "-at") == 0) at = argv[a + 1];
    else if (strcmp(argv[a], "-from") == 0) from = argv[a + 1];
    else if (strcmp(argv[a], "-to") == 0) to = argv[a + 1];
    else if (strcmp(argv[a], "-congestion") == 0) congestion = argv[a + 1];
    else break;
  }
  const int pingpong = a < argc && strcmp(argv[a], "pingpong") == 0;
  if (!pingpong && a + 1 < argc && strcmp(argv[a], "put") == 0) streams = atoi(argv[++a]);
  else if (!pingpong) a = argc;
  if (a + 1 >= argc || streams < 1 || streams > most) {
    fprintf(stderr, "peer: expected [-at ADDRESS] [-from NETNS -to NETNS] [-congestion NAME], then put STREAMS or pingpong, then BYTES:COUNT…\n");
    return 2;
  }
  const int receiver = join(at, from, to, congestion);
  for (++a; a < argc; ++a) {
    long long b;
    int n;
    if (sscanf(argv[a], "%lld:%d", &b, &n) != 2 || b < 1 || b > 1ll << 32 || n < 1) {
      fprintf(stderr, "peer: %s: expected BYTES:COUNT\n", argv[a]);
      return 2;
    }
    bytes = (size_t)b;
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    must(memory != MAP_FAILED, "memory");
    memset(memory, 1, bytes);
    void* (*work)(void*) = pingpong ? receiver ? give_back : serve : receiver ? receive_parts : send_parts;
    count = n / 8 + 2;
    run(work);
    count = n;
    struct timespec x, y;
    clock_gettime(CLOCK_MONOTONIC, &x);
    run(work);
    clock_gettime(CLOCK_MONOTONIC, &y);
    const double us = ((double)(y.tv_sec - x.tv_sec) * 1e6 + (double)(y.tv_nsec - x.tv_nsec) * 1e-3) / n / (pingpong ? 2 : 1);
    if (!receiver) {
      printf("{\"collective\":\"%s\",\"bytes\":%lld,\"transport\":\"c\",\"time_us\":%.4f,\"errors\":0}\n", pingpong ? "pingpong" : "put", b, us);
      fflush(stdout);
    }
    munmap(memory, bytes);
  }
  if (receiver) return 0;
  int status = 0;
  must(wait(&status) > 0 && status == 0, "receiver");
  return 0;
}
