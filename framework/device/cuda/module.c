#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scope.h"

static cuda_status load(const cuda_context* c, const char* image, uintptr_t* module, char* log, size_t log_bytes) {
  enum { LOG = 8192 };
  char* info = calloc(2, LOG);
  if (info == NULL) return (cuda_status){.code = MSCCLPP_DEVICE_NO_MEMORY, .call = "calloc"};
  char* error = info + LOG;
  int options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {info, (void*)(uintptr_t)(LOG - 1), error, (void*)(uintptr_t)(LOG - 1)};
  cuda_scope scope;
  cuda_status st = {.code = enter_relaxed(c, &scope), .call = "cuCtxSetCurrent"};
  if (st.code == CUDA_SUCCESS) {
    CUmodule m = NULL;
    if (CALL(cuModuleLoadDataEx, &m, image, 4, options, values)) {
      *module = (uintptr_t)m;
    } else {
      snprintf(log, log_bytes, "%.*s%s%.*s", LOG - 1, error, error[0] != '\0' && info[0] != '\0' ? "\n" : "", LOG - 1, info);
    }
    leave_relaxed(c, &scope);
  }
  free(info);
  if (st.code == CUDA_ERROR_INVALID_IMAGE || st.code == CUDA_ERROR_NO_BINARY_FOR_GPU) st.code += CUDA_WORDS_IMAGE * CUDA_HINT;
  return st;
}

// Objects of processors and of other makers: of them the driver says no more than that they are invalid, and it crashes on some
// that are cut off.
static int is_stranger(const uint8_t* image, uint64_t bytes) {
  enum { HEADER = 64, MACHINE = 18, EM_CUDA = 190 };
  if (bytes < 4 || memcmp(image, "\177ELF", 4) != 0) return 0;
  return bytes < HEADER || (image[MACHINE] | image[MACHINE + 1] << 8) != EM_CUDA;
}

cuda_status cuda_module_load(cuda_context* c, const void* image, uint64_t bytes, cuda_handle* module, char* log, uint64_t log_bytes) {
  log[0] = '\0';
  if (is_stranger(image, bytes)) return worded(CUDA_WORDS_IMAGE, 0);
  // PTX is text that ends with a zero; other images are not hurt by one.
  char* copy = malloc(bytes + 1);
  if (copy == NULL) return (cuda_status){.code = MSCCLPP_DEVICE_NO_MEMORY, .call = "malloc"};
  memcpy(copy, image, bytes);
  copy[bytes] = '\0';
  const cuda_status st = load(c, copy, module, log, log_bytes);
  free(copy);
  return st;
}

cuda_status cuda_module_unload(cuda_context* c, cuda_handle module) {
  BEGIN;
  (void)CALL(cuModuleUnload, (CUmodule)module);
  END;
}

// Asking for attributes also loads the kernel. The driver would else do that at
// the first launch, which may be within a capture, or beside a kernel that waits.
cuda_status cuda_kernel_find(cuda_context* c, cuda_handle module, const char* name, cuda_handle* kernel, mscclpp_device_kernel_info* f) {
  BEGIN;
  CUfunction k = NULL;
  int threads = 0, shared = 0, dynamic = 0, local = 0, registers = 0;
  if (CALL(cuModuleGetFunction, &k, (CUmodule)module, name) &&
      CALL(cuFuncGetAttribute, &threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, k) &&
      CALL(cuFuncGetAttribute, &shared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, k) &&
      CALL(cuFuncGetAttribute, &dynamic, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, k) &&
      CALL(cuFuncGetAttribute, &local, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, k) &&
      CALL(cuFuncGetAttribute, &registers, CU_FUNC_ATTRIBUTE_NUM_REGS, k)) {
    *kernel = (uintptr_t)k;
    f->threads = (uint32_t)threads, f->shared = (uint32_t)shared, f->dynamic = dynamic > 0 ? (uint32_t)dynamic : 0;
    f->local = (uint32_t)local, f->registers = (uint32_t)registers;
  } else if (st.code == CUDA_ERROR_NOT_FOUND) {
    st.code = MSCCLPP_DEVICE_NOT_FOUND;
  }
  END;
}

// The driver gives 48 KiB unasked.
cuda_status cuda_kernel_allow(cuda_context* c, cuda_handle kernel, uint32_t shared) {
  BEGIN;
  (void)CALL(cuFuncSetAttribute, (CUfunction)kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared);
  END;
}

cuda_status cuda_kernel_fit(cuda_context* c, cuda_handle kernel, uint32_t block, uint32_t shared, uint32_t* blocks) {
  BEGIN;
  int each = 0;
  if (CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, &each, (CUfunction)kernel, (int)block, shared)) *blocks = (uint32_t)(each * c->facts.sms);
  END;
}
