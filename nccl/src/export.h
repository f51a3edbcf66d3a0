/* How functions of the library become visible: pncclX is the function, ncclX a weak name of it,
 * so that tools that wrap NCCL can define ncclX themselves and call pncclX. */
#pragma once

#include "../nccl.h"

#define VISIBLE __attribute__((visibility("default")))

#define EXPORT(result, name, ...)                                                      \
  VISIBLE result pnccl##name(__VA_ARGS__);                                             \
  VISIBLE result nccl##name(__VA_ARGS__) __attribute__((weak, alias("pnccl" #name)));  \
  result pnccl##name(__VA_ARGS__)
