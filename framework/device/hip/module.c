#define _GNU_SOURCE
#include <elf.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scope.h"

enum { AMDGPU = 224 };  // EM_AMDGPU

// The kernels that store words and wait for them, for each architecture that there is an image for. They are handed over before devices open.
static struct {
  pthread_mutex_t lock;
  struct {
    char arch[32];
    void* image;
    size_t bytes;
  } of[8];
} words = {.lock = PTHREAD_MUTEX_INITIALIZER};

void hip_word_image(const char* arch, const void* image, size_t bytes) {
  pthread_mutex_lock(&words.lock);
  for (size_t i = 0; i < sizeof words.of / sizeof *words.of; i++) {
    if (words.of[i].image != NULL && strcmp(words.of[i].arch, arch) == 0) break;
    if (words.of[i].image != NULL || (words.of[i].image = malloc(bytes)) == NULL) continue;
    memcpy(words.of[i].image, image, bytes);
    snprintf(words.of[i].arch, sizeof words.of[i].arch, "%s", arch);
    words.of[i].bytes = bytes;
    break;
  }
  pthread_mutex_unlock(&words.lock);
}

const void* hip_find_word_image(const char* arch, size_t* bytes) {
  const void* found = NULL;
  pthread_mutex_lock(&words.lock);
  for (size_t i = 0; i < sizeof words.of / sizeof *words.of; i++) {
    if (words.of[i].image != NULL && strcmp(words.of[i].arch, arch) == 0) found = words.of[i].image, *bytes = words.of[i].bytes;
  }
  pthread_mutex_unlock(&words.lock);
  return found;
}

// Whether the bytes are a code object that lies within them: the library asks for no length, and reads as far as the headers say.
static int is_code_object(const uint8_t* image, uint64_t bytes) {
  Elf64_Ehdr h;
  if (bytes < sizeof h) return 0;
  memcpy(&h, image, sizeof h);
  if (memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_machine != AMDGPU) return 0;
  const uint64_t segments = (uint64_t)h.e_phnum * sizeof(Elf64_Phdr), sections = (uint64_t)h.e_shnum * sizeof(Elf64_Shdr);
  if (h.e_phentsize != sizeof(Elf64_Phdr) || h.e_phoff > bytes || segments > bytes - h.e_phoff) return 0;
  if (h.e_shoff > bytes || sections > bytes - h.e_shoff || (h.e_shnum > 0 && h.e_shentsize != sizeof(Elf64_Shdr))) return 0;
  for (uint64_t i = 0; i < h.e_phnum; i++) {
    Elf64_Phdr p;
    memcpy(&p, image + h.e_phoff + i * sizeof p, sizeof p);
    if (p.p_offset > bytes || p.p_filesz > bytes - p.p_offset) return 0;
  }
  for (uint64_t i = 0; i < h.e_shnum; i++) {
    Elf64_Shdr s;
    memcpy(&s, image + h.e_shoff + i * sizeof s, sizeof s);
    if (s.sh_type != SHT_NOBITS && (s.sh_offset > bytes || s.sh_size > bytes - s.sh_offset)) return 0;
  }
  return 1;
}

hip_status hip_module_load(hip_device* d, const void* image, uint64_t bytes, hip_handle* module, char* log, uint64_t log_bytes) {
  if (log_bytes > 0) log[0] = '\0';  // there is no compiler
  if (!is_code_object(image, bytes)) {  // the library would give this answer, if it survived
    return (hip_status){.code = HIP_SAYS_IMAGE * HIP_HINT + hipErrorInvalidImage, .call = "hipModuleLoadData"};
  }
  BEGIN;
  hipModule_t m = NULL;
  if (CALL(hipModuleLoadData, &m, image)) {
    *module = (uintptr_t)m;
  } else if (st.code == hipErrorInvalidImage || st.code == hipErrorNoBinaryForGpu || st.code == hipErrorInvalidKernelFile) {
    st.code += HIP_SAYS_IMAGE * HIP_HINT;
  }
  END;
}

hip_status hip_module_unload(hip_device* d, hip_handle module) {
  BEGIN;
  (void)CALL(hipModuleUnload, (hipModule_t)module);
  END;
}

hip_status hip_kernel_find(hip_device* d, hip_handle module, const char* name, hip_handle* kernel, mscclpp_device_kernel_info* f) {
  BEGIN;
  hipFunction_t k = NULL;
  int threads = 0, shared = 0, local = 0, registers = 0;
  if (CALL(hipModuleGetFunction, &k, (hipModule_t)module, name) &&
      CALL(hipFuncGetAttribute, &threads, HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, k) &&
      CALL(hipFuncGetAttribute, &shared, HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, k) &&
      CALL(hipFuncGetAttribute, &local, HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, k) &&
      CALL(hipFuncGetAttribute, &registers, HIP_FUNC_ATTRIBUTE_NUM_REGS, k)) {
    *kernel = (uintptr_t)k;
    f->threads = (uint32_t)threads, f->shared = (uint32_t)shared, f->local = (uint32_t)local, f->registers = (uint32_t)registers;
    f->dynamic = shared < d->facts.shared ? (uint32_t)(d->facts.shared - shared) : 0;
  } else if (st.code == hipErrorNotFound) {
    st.code = MSCCLPP_DEVICE_NOT_FOUND;
  }
  END;
}

// A launch may ask for all memory of a block. hipFuncSetAttribute takes functions of the program, and none of a module.
hip_status hip_kernel_allow(hip_device* d, hip_handle kernel, uint32_t shared) {
  BEGIN;
  int fixed = 0;
  if (CALL(hipFuncGetAttribute, &fixed, HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, (hipFunction_t)kernel) &&
      (int64_t)shared + fixed > d->facts.shared) {
    st = says(HIP_SAYS_SHARED, 0);
  }
  END;
}

// One block a compute unit: what the library says of more is not a promise that they run at once.
hip_status hip_kernel_fit(hip_device* d, hip_handle kernel, uint32_t block, uint32_t shared, uint32_t* blocks) {
  BEGIN;
  int each = 0;
  if (CALL(hipModuleOccupancyMaxActiveBlocksPerMultiprocessor, &each, (hipFunction_t)kernel, (int)block, shared)) {
    *blocks = each > 0 ? (uint32_t)d->facts.cus : 0;
  }
  END;
}
