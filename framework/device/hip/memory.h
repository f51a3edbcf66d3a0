// Memory of the GPU, between the sources that make it and that share it.
#ifndef MSCCLPP_HIP_MEMORY_H_
#define MSCCLPP_HIP_MEMORY_H_

#include "scope.h"

#pragma GCC visibility push(hidden)

hipMemAllocationProp hip_properties(const hip_device* d, int type);
// Rounds bytes up to what the device maps at once. An error if that overflows.
hip_status hip_rounded(const hip_device* d, const hipMemAllocationProp* p, uint64_t* bytes);
hip_status hip_map_handle(const hip_device* d, hipMemGenericAllocationHandle_t handle, uint64_t bytes, hip_block* made);
hip_status hip_unmap_handle(const hip_device* d, const hip_block* b);
// The kinds of shares that memory has.
uint64_t hip_shares_of(const hip_device* d, int behind_handle);

#pragma GCC visibility pop

#endif
