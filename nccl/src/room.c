#define _GNU_SOURCE
#include "room.h"

#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "group.h"

enum { DESCRIPTORS = 16, THREADS = 12 };
static const size_t addresses = (size_t)1 << 30; /* reserved, mostly never touched */

static int has_descriptors(void) {
  int fds[DESCRIPTORS], n = 0;
  while (n < DESCRIPTORS && (fds[n] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) n++;
  for (int i = 0; i < n; i++) close(fds[i]);
  return n == DESCRIPTORS;
}

static int has_addresses(void) {
  void* p = mmap(NULL, addresses, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p != MAP_FAILED && munmap(p, addresses) == 0;
}

/* wait_for keeps a thread until all have been started. */
static void* wait_for(void* gate) {
  pthread_mutex_lock(gate);
  pthread_mutex_unlock(gate);
  return NULL;
}

static int has_threads(void) {
  pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
  pthread_t threads[THREADS];
  int n = 0;
  pthread_mutex_lock(&gate);
  while (n < THREADS && start_thread(&threads[n], 0, wait_for, &gate) == 0) n++;
  pthread_mutex_unlock(&gate);
  for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
  return n == THREADS;
}

const char* room_missing(void) {
  if (!has_descriptors()) return "16 descriptors are not to be had: see RLIMIT_NOFILE (ulimit -n)";
  if (!has_addresses()) return "1 GiB of addresses is not to be had: see RLIMIT_AS (ulimit -v)";
  if (!has_threads()) return "12 threads are not to be had: see RLIMIT_NPROC (ulimit -u), and pids.max of the control group";
  return NULL;
}
