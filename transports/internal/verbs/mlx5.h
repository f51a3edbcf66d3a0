#ifndef MSCCLPP_VERBS_MLX5_H_
#define MSCCLPP_VERBS_MLX5_H_

// The functions that libmlx5 adds to libibverbs for NVIDIA's adapters: registration of a dma-buf by the
// adapter's direct path to GPUs. The library is loaded when it is first needed; a machine
// without it has none of this.

#include "abi.h"

typedef struct mscclpp_mlx5 mscclpp_mlx5;

// NULL: err says why.
mscclpp_mlx5* mscclpp_mlx5_load(const char* path, char* err, size_t bytes);

// 0 if the adapter has data-direct access, with the path of its device in sysfs; else a
// number of errno.
int mscclpp_mlx5_data_direct(mscclpp_mlx5*, struct rv_context*, char* path, size_t bytes);

struct rv_mr* mscclpp_mlx5_register(mscclpp_mlx5*, struct rv_pd*, uint64_t offset, size_t bytes, uint64_t iova, int fd, int access, int* err);

#endif
