/* Errors and signals of the calling thread. */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "_cgo_export.h"
#include "internal.h"

/* A library that is opened while a program runs finds little room for variables of threads: 2 KB do
 * not fit. So each thread has a pointer, and one that has no memory left shares its errors. */
static __thread struct failure *own;
static struct failure shared;
static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

static void make_key(void) { pthread_key_create(&key, free); }

struct failure *failure_here(void) {
  if (own == NULL) {
    pthread_once(&key_once, make_key);
    own = calloc(1, sizeof *own);
    if (own == NULL) return &shared;
    pthread_setspecific(key, own);
  }
  return own;
}

mscclpp_result_t failed(mscclpp_result_t code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  struct failure *last = failure_here();
  vsnprintf(last->text, sizeof last->text, format, args);
  va_end(args);
  last->rank = -1;
  return code;
}

const char *mscclpp_last_error(void) { return failure_here()->text; }

int32_t mscclpp_last_error_rank(void) {
  struct failure *last = failure_here();
  return last->text[0] ? last->rank : -1;
}

uint32_t mscclpp_abi_version(void) { return MSCCLPP_ABI_VERSION; }

const char *mscclpp_result_name(mscclpp_result_t result) {
  static const char *const names[] = {
      "MSCCLPP_SUCCESS", "MSCCLPP_UNAVAILABLE", "MSCCLPP_UNSUPPORTED", "MSCCLPP_INVALID",     "MSCCLPP_PEER",
      "MSCCLPP_CLOSED",  "MSCCLPP_PLUGIN",      "MSCCLPP_TIMEOUT",     "MSCCLPP_IN_PROGRESS", "MSCCLPP_FAILED",
  };
  if (result < 0 || (size_t)result >= sizeof names / sizeof names[0]) return "unknown result";
  return names[result];
}

static char version[256];
static pthread_once_t version_once = PTHREAD_ONCE_INIT;

static void version_read(void) { mscclppGoVersion(version, sizeof version); }

const char *mscclpp_version(void) {
  if (!usable()) return version;
  pthread_once(&version_once, version_read);
  return version;
}

mscclpp_result_t mscclpp_setting(const char *key, char *value, size_t size) {
  if (value == NULL || size == 0) return failed(MSCCLPP_INVALID, "setting: the place for the result is NULL, or has no bytes");
  *value = 0;
  if (key == NULL) return failed(MSCCLPP_INVALID, "setting: the key is NULL");
  DATA(mscclppGoSetting((char *)key, value, size, failure_here()));
}

int mscclpp_supports(const char *ability) {
  static const char *const abilities[] = {
      "comm.environment", "comm.unique_id", "collectives", "groups", "split", "shrink", "abort", "leave", "log.callback",
      "memory.alloc",     "memory.register", "windows", "windows.flat", "channels.memory", "channels.port", "channels.switch", "kernels",
      "proxies",          "plans.language", "plans.execute", "plans.register", "traces",
      "inference.all_reduce_norm", "inference.moe",
      "device.host",      "device.cuda",
  };
  if (ability == NULL) return 0;
  for (size_t i = 0; i < sizeof abilities / sizeof abilities[0]; i++)
    if (strcmp(abilities[i], ability) == 0) return 1;
  return 0;
}

void guard_enter(struct guard *g) {
  sigset_t pipe, pending;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  g->blocked = 0;
  sigpending(&pending);
  if (sigismember(&pending, SIGPIPE)) return; /* it is blocked, and waits for the program */
  if (pthread_sigmask(SIG_BLOCK, &pipe, &g->before) != 0) return;
  g->blocked = !sigismember(&g->before, SIGPIPE);
}

void guard_leave(struct guard *g) {
  static const struct timespec at_once;
  sigset_t pipe;
  int error = errno;
  if (!g->blocked) return;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  while (sigtimedwait(&pipe, NULL, &at_once) < 0 && errno == EINTR) {
  }
  pthread_sigmask(SIG_SETMASK, &g->before, NULL);
  errno = error;
}

mscclpp_result_t structure(void *to, size_t known, size_t least, const void *from, const char *type) {
  size_t size, i;
  if (from == NULL) return MSCCLPP_SUCCESS;
  memcpy(&size, from, sizeof size);
  if (size < least || size > 4096)
    return failed(MSCCLPP_INVALID, "%s: size %zu: expected the sizeof of a version of it, which the macro of the type sets", type, size);
  for (i = known; i < size; i++)
    if (((const unsigned char *)from)[i] != 0)
      return failed(MSCCLPP_UNSUPPORTED, "%s: byte %zu is not 0, and this library knows %zu bytes: the program was made for a newer one", type, i, known);
  memcpy(to, from, size < known ? size : known);
  return MSCCLPP_SUCCESS;
}

void call_log(mscclpp_log_fn log, void *context, int level, const char *text) { log(context, level, text); }

void call_write(mscclpp_write_fn write, void *context, const char *text, size_t size) { write(context, text, size); }
