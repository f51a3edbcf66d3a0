// Memory behind handles, for the parts that make and import it.
#ifndef MSCCLPP_CUDA_MEMORY_H_
#define MSCCLPP_CUDA_MEMORY_H_

#include "scope.h"

#pragma GCC visibility push(hidden)

CUmemAllocationProp cuda_properties(const cuda_context* c, int handle_types, int rdma);
// Rounds bytes up to what the device maps at once.
cuda_status cuda_rounded(const cuda_context* c, const CUmemAllocationProp* p, uint64_t* bytes);
// Gives the handle addresses. On failure the handle is released.
cuda_status cuda_map_handle(const cuda_context* c, CUmemGenericAllocationHandle handle, uint64_t bytes, cuda_block* made);
// Lets kernels of the device use addresses.
cuda_status cuda_access_to(const cuda_context* c, uint64_t address, uint64_t bytes);
// The meaning of an answer for memory of others depends on the step.
cuda_status cuda_explained(cuda_status st);
cuda_status cuda_unmap_handle(const cuda_context* c, const cuda_block* b);

#pragma GCC visibility pop

#endif
