/* NCCL_DEBUG: levels, subsystems, where lines go, and the text of the last error. */
#pragma once

#include "../nccl.h"

enum log_level { LOG_NONE, LOG_VERSION, LOG_WARN, LOG_INFO, LOG_ABORT, LOG_TRACE };

/* Bits of NCCL_DEBUG_SUBSYS. */
enum log_subsystem {
  SUB_INIT = 1 << 0,
  SUB_COLL = 1 << 1,
  SUB_P2P = 1 << 2,
  SUB_SHM = 1 << 3,
  SUB_NET = 1 << 4,
  SUB_GRAPH = 1 << 5,
  SUB_TUNING = 1 << 6,
  SUB_ENV = 1 << 7,
  SUB_ALLOC = 1 << 8,
  SUB_CALL = 1 << 9,
  SUB_PROXY = 1 << 10,
  SUB_NVLS = 1 << 11,
  SUB_BOOTSTRAP = 1 << 12,
  SUB_REG = 1 << 13,
  SUB_PROFILE = 1 << 14,
  SUB_RAS = 1 << 15,
  SUB_DESTROY = 1 << 16,
  SUB_ALLOC_HOST = 1 << 17,
  SUB_ALL = (1 << 18) - 1,
};

/* log_shown reports whether a line would be printed: one load and a comparison. */
int log_shown(enum log_level level, unsigned subsystem);

/* log_info prints a line at level INFO. */
void log_info(unsigned subsystem, int device, const char* format, ...) __attribute__((format(printf, 3, 4)));

/* fail keeps the text for ncclGetLastError, prints it at level WARN, and returns the code. */
#define fail(code, ...) log_failure(__FILE_NAME__, __LINE__, code, __VA_ARGS__)
ncclResult_t log_failure(const char* file, int line, ncclResult_t code, const char* format, ...)
    __attribute__((format(printf, 4, 5)));

/* log_warning prints a line at level WARN that is no failure. */
void log_warning(const char* format, ...) __attribute__((format(printf, 1, 2)));

/* log_warning_at prints such a line in the name of another file. */
void log_warning_at(const char* file, int line, const char* text);

/* log_version prints who this library is: bare at VERSION and WARN on rank 0, on all ranks at INFO. */
void log_version(int rank, int device, const char* text);

/* last_error is the text for ncclGetLastError. It lives as long as the process. */
const char* last_error(void);

/* thread_error is the text of this thread's last failure, until its next one. */
const char* thread_error(void);

/* log_after_fork makes the log of a forked child usable: another thread may have held its lock. */
void log_after_fork(void);

/* log_read_environment reads the variables again. */
void log_read_environment(void);
