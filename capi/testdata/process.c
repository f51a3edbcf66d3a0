/* What the library does to the process that loads it: forks and signals. */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"

void forks(void) {
  mscclpp_comm_t comm, other;
  float x = 1;
  int status;
  pid_t child;

  OK(mscclpp_comm_create(NULL, &comm));
  OK(mscclpp_comm_join(comm));
  fflush(NULL);
  child = fork();
  if (child == 0) {
    REFUSES(mscclpp_all_reduce(comm, &x, &x, 1, MSCCLPP_FLOAT32, MSCCLPP_SUM, NULL), MSCCLPP_INVALID, "was forked");
    REFUSES(mscclpp_comm_create(NULL, &other), MSCCLPP_INVALID, "was forked");
    REFUSES(mscclpp_comm_status(comm), MSCCLPP_INVALID, "was forked");
    OK(mscclpp_comm_abort(comm, "child"));
    OK(mscclpp_comm_destroy(comm));
    exit(0); /* with the functions of atexit */
  }
  TRUE(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  OK(mscclpp_all_reduce(comm, &x, &x, 1, MSCCLPP_FLOAT32, MSCCLPP_SUM, NULL)); /* here nothing has changed */
  OK(mscclpp_comm_destroy(comm));
}

/* others_block counts the threads of this process, the caller apart, and those of them that block a signal. */
static void others_block(int sig, int *all, int *blocking) {
  char path[300], line[200];
  struct dirent *entry;
  DIR *tasks = opendir("/proc/self/task");
  *all = *blocking = 0;
  TRUE(tasks != NULL);
  while ((entry = readdir(tasks)) != NULL) {
    FILE *f;
    if (entry->d_name[0] == '.' || atoi(entry->d_name) == gettid()) continue;
    snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
    if ((f = fopen(path, "r")) == NULL) continue; /* it has ended */
    while (fgets(line, sizeof line, f) != NULL) {
      uint64_t mask;
      if (sscanf(line, "SigBlk: %" SCNx64, &mask) != 1) continue;
      ++*all;
      *blocking += mask >> (sig - 1) & 1;
    }
    fclose(f);
  }
  closedir(tasks);
}

static void *destroys(void *comm) {
  mscclpp_comm_t again;
  OK(mscclpp_comm_destroy(comm));
  REFUSES(mscclpp_comm_destroy(NULL) == MSCCLPP_SUCCESS ? mscclpp_comm_rank(NULL, NULL) : 0, MSCCLPP_INVALID, "NULL");
  OK(mscclpp_comm_create(NULL, &again));
  OK(mscclpp_comm_destroy(again));
  return NULL;
}

/* Signals of the program go to its own threads, with their own handlers; errors are per thread. */
void threads(void) {
  static const int signals[] = {SIGINT, SIGTERM, SIGUSR1, SIGALRM, SIGPIPE};
  mscclpp_comm_t comm;
  pthread_t thread;
  struct sigaction action;
  sigset_t mask;
  size_t i;
  int all, blocking;

  OK(mscclpp_comm_create(NULL, &comm));
  OK(mscclpp_comm_join(comm));
  pthread_sigmask(SIG_SETMASK, NULL, &mask);
  for (i = 0; i < sizeof signals / sizeof signals[0]; i++) {
    TRUE(!sigismember(&mask, signals[i])); /* loading and joining have left the mask of this thread alone */
    others_block(signals[i], &all, &blocking);
    TRUE(all > 0 && blocking == all);
    sigaction(signals[i], NULL, &action);
    TRUE(action.sa_handler == SIG_DFL || signals[i] == SIGPIPE); /* Go's passes that of other threads on */
  }
  REFUSES(mscclpp_comm_rank(comm, NULL), MSCCLPP_INVALID, "comm rank");
  TRUE(pthread_create(&thread, NULL, destroys, comm) == 0 && pthread_join(thread, NULL) == 0);
  TRUE(strstr(mscclpp_last_error(), "comm rank") != NULL); /* the other thread has its own */
}
