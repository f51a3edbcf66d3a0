/* Kernels of the program: the C side. */
#include "_cgo_export.h"
#include "internal.h"

#include <limits.h>
#include <stddef.h>

mscclpp_result_t mscclpp_module_load(mscclpp_comm_t comm, const void *image, size_t bytes, mscclpp_module_t *module) {
  PLACE(module, "module load");
  if (image == NULL || bytes == 0 || bytes > INT_MAX)
    return failed(MSCCLPP_INVALID, "module load: %zu bytes at %p: expected an image", bytes, image);
  SETUP(mscclppGoModuleLoad((uintptr_t)comm, (void *)image, bytes, (uintptr_t *)module, failure_here()));
}

mscclpp_result_t mscclpp_module_kernel(mscclpp_module_t module, const char *symbol, mscclpp_kernel_t *kernel) {
  PLACE(kernel, "module kernel");
  if (symbol == NULL) return failed(MSCCLPP_INVALID, "module kernel: the symbol is NULL");
  DATA(mscclppGoModuleKernel((uintptr_t)module, (char *)symbol, (uintptr_t *)kernel, failure_here()));
}

mscclpp_result_t mscclpp_kernel_launch(mscclpp_kernel_t kernel, const mscclpp_launch_options_t *options, const void *args, size_t bytes) {
  enum { MOST = 4096 }; /* bytes of arguments that every device takes */
  mscclpp_launch_options_t o = MSCCLPP_LAUNCH_OPTIONS_INIT;
  if (options != NULL) {
    mscclpp_result_t r = structure(&o, sizeof o, sizeof o, options, "mscclpp_launch_options_t");
    if (r != MSCCLPP_SUCCESS) return r;
  }
  if (args == NULL || bytes == 0 || bytes > MOST)
    return failed(MSCCLPP_INVALID, "kernel launch: %zu bytes of arguments at %p: expected 1 to %d", bytes, args, MOST);
  if (o.grid == 0 || o.block == 0)
    return failed(MSCCLPP_INVALID, "kernel launch: a grid of %u blocks of %u threads: expected at least one of each", o.grid, o.block);
  if (o.reserved != 0) return failed(MSCCLPP_INVALID, "kernel launch: reserved is %u: expected 0", o.reserved);
  DATA(mscclppGoKernelLaunch((uintptr_t)kernel, &o, (void *)args, bytes, failure_here()));
}

mscclpp_result_t mscclpp_module_free(mscclpp_module_t module) {
  if (module == NULL) return MSCCLPP_SUCCESS;
  TEARDOWN(mscclppGoFree((uintptr_t)module, KIND_MODULE, failure_here()));
}
