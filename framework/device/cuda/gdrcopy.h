// The C side of GDRCopy, NVIDIA's access to memory of a GPU for the processor: a library,
// opened at run time, and behind it the kernel module gdrdrv.
#ifndef MSCCLPP_CUDA_GDRCOPY_H_
#define MSCCLPP_CUDA_GDRCOPY_H_

#include "shim.h"

#pragma GCC visibility push(hidden)

typedef struct gdrcopy_library gdrcopy_library;
typedef struct gdrcopy_view gdrcopy_view;

// Opens the library and looks up what is used of it. On failure returns NULL, and the
// reason in why.
gdrcopy_library* gdrcopy_open(const char* path, char* why, size_t bytes);

// Maps memory of a GPU: whole pages of the GPU, from the address of the first one. host is
// where the processor finds that. Codes are those of errno; what was made before a failure is undone.
cuda_status gdrcopy_map(const gdrcopy_library* library, uint64_t address, uint64_t bytes, gdrcopy_view** made, uint64_t* host);
// Gives a mapping back, all of it also behind a failure; the status is that of the first.
cuda_status gdrcopy_unmap(gdrcopy_view* view);

// Stores an aligned word of a mapping. It is on its way to the GPU when the call returns.
void gdrcopy_store(uintptr_t word, uint64_t value);
// Returns when all stores before it, of any thread that the caller has synchronized with, have
// arrived. It costs a read over the bus.
void gdrcopy_settle(uintptr_t word);

#pragma GCC visibility pop

#endif
