/* The process that the library is in: signals, children, many communicators. TEST_MODE says which. */
#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client.h"

static ncclComm_t comms[2];

static void two_ranks(void) { NCCL(ncclCommInitAll(comms, 2, (int[]){0, 1})); }

static void call(ncclComm_t of[2]) {
  int x[2] = {1, 2};
  NCCL(ncclGroupStart());
  for (int i = 0; i < 2; i++) NCCL(ncclAllReduce(&x[i], &x[i], 1, ncclInt32, ncclSum, of[i], NULL));
  NCCL(ncclGroupEnd());
  EXPECT(x[0] == 3 && x[1] == 3);
}

static void end(ncclComm_t of[2]) {
  for (int i = 0; i < 2; i++) NCCL(ncclCommDestroy(of[i]));
}

/* ---- handlers of faults, as Python's faulthandler ---- */

static sigjmp_buf back;
static volatile int first, second;

static void on_first(int s) {
  first += s == SIGSEGV;
  siglongjmp(back, 1);
}

static void on_second(int s) {
  second += s == SIGSEGV;
  siglongjmp(back, 1);
}

static void handle_faults(void (*f)(int)) {
  static char stack[1 << 16];
  stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
  struct sigaction a = {.sa_handler = f, .sa_flags = SA_ONSTACK | SA_NODEFER};
  EXPECT(sigaltstack(&own, NULL) == 0 && sigaction(SIGSEGV, &a, NULL) == 0);
}

static void fault(void) {
  if (sigsetjmp(back, 1) == 0) {
    *(volatile int*)8 = 1;
    EXPECT(!"a fault");
  }
}

static void faults(void) {
  handle_faults(on_first);
  fault();
  two_ranks();
  fault(); /* the handler from before still gets those of the program */
  EXPECT(first == 2);
  call(comms);
  handle_faults(on_second);
  fault();
  EXPECT(second == 1);
  call(comms);
  fault();
  EXPECT(first == 2 && second == 2);
  end(comms);
}

/* ---- Ctrl-C ---- */

static atomic_int interrupted;

static void on_interrupt(int s) {
  (void)s;
  atomic_store(&interrupted, 1);
}

static void* waits(void* with) {
  int x;
  return (void*)(long)ncclRecv(&x, 1, ncclInt32, 1, *(ncclComm_t*)with, NULL);
}

/* The program is in a call that waits; its parent sends SIGINT when it reads "ready". */
static void interrupt(int handled) {
  pthread_t thread;
  void* result;
  if (handled) signal(SIGINT, on_interrupt);
  two_ranks();
  EXPECT(pthread_create(&thread, NULL, waits, &comms[0]) == 0);
  printf("ready\n");
  fflush(stdout);
  while (!atomic_load(&interrupted)) usleep(1000); /* not handled: the process ends here */
  for (int i = 0; i < 2; i++) NCCL(ncclCommAbort(comms[i]));
  pthread_join(thread, &result);
  EXPECT((long)result != ncclSuccess);
}

/* ---- children that the host collects ---- */

static atomic_int over;

static void* collects(void* unused) {
  (void)unused;
  while (!atomic_load(&over)) {
    int status;
    if (waitpid(-1, &status, WNOHANG) <= 0) usleep(200);
  }
  return NULL;
}

static void reaper(void) {
  pthread_t thread;
  EXPECT(pthread_create(&thread, NULL, collects, NULL) == 0);
  for (int i = 0; i < 3; i++) {
    two_ranks();
    call(comms);
    end(comms);
  }
  atomic_store(&over, 1);
  pthread_join(thread, NULL);
}

/* ---- many ---- */

static void sixty_four(void) {
  enum { N = 32 };
  static ncclComm_t parts[N][2];
  two_ranks();
  for (int i = 0; i < N; i++) {
    NCCL(ncclGroupStart());
    for (int r = 0; r < 2; r++) NCCL(ncclCommSplit(comms[r], 0, r, &parts[i][r], NULL));
    NCCL(ncclGroupEnd());
  }
  for (int turn = 0; turn < 2; turn++)
    for (int i = 0; i < N; i++) call(parts[i]);
  for (int i = 0; i < N; i++) end(parts[i]);
  end(comms);
}

/* What the process holds. Descriptors include sockets; threads and children belong to runtime, plugins and library. */
struct held {
  int descriptors, sockets, threads, children;
};

static int entries(const char* folder, int sockets) {
  int n = 0;
  char to[64];
  DIR* d = opendir(folder);
  EXPECT(d != NULL);
  for (struct dirent* e; (e = readdir(d)) != NULL;) {
    ssize_t len = sockets ? readlinkat(dirfd(d), e->d_name, to, sizeof to) : 0;
    n += e->d_name[0] != '.' && (!sockets || (len > 7 && memcmp(to, "socket:", 7) == 0));
  }
  closedir(d);
  return n;
}

/* children counts those of all threads. */
static int children(void) {
  int n = 0;
  DIR* d = opendir("/proc/self/task");
  EXPECT(d != NULL);
  for (struct dirent* e; (e = readdir(d)) != NULL;) {
    char path[300];
    int pid;
    snprintf(path, sizeof path, "/proc/self/task/%s/children", e->d_name);
    FILE* f = e->d_name[0] == '.' ? NULL : fopen(path, "r");
    while (f && fscanf(f, "%d", &pid) == 1) n++;
    if (f) fclose(f);
  }
  closedir(d);
  return n;
}

static struct held held(void) {
  return (struct held){entries("/proc/self/fd", 0), entries("/proc/self/fd", 1), entries("/proc/self/task", 0), children()};
}

static int within(struct held h, struct held most) {
  return h.descriptors <= most.descriptors && h.sockets <= most.sockets && h.threads <= most.threads && h.children <= most.children;
}

static long resident(void) { /* KiB */
  long pages = 0;
  FILE* f = fopen("/proc/self/statm", "r");
  EXPECT(f && fscanf(f, "%*d %ld", &pages) == 1);
  fclose(f);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* settled waits until nothing more is held: some is given back in the background. */
static struct held settled(struct held most) {
  struct held now = held();
  for (int i = 0; i < 60000 && !within(now, most); i++) {
    usleep(2000);
    now = held();
  }
  return now;
}

/* A round makes three communicators, and destroys them: one of a rank, and two that share what their parents have. */
static void round_of_three(int i) {
  ncclComm_t one, part[2];
  NCCL(ncclGetUniqueId(&id));
  NCCL(ncclCommInitRank(&one, 1, id, 0));
  int x = i, y = -1;
  NCCL(ncclAllReduce(&x, &y, 1, ncclInt32, ncclSum, one, NULL));
  EXPECT(y == i);
  NCCL(ncclCommDestroy(one));
  NCCL(ncclGroupStart());
  for (int r = 0; r < 2; r++) NCCL(ncclCommSplit(comms[r], 0, r, &part[r], NULL));
  NCCL(ncclGroupEnd());
  call(part);
  end(part);
}

/* Calls of one rank, of which nothing is left: a leak of 64 bytes in each would be 6 MiB. */
static void calls_of_one_rank(void) {
  enum { CALLS = 100000, WARM = 10000 };
  ncclComm_t one;
  long kib = 0;
  NCCL(ncclGetUniqueId(&id));
  NCCL(ncclCommInitRank(&one, 1, id, 0));
  for (int i = 0; i < CALLS + WARM; i++) {
    int x = i, y = -1;
    if (i == WARM) kib = resident();
    NCCL(ncclAllReduce(&x, &y, 1, ncclInt32, ncclSum, one, NULL));
    EXPECT(y == i);
  }
  long more = resident() - kib;
  fprintf(stderr, "%d calls of one rank: %ld KiB more\n", CALLS, more);
  EXPECT(more < 4 * 1024);
  NCCL(ncclCommDestroy(one));
}

static void leaks(int rounds) {
  struct held before = {0, 0, 0, 0}, after;
  int warm = rounds / 4;
  long kib = 0;
  two_ranks();
  for (int i = 0; i < rounds; i++) {
    if (i == warm) {
      before = held();
      before.threads += 16; /* the runtime keeps threads that it may need again, and starts one when all are busy */
      kib = resident();
    }
    round_of_three(i);
  }
  after = settled(before);
  long more = resident() - kib;
  fprintf(stderr, "%d communicators: %d descriptors, %d of them sockets, %d threads, %d children; %ld KiB and %ld more\n", 3 * rounds,
          after.descriptors, after.sockets, after.threads, after.children, kib, more);
  EXPECT(within(after, before));
  EXPECT(more < 32 * 1024); /* the runtime's heap breathes; a leak of one buffer a round is larger in a long run */
  end(comms);
}

/* ---- threads that end ---- */

static void* makes(void* unused) {
  two_ranks();
  return unused;
}

static char main_state(void) {
  char path[64], state = '?';
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", getpid());
  FILE* f = fopen(path, "r");
  EXPECT(f && fscanf(f, "%*d (%*[^)]) %c", &state) == 1);
  fclose(f);
  return state;
}

static void* goes_on(void* unused) {
  while (main_state() != 'Z') usleep(1000);
  call(comms);
  end(comms);
  two_ranks(); /* all is made anew */
  call(comms);
  end(comms);
  printf("ok\n");
  exit(0);
  return unused;
}

/* The thread that has made communicators ends, and then the main one. */
static void threads_end(void) {
  pthread_t thread;
  EXPECT(pthread_create(&thread, NULL, makes, NULL) == 0);
  pthread_join(thread, NULL);
  call(comms);
  EXPECT(pthread_create(&thread, NULL, goes_on, NULL) == 0);
  pthread_exit(NULL);
}

int main(void) {
  const char *mode = getenv("TEST_MODE"), *rounds = getenv("TEST_ROUNDS");
  if (strcmp(mode, "faults") == 0) faults();
  if (strcmp(mode, "interrupt") == 0) interrupt(0);
  if (strcmp(mode, "interrupt handled") == 0) interrupt(1);
  if (strcmp(mode, "reaper") == 0) reaper();
  if (strcmp(mode, "many") == 0) sixty_four();
  if (strcmp(mode, "threads end") == 0) threads_end();
  if (strcmp(mode, "leaks") == 0) leaks(atoi(rounds));
  if (strcmp(mode, "one rank") == 0) calls_of_one_rank();
  printf("ok\n");
  return 0;
}
