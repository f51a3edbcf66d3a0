// The yardstick of speed_test.go: two processes that do what the plugins do, and
// nothing else. The sender cuts each message into one part for each stream and
// writes a head and the part with one call; the receiver reads both, the part to
// where it belongs, and answers the last message.
//
//   peer STREAMS BYTES COUNT   prints the seconds that COUNT messages took
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { most = 64, head = 32 };

static int streams, count;
static size_t bytes;
static char* memory;
static int sockets[most];

static void must(int ok, const char* what) {
  if (ok) return;
  fprintf(stderr, "peer: %s: %s\n", what, strerror(errno));
  _exit(1);
}

static void range(long n, size_t* from, size_t* size) {
  const size_t part = bytes / streams;
  *from = part * n;
  *size = n == streams - 1 ? bytes - *from : part;
}

static void* send_parts(void* arg) {
  const long n = (long)arg;
  char title[head] = {0};
  size_t from, size;
  range(n, &from, &size);
  for (int i = 0; i < count; ++i) {
    struct iovec v[2] = {{title, head}, {memory + from, size}};
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
    while (m.msg_iovlen > 0) {
      ssize_t done = sendmsg(sockets[n], &m, MSG_NOSIGNAL);
      must(done > 0, "sendmsg");
      while (m.msg_iovlen > 0 && (size_t)done >= m.msg_iov->iov_len) {
        done -= m.msg_iov->iov_len;
        ++m.msg_iov;
        --m.msg_iovlen;
      }
      if (m.msg_iovlen > 0) {
        m.msg_iov->iov_base = (char*)m.msg_iov->iov_base + done;
        m.msg_iov->iov_len -= done;
      }
    }
  }
  char answer;
  must(read(sockets[n], &answer, 1) == 1, "answer");
  return NULL;
}

static void take(int s, char* to, size_t size) {
  while (size > 0) {
    const ssize_t done = recv(s, to, size, 0);
    must(done > 0, "recv");
    to += done;
    size -= done;
  }
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
  must(write(sockets[n], "", 1) == 1, "answer");
  return NULL;
}

static void run(void* (*work)(void*)) {
  pthread_t threads[most];
  for (long n = 1; n < streams; ++n) must(pthread_create(&threads[n], NULL, work, (void*)n) == 0, "thread");
  work((void*)0);
  for (int n = 1; n < streams; ++n) pthread_join(threads[n], NULL);
}

int main(int argc, char** argv) {
  must(argc == 4, "expected STREAMS BYTES COUNT");
  streams = atoi(argv[1]), bytes = strtoull(argv[2], NULL, 10), count = atoi(argv[3]);
  must(streams > 0 && streams <= most && bytes > 0 && count > 0, "bad argument");
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t len = sizeof at;
  const int l = socket(AF_INET, SOCK_STREAM, 0);
  must(bind(l, (struct sockaddr*)&at, len) == 0 && listen(l, most) == 0 && getsockname(l, (struct sockaddr*)&at, &len) == 0, "listen");
  const pid_t child = fork();
  must(child >= 0, "fork");
  memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  must(memory != MAP_FAILED, "memory");
  memset(memory, 1, bytes);
  const int one = 1;
  for (int n = 0; n < streams; ++n) {
    if (child == 0) {
      sockets[n] = accept(l, NULL, NULL);
      must(sockets[n] >= 0, "accept");
    } else {
      sockets[n] = socket(AF_INET, SOCK_STREAM, 0);
      must(connect(sockets[n], (struct sockaddr*)&at, len) == 0, "connect");
    }
    must(setsockopt(sockets[n], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0, "nodelay");
  }
  if (child == 0) {
    run(receive_parts);
    return 0;
  }
  struct timespec a, b;
  clock_gettime(CLOCK_MONOTONIC, &a);
  run(send_parts);
  clock_gettime(CLOCK_MONOTONIC, &b);
  int status = 0;
  must(waitpid(child, &status, 0) == child && status == 0, "receiver");
  printf("%.6f\n", (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec));
  return 0;
}
