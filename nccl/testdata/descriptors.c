/* Children of a process whose threads open and close descriptors, and whose meeting place is busy, have all that the threads
 * had. The number of forks is TEST_FORKS. Before, every descriptor of the library becomes one of the program in the child, as
 * by chance one may that a thread has closed: none of them is closed then. */
#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"

enum { THREADS = 4, EACH = 16 };

/* What a thread has open. A fork copies descriptors and memory one after the other, so neither changes meanwhile. */
static struct {
  int fd;
  ino_t inode;
} held[THREADS][EACH];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static atomic_int over;

static void* opens(void* with) {
  int mine = (int)(long)with;
  for (int i = 0; !atomic_load(&over); i = (i + 1) % EACH) {
    int pair[2];
    struct stat s;
    pthread_mutex_lock(&lock);
    if (held[mine][i].fd >= 0) close(held[mine][i].fd);
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0); /* sockets, as those of the library are */
    EXPECT(close(pair[1]) == 0 && fstat(pair[0], &s) == 0);
    held[mine][i].inode = s.st_ino;
    held[mine][i].fd = pair[0];
    pthread_mutex_unlock(&lock);
    sched_yield();
  }
  return NULL;
}

/* connects keeps the thread of the meeting place taking and dropping connections. */
static void* connects(void* with) {
  const unsigned char* at = with;
  struct sockaddr_in to = {.sin_family = AF_INET};
  memcpy(&to.sin_addr, at + 12, 4);
  memcpy(&to.sin_port, at + 16, 2);
  while (!atomic_load(&over)) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0) continue;
    struct linger at_once = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    (void)!connect(fd, (struct sockaddr*)&to, sizeof to);
    close(fd);
  }
  return NULL;
}

/* The sockets and pipes of the library, and what takes their numbers. */
static int theirs[1024], ntheirs, own = -1;
static ino_t own_inode;

/* replaces is the first handler that runs in a child: it was installed before the library was used. */
static void replaces(void) {
  for (int i = 0; i < ntheirs; i++)
    if (dup2(own, theirs[i]) < 0) _exit(101);
}

static void finds_theirs(void) {
  struct stat s;
  for (int fd = 3; fd < 1024; fd++)
    if (fstat(fd, &s) == 0 && (S_ISSOCK(s.st_mode) || S_ISFIFO(s.st_mode))) theirs[ntheirs++] = fd;
  int pair[2];
  EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && fstat(pair[0], &s) == 0);
  own = pair[0];
  own_inode = s.st_ino;
}

/* replaced forks a child in which all numbers of the library stand for a file of the program. */
static void replaced(void) {
  finds_theirs();
  EXPECT(ntheirs >= 3); /* of the meeting place, and of the runtime */
  pid_t p = fork();
  EXPECT(p >= 0);
  if (p == 0) {
    struct stat s;
    int n = 0;
    for (int i = 0; i < ntheirs; i++) n += fstat(theirs[i], &s) != 0 || s.st_ino != own_inode;
    _exit(n > 100 ? 100 : n);
  }
  int status;
  EXPECT(waitpid(p, &status, 0) == p);
  if (status != 0) fprintf(stderr, "of %d numbers, status 0x%x were closed in the child\n", ntheirs, status);
  EXPECT(status == 0);
  ntheirs = 0;
}

static int lost(void) {
  int n = 0;
  for (int t = 0; t < THREADS; t++)
    for (int i = 0; i < EACH; i++) {
      int fd = held[t][i].fd;
      struct stat s;
      if (fd >= 0 && (fstat(fd, &s) != 0 || s.st_ino != held[t][i].inode)) n++;
    }
  return n;
}

int main(void) {
  int forks = atoi(getenv("TEST_FORKS")), devices[] = {0, 1};
  struct rlimit before, after;
  EXPECT(getrlimit(RLIMIT_NOFILE, &before) == 0);
  if (before.rlim_max > 256) {
    before.rlim_cur = 256;
    EXPECT(setrlimit(RLIMIT_NOFILE, &before) == 0);
  }
  EXPECT(pthread_atfork(NULL, NULL, replaces) == 0);
  NCCL(ncclGetUniqueId(&id));
  EXPECT(getrlimit(RLIMIT_NOFILE, &after) == 0 && after.rlim_cur == before.rlim_max); /* the meeting place raises it */
  ncclComm_t comms[2];
  NCCL(ncclCommInitAll(comms, 2, devices)); /* and sockets of the runtime */
  replaced();
  pthread_t thread[THREADS + 1];
  for (int t = 0; t < THREADS; t++) {
    for (int i = 0; i < EACH; i++) held[t][i].fd = -1;
    EXPECT(pthread_create(&thread[t], NULL, opens, (void*)(long)t) == 0);
  }
  EXPECT(pthread_create(&thread[THREADS], NULL, connects, id.internal + 56) == 0);
  int failed = 0;
  for (int i = 0; i < forks; i++) {
    pthread_mutex_lock(&lock);
    pid_t p = fork();
    if (p != 0) pthread_mutex_unlock(&lock);
    EXPECT(p >= 0);
    if (p == 0) _exit(lost() > 100 ? 100 : lost());
    int status;
    EXPECT(waitpid(p, &status, 0) == p);
    failed += status != 0;
  }
  atomic_store(&over, 1);
  for (int t = 0; t <= THREADS; t++) pthread_join(thread[t], NULL);
  EXPECT(failed == 0);
  for (int i = 0; i < 2; i++) NCCL(ncclCommDestroy(comms[i]));
  printf("ok\n");
  return 0;
}
