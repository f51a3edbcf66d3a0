#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scope.h"

cuda_status cuda_module_load(const cuda_context* c, const void* image, size_t bytes, uintptr_t* module, char* log, size_t log_bytes) {
  cuda_status out = {CUDA_ERROR_OUT_OF_MEMORY, "malloc"};
  log[0] = '\0';
  // PTX is text that ends with a zero; other images are not hurt by one.
  char* copy = malloc(bytes + 1);
  enum { LOG = 8192 };
  char* info = calloc(2, LOG);
  if (copy == NULL || info == NULL) goto done;
  memcpy(copy, image, bytes);
  copy[bytes] = '\0';
  char* error = info + LOG;
  int options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {info, (void*)(uintptr_t)(LOG - 1), error, (void*)(uintptr_t)(LOG - 1)};
  cuda_scope scope;
  cuda_status st = {enter_relaxed(c, &scope), "cuCtxSetCurrent"};
  if (st.code == CUDA_SUCCESS) {
    CUmodule m = NULL;
    if (CALL(cuModuleLoadDataEx, &m, copy, 4, options, values)) {
      *module = (uintptr_t)m;
    } else {
      snprintf(log, log_bytes, "%.*s%s%.*s", LOG - 1, error, error[0] != '\0' && info[0] != '\0' ? "\n" : "", LOG - 1, info);
    }
    leave_relaxed(c, &scope);
  }
  out = st;
done:
  free(copy);
  free(info);
  return out;
}

cuda_status cuda_module_unload(const cuda_context* c, uintptr_t module) {
  BEGIN;
  (void)CALL(cuModuleUnload, (CUmodule)module);
  END;
}

// Asking for attributes also loads the kernel. The driver would else do that at
// the first launch, which may be within a capture, or beside a kernel that waits.
cuda_status cuda_kernel(const cuda_context* c, uintptr_t module, const char* name, uintptr_t* function, cuda_kernel_facts* f) {
  BEGIN;
  CUfunction k = NULL;
  if (CALL(cuModuleGetFunction, &k, (CUmodule)module, name) &&
      CALL(cuFuncGetAttribute, &f->threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, k) &&
      CALL(cuFuncGetAttribute, &f->shared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, k) &&
      CALL(cuFuncGetAttribute, &f->dynamic, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, k) &&
      CALL(cuFuncGetAttribute, &f->local, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, k) &&
      CALL(cuFuncGetAttribute, &f->registers, CU_FUNC_ATTRIBUTE_NUM_REGS, k)) {
    *function = (uintptr_t)k;
  }
  END;
}

cuda_status cuda_kernel_shared(const cuda_context* c, uintptr_t function, int bytes) {
  BEGIN;
  (void)CALL(cuFuncSetAttribute, (CUfunction)function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes);
  END;
}

cuda_status cuda_occupancy(const cuda_context* c, uintptr_t function, int block, uint64_t shared, int* blocks) {
  BEGIN;
  (void)CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, blocks, (CUfunction)function, block, shared);
  END;
}
