/* What happens when the library is loaded, and when the process forks. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "internal.h"

/* Go's runtime starts its first thread when the library is loaded, and all later ones get the signal
 * mask of that one. With all signals blocked while it starts, none of them takes a signal that is for
 * the program. Constructors with a priority run before those without, among which Go's comes first. */
static sigset_t before;

__attribute__((constructor(101))) static void signals_block(void) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
}

static atomic_int forked;

static void in_child(void) {
  if (atomic_exchange_explicit(&forked, 1, memory_order_relaxed) == 0) forked_close();
}

__attribute__((constructor)) static void signals_restore(void) {
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_atfork(NULL, NULL, in_child);
}

int usable(void) { return !atomic_load_explicit(&forked, memory_order_relaxed); }

mscclpp_result_t refuse_forked(void) {
  return failed(MSCCLPP_INVALID, "process %ld was forked after the library was loaded: expected a program that makes its communicators "
                "in the process that uses them, and loads the library there", (long)getpid());
}

const char *own_file(void) {
  static const char here;
  Dl_info info;
  if (!dladdr(&here, &info) || info.dli_fname == NULL) return "";
  return info.dli_fname;
}

extern char **environ;

char **environment(void) { return environ; }
