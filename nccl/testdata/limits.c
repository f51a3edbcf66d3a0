/* Processes that lack what the library needs get an error, and go on. Each case is a process of its own. */
#include <errno.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"

static void limit(int what, rlim_t to) { EXPECT(setrlimit(what, &(struct rlimit){to, to}) == 0); }
static void descriptors(void) { limit(RLIMIT_NOFILE, 12); }
static void addresses(void) { limit(RLIMIT_AS, 300 << 20); }
static void files(void) { limit(RLIMIT_FSIZE, 0); } /* of memory that processes share, too */
static void threads(void) {
  if (getuid() == 0) EXPECT(setgid(65534) == 0 && setuid(65534) == 0); /* there is no limit for root */
  limit(RLIMIT_NPROC, 4);
}

static void lacks(void (*what)(void), const char* text) {
  int status;
  pid_t child = fork();
  if (child == 0) {
    ncclComm_t comm = (ncclComm_t)&comm;
    what();
    NCCL(ncclGetUniqueId(&id));
    FAILS(ncclCommInitRank(&comm, 1, id, 0), ncclSystemError, text);
    EXPECT(comm == NULL);
    _exit(0);
  }
  EXPECT(waitpid(child, &status, 0) == child);
  if (status != 0) fprintf(stderr, "a process without %s ended with status %#x\n", text, (unsigned)status);
  EXPECT(status == 0);
}

int main(void) {
  lacks(descriptors, "RLIMIT_NOFILE");
  lacks(addresses, "RLIMIT_AS");
  lacks(threads, "RLIMIT_NPROC");
  lacks(files, "RLIMIT_FSIZE");
  printf("ok\n");
  return 0;
}
