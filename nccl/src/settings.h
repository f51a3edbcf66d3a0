/* NCCL's variables as settings of this project's configuration. */
#pragma once

#include <stddef.h>

struct settings {
  char** owned;
  const char* const* texts; /* "key=value" */
  size_t count;
};

/* settings_read translates the environment; blocks is the most thread blocks of a kernel. */
void settings_read(struct settings* s, int blocks);
void settings_free(struct settings* s);
