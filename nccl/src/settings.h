/* NCCL's variables as settings of this project's configuration. */
#pragma once

#include <stddef.h>

enum { SETTINGS_TEXT = 1024 };

struct settings {
  char transports[SETTINGS_TEXT]; /* those that are used, as far as variables say */
  struct settings_list {
    char** texts; /* "key=value" */
    size_t count;
  } set, defaults; /* what counts before the configuration of the user, and behind it */
};

/* What the settings of a communicator depend on beside the variables. */
struct settings_for {
  int device;      /* ordinal of CUDA; -1: host memory */
  int blocks;      /* the most thread blocks of a kernel; 0: as many as are fastest */
  const char* transports; /* those that a file of the configuration lists; NULL or "": none does */
  const char* net; /* netName of the communicator's configuration; NULL or "": NCCL_NET counts */
};

/* settings_read translates the variables. */
void settings_read(struct settings* s, const struct settings_for* with);
void settings_free(struct settings* s);

/* adapters_named writes the RDMA devices that NCCL_IB_HCA names, with commas between them, and the port
 * that goes with the first, or 0. folder is that in which the system lists its devices. */
void adapters_named(const char* list, const char* folder, char* out, size_t room, int* port);
