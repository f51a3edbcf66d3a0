// A libmlx5 without hardware, beside fake.c: it hands registrations to the libibverbs that
// FAKE_VERBS_LIBRARY names, and writes down what it was asked for.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "../abi.h"

bool mlx5dv_is_supported(void* device) {
#ifdef OTHER_VENDOR
  return false;
#else
  return device != NULL;
#endif
}

#ifndef OLD  // before rdma-core 54
int mlx5dv_get_data_direct_sysfs_path(struct rv_context* c, char* path, size_t bytes) {
  (void)c;
#ifdef NO_PATH
  (void)path, (void)bytes;
  return ENODEV;
#else
  snprintf(path, bytes, "/sys/devices/pci0000:00/fake");
  return 0;
#endif
}

struct rv_mr* mlx5dv_reg_dmabuf_mr(struct rv_pd* pd, uint64_t offset, size_t bytes, uint64_t iova, int fd, int access, int mlx5_access) {
  const char* log = getenv("FAKE_VERBS_LOG");
  FILE* f = log != NULL ? fopen(log, "a") : NULL;
  if (f != NULL) {
    fprintf(f, "mlx5 register flags=%d\n", mlx5_access);
    fclose(f);
  }
#ifdef REFUSES
  errno = EOPNOTSUPP;
  return NULL;
#endif
  void* verbs = dlopen(getenv("FAKE_VERBS_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
  struct rv_mr* (*reg)(struct rv_pd*, uint64_t, size_t, uint64_t, int, int) = NULL;
  if (verbs != NULL) *(void**)&reg = dlsym(verbs, "ibv_reg_dmabuf_mr");
  if (reg == NULL) {
    errno = ENOSYS;
    return NULL;
  }
  return reg(pd, offset, bytes, iova, fd, access);
}
#endif
