#include "version.h"

#include <stdio.h>

#include "env.h"
#include "export.h"
#include "log.h"
#include "maker.h"

#ifndef LIBRARY_VERSION
#define LIBRARY_VERSION "devel"
#endif

/* MSCCLPP_NCCL_VERSION overrides the number, as in 22705 or 2.27.5. */
static int version(void) {
  static int cached;
  int v = __atomic_load_n(&cached, __ATOMIC_RELAXED);
  if (v) return v;
  v = LIBRARY_VERSION_CODE;
  const char* set = setting("MSCCLPP_NCCL_VERSION");
  int major, minor, patch;
  char rest;
  if (set && *set) {
    if (sscanf(set, "%d.%d.%d%c", &major, &minor, &patch, &rest) == 3)
      v = NCCL_VERSION(major, minor, patch);
    else if (sscanf(set, "%d%c", &major, &rest) == 1 && major >= 1000)
      v = major;
    else
      fail(ncclInvalidArgument, "MSCCLPP_NCCL_VERSION is \"%s\": expected a version such as 22809 or 2.28.9", set);
  }
  __atomic_store_n(&cached, v, __ATOMIC_RELAXED);
  return v;
}

EXPORT(ncclResult_t, GetVersion, int* out) {
  if (out == NULL) return fail(ncclInvalidArgument, "ncclGetVersion : version argument is NULL");
  *out = version();
  return ncclSuccess;
}

void version_number(char* text, size_t size) {
  int v = version();
  int wide = v >= 10000;
  snprintf(text, size, "%d.%d.%d", v / (wide ? 10000 : 1000), v / 100 % (wide ? 100 : 10), v % 100);
}

void version_text(char* text, size_t size) {
  char number[32];
  version_number(number, sizeof number);
  snprintf(text, size, LIBRARY_SPOKEN " version %s+" LIBRARY_RUNTIME " (mscclpp-go %s)", number, LIBRARY_VERSION);
}

void version_print(int rank, int device) {
  char text[160];
  version_text(text, sizeof text);
  log_version(rank, device, text);
}

const char* library_version(void) { return LIBRARY_VERSION; }
