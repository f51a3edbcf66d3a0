#define _GNU_SOURCE
#include "log.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "env.h"
#include "export.h"

/* Lines are formatted on the stack and written by one write, so that threads and processes do
 * not tear each other's. */
enum { LINE = 2048, LAST = 1024 };

static atomic_uint shown;      /* level << 24 | subsystems; 0: the environment was not read yet */
static int out = STDOUT_FILENO;
static char host[256] = "?";
static char stamp_format[64];
static unsigned stamp_levels; /* a bit for each level whose lines begin with the time */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The last error may be read while another thread fails: two buffers, of which one is complete. */
static char last[2][LAST];
static _Thread_local char mine[LAST]; /* of this thread's last failure */
static atomic_int which;

static const struct {
  const char* name;
  unsigned bits;
} subsystems[] = {
    {"INIT", SUB_INIT},   {"COLL", SUB_COLL},   {"P2P", SUB_P2P},         {"SHM", SUB_SHM},
    {"NET", SUB_NET},     {"GRAPH", SUB_GRAPH}, {"TUNING", SUB_TUNING},   {"ENV", SUB_ENV},
    {"ALLOC", SUB_ALLOC}, {"CALL", SUB_CALL},   {"PROXY", SUB_PROXY},     {"NVLS", SUB_NVLS},
    {"REG", SUB_REG},     {"RAS", SUB_RAS},     {"BOOTSTRAP", SUB_BOOTSTRAP}, {"PROFILE", SUB_PROFILE},
    {"ALL", SUB_ALL},     {"DESTROY", SUB_DESTROY}, {"ALLOC_HOST", SUB_ALLOC_HOST},
};

static unsigned parse_level(const char* s) {
  static const char* names[] = {"", "VERSION", "WARN", "INFO", "ABORT", "TRACE"};
  if (s == NULL) return LOG_NONE;
  for (unsigned i = LOG_VERSION; i <= LOG_TRACE; i++)
    if (strcasecmp(s, names[i]) == 0) return i;
  return LOG_NONE;
}

/* parse_levels reads a list such as "WARN,INFO", "^TRACE" or "ALL". */
static unsigned parse_levels(const char* s) {
  if (s == NULL || *s == 0) return 1u << LOG_WARN;
  int excludes = *s == '^';
  unsigned bits = 0;
  char word[32];
  for (s += excludes; *s;) {
    size_t n = strcspn(s, ",");
    if (n < sizeof word) {
      memcpy(word, s, n);
      word[n] = 0;
      bits |= strcasecmp(word, "ALL") == 0 ? ~0u : 1u << parse_level(word);
    }
    s += n + (s[n] == ',');
  }
  return excludes ? ~bits : bits;
}

static unsigned parse_subsystems(const char* s) {
  if (s == NULL || *s == 0) return SUB_INIT | SUB_BOOTSTRAP | SUB_ENV;
  int excludes = *s == '^';
  unsigned bits = 0;
  char word[32];
  for (s += excludes; *s;) {
    size_t n = strcspn(s, ",");
    if (n < sizeof word) {
      memcpy(word, s, n);
      word[n] = 0;
      for (size_t i = 0; i < sizeof subsystems / sizeof *subsystems; i++)
        if (strcasecmp(word, subsystems[i].name) == 0) bits |= subsystems[i].bits;
    }
    s += n + (s[n] == ',');
  }
  return excludes ? SUB_ALL & ~bits : bits;
}

/* open_file follows NCCL_DEBUG_FILE: %h is the host, %p the process, %% a percent sign. */
static void open_file(const char* pattern) {
  char path[4096];
  size_t n = 0;
  for (const char* p = pattern; *p && n + 1 < sizeof path; p++) {
    if (*p != '%') {
      path[n++] = *p;
      continue;
    }
    switch (*++p) {
      case 'h': n += (size_t)snprintf(path + n, sizeof path - n, "%s", host); break;
      case 'p': n += (size_t)snprintf(path + n, sizeof path - n, "%d", (int)getpid()); break;
      case '%': path[n++] = '%'; break;
      case 0: p--; /* fall through */
      default: path[n++] = '%'; if (*p != '%' && n + 1 < sizeof path) path[n++] = *p; break;
    }
    if (n >= sizeof path) return;
  }
  path[n] = 0;
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd >= 0) out = fd; /* else lines stay where they were: a log is no reason to fail */
}

void log_read_environment(void) {
  pthread_mutex_lock(&lock);
  if (gethostname(host, sizeof host - 1) == 0) host[strcspn(host, ".")] = 0;
  if (out != STDOUT_FILENO) close(out);
  out = STDOUT_FILENO;
  unsigned level = parse_level(setting("NCCL_DEBUG"));
  const char* file = setting("NCCL_DEBUG_FILE");
  if (level > LOG_VERSION && file && *file) open_file(file);
  const char* stamp = setting("NCCL_DEBUG_TIMESTAMP_FORMAT");
  snprintf(stamp_format, sizeof stamp_format, "%s", stamp ? stamp : "[%F %T] ");
  stamp_levels = parse_levels(setting("NCCL_DEBUG_TIMESTAMP_LEVELS"));
  atomic_store(&shown, level << 24 | 1u << 31 | parse_subsystems(setting("NCCL_DEBUG_SUBSYS")));
  pthread_mutex_unlock(&lock);
}

static unsigned what_is_shown(void) {
  unsigned s = atomic_load_explicit(&shown, memory_order_relaxed);
  if (s == 0) {
    log_read_environment();
    s = atomic_load_explicit(&shown, memory_order_relaxed);
  }
  return s;
}

int log_shown(enum log_level level, unsigned subsystem) {
  unsigned s = what_is_shown();
  return (s >> 24 & 0x7f) >= level && (level < LOG_INFO || s & subsystem);
}

static void put(const char* line, size_t n) {
  pthread_mutex_lock(&lock);
  int fd = out;
  while (n > 0) {
    ssize_t w = write(fd, line, n);
    if (w < 0 && errno == EINTR) continue;
    if (w <= 0) break;
    line += w;
    n -= (size_t)w;
  }
  pthread_mutex_unlock(&lock);
}

static size_t add(char* line, size_t n, const char* format, ...) {
  va_list args;
  va_start(args, format);
  int w = vsnprintf(line + n, LINE - 1 - n, format, args);
  va_end(args);
  if (w < 0) return n;
  return n + (size_t)w > LINE - 2 ? LINE - 2 : n + (size_t)w;
}

static size_t add_process(char* line, size_t n, int device) {
  n = add(line, n, "%s:%d:%ld ", host, (int)getpid(), syscall(SYS_gettid));
  return device >= 0 ? add(line, n, "[%d] ", device) : n;
}

/* add_stamp begins a line with the time. %1f to %9f are digits of a second, as in NCCL. */
static size_t add_stamp(char* line, size_t n, enum log_level level) {
  if (!(stamp_levels & 1u << level) || stamp_format[0] == 0) return n;
  struct timespec now;
  struct tm local;
  char format[96], text[160];
  size_t f = 0;
  clock_gettime(CLOCK_REALTIME, &now);
  localtime_r(&now.tv_sec, &local);
  for (const char* p = stamp_format; *p && f + 12 < sizeof format; p++) {
    if (p[0] == '%' && p[1] >= '1' && p[1] <= '9' && p[2] == 'f') {
      char digits[12];
      snprintf(digits, sizeof digits, "%09ld", now.tv_nsec);
      f += (size_t)snprintf(format + f, sizeof format - f, "%.*s", p[1] - '0', digits);
      p += 2;
    } else {
      format[f++] = *p;
    }
  }
  format[f] = 0;
  return strftime(text, sizeof text, format, &local) ? add(line, n, "%s", text) : n;
}

void log_info(unsigned subsystem, int device, const char* format, ...) {
  if (!log_shown(LOG_INFO, subsystem)) return;
  char line[LINE], text[LINE - 300];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  size_t n = add_stamp(line, 0, LOG_INFO);
  n = add(line, add_process(line, n, device), "NCCL INFO %s", text);
  line[n++] = '\n';
  put(line, n);
}

static void print_warning(const char* file, int at, const char* text) {
  if (!log_shown(LOG_WARN, SUB_ALL)) return;
  char line[LINE];
  size_t n = add_stamp(line, add(line, 0, "\n"), LOG_WARN);
  n = add(line, add_process(line, n, -1), "%s:%d NCCL WARN %s", file, at, text);
  line[n++] = '\n';
  put(line, n);
}

void log_warning(const char* format, ...) {
  char text[LAST];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  print_warning(__FILE_NAME__, __LINE__, text);
}

void log_warning_at(const char* file, int line, const char* text) { print_warning(file, line, text); }

ncclResult_t log_failure(const char* file, int at, ncclResult_t code, const char* format, ...) {
  char text[LAST] = {0};
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);

  pthread_mutex_lock(&lock);
  int other = !atomic_load(&which);
  memcpy(last[other], text, sizeof text);
  memcpy(mine, text, sizeof text);
  atomic_store(&which, other);
  pthread_mutex_unlock(&lock);

  print_warning(file, at, text);
  return code;
}

void log_version(int rank, int device, const char* text) {
  if (log_shown(LOG_INFO, SUB_ALL)) {
    log_info(SUB_ALL, device, "%s", text);
  } else if (rank == 0 && log_shown(LOG_VERSION, SUB_ALL)) {
    char line[LINE];
    size_t n = add(line, 0, "%s", text);
    line[n++] = '\n';
    put(line, n);
  }
}

const char* last_error(void) { return last[atomic_load(&which)]; }

const char* thread_error(void) { return mine; }

EXPORT(const char*, GetLastError, ncclComm_t comm) {
  (void)comm;
  return last_error();
}

EXPORT(void, ResetDebugInit, void) { log_read_environment(); }

EXPORT(const char*, GetErrorString, ncclResult_t code) {
  switch ((int)code) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError: return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    case 8: return "timeout"; /* of newer headers; this library never returns it */
    default: return "unknown result code";
  }
}

void log_after_fork(void) { pthread_mutex_init(&lock, NULL); }
