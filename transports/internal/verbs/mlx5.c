#define _GNU_SOURCE
#include "mlx5.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { kDataDirect = 1 };  // MLX5DV_REG_DMABUF_ACCESS_DATA_DIRECT

struct mscclpp_mlx5 {
  bool (*is_supported)(void* device);
  int (*get_data_direct_sysfs_path)(struct rv_context*, char*, size_t);
  struct rv_mr* (*reg_dmabuf_mr)(struct rv_pd*, uint64_t, size_t, uint64_t, int, int, int);
};

// The two functions for data-direct access came with version 1.25 of the library's interface, in
// rdma-core 54.0 (providers/mlx5/libmlx5.map; 53.x has neither). A library that does not version
// its symbols has them without, and mlx5dv_is_supported is older.
static void* find(void* so, const char* name) {
  void* at = dlvsym(so, name, "MLX5_1.25");
  return at != NULL ? at : dlsym(so, name);
}

mscclpp_mlx5* mscclpp_mlx5_load(const char* path, char* err, size_t bytes) {
  void* so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (so == NULL) {
    const char* text = dlerror();
    snprintf(err, bytes, "%s", text != NULL ? text : "unknown");
    return NULL;
  }
  mscclpp_mlx5* m = calloc(1, sizeof *m);
  if (m == NULL) {
    snprintf(err, bytes, "out of memory");
    dlclose(so);
    return NULL;
  }
  const struct {
    const char* name;
    void** at;
  } symbols[] = {
      {"mlx5dv_is_supported", (void**)&m->is_supported},
      {"mlx5dv_get_data_direct_sysfs_path", (void**)&m->get_data_direct_sysfs_path},
      {"mlx5dv_reg_dmabuf_mr", (void**)&m->reg_dmabuf_mr},
  };
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; ++i) {
    *symbols[i].at = find(so, symbols[i].name);
    if (*symbols[i].at == NULL) {
      snprintf(err, bytes, "it has no %s: expected rdma-core 54 or newer", symbols[i].name);
      free(m);
      dlclose(so);
      return NULL;
    }
  }
  return m;  // never unloaded, as libibverbs
}

int mscclpp_mlx5_data_direct(mscclpp_mlx5* m, struct rv_context* c, char* path, size_t bytes) {
  if (!m->is_supported(c->device)) return EOPNOTSUPP;
  return m->get_data_direct_sysfs_path(c, path, bytes);
}

struct rv_mr* mscclpp_mlx5_register(mscclpp_mlx5* m, struct rv_pd* pd, uint64_t offset, size_t bytes, uint64_t iova, int fd, int access,
                                    int* err) {
  errno = 0;
  struct rv_mr* mr = m->reg_dmabuf_mr(pd, offset, bytes, iova, fd, access, kDataDirect);
  *err = mr != NULL ? 0 : errno != 0 ? errno : EIO;
  return mr;
}
