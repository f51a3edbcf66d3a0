#include "fork.h"

#include <pthread.h>
#include <stdatomic.h>

#include "log.h"
#include "meeting.h"
#include "sockets.h"

static atomic_int forked;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Go's threads are not in the child, so nothing of libmscclpp may be called there. A child of a
 * process that has only made ids can do all that its parent could. */
static atomic_int running; /* libmscclpp was loaded */

static void in_child(void) {
  log_after_fork();
  sockets_in_child();
  meeting_in_child();
  if (atomic_load(&running)) atomic_store(&forked, 1);
}

static void install(void) { pthread_atfork(sockets_before_fork, sockets_in_parent, in_child); }

void fork_watch(void) {
  pthread_once(&once, install);
  atomic_store(&running, 1);
}

int after_fork(void) {
  pthread_once(&once, install);
  return atomic_load_explicit(&forked, memory_order_relaxed);
}

ncclResult_t fork_refusal(const char* function) {
  return fail(ncclInvalidUsage, "%s : this process was forked from one that has communicators, and has none of its threads: expected a process that was started by exec (multiprocessing's \"spawn\"), or a fork before the first communicator", function);
}
