// The C side of the CPU as a device: loading images, launching kernels, and what
// the processor can run.
#ifndef MSCCLPP_HOST_LAUNCH_H_
#define MSCCLPP_HOST_LAUNCH_H_

#include <stddef.h>
#include <stdint.h>

// Loads the shared object at path. On failure returns NULL, and the reason in why.
void* mscclpp_host_open(const char* path, char* why, size_t bytes);
// Returns the address of the symbol, or NULL.
void* mscclpp_host_symbol(void* module, const char* symbol);
// Unloads.
int mscclpp_host_close(void* module);

// The highest x86-64 level of the processor, 1 to 4; 0 on other processors.
int mscclpp_host_level(void);

typedef struct {
  uint32_t grid;
  uint32_t block;
  uint32_t shared;
  uint32_t reserved;
} mscclpp_host_shape;

// Calls the entry point. Addresses travel as integers, so that the call needs no
// pointer checks.
static inline void mscclpp_host_launch(uintptr_t entry, uintptr_t args, uint32_t grid, uint32_t block, uint32_t shared) {
  const mscclpp_host_shape shape = {grid, block, shared, 0};
  ((void (*)(const void*, const mscclpp_host_shape*))entry)((const void*)args, &shape);
}

#endif
