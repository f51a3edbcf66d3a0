#include "scope.h"

cuda_status cuda_reserve(const cuda_context* c, uint64_t bytes, uint64_t alignment, uint64_t* address) {
  BEGIN;
  CUdeviceptr a = 0;
  if (CALL(cuMemAddressReserve, &a, bytes, alignment, 0, 0)) *address = a;
  END;
}

cuda_status cuda_unreserve(const cuda_context* c, uint64_t address, uint64_t bytes) {
  BEGIN;
  (void)CALL(cuMemAddressFree, address, bytes);
  END;
}

cuda_status cuda_open_handle(const cuda_context* c, int type, int fd, const void* blob, uint64_t* handle) {
  BEGIN;
  CUmemGenericAllocationHandle h = 0;
  void* shareable = type == CU_MEM_HANDLE_TYPE_FABRIC ? (void*)blob : (void*)(uintptr_t)fd;
  if (CALL(cuMemImportFromShareableHandle, &h, shareable, type)) *handle = h;
  END;
}

cuda_status cuda_place(const cuda_context* c, uint64_t handle, uint64_t address, uint64_t bytes) {
  BEGIN;
  CUmemAccessDesc d = {0};
  d.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  d.location.id = c->device;
  d.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (CALL(cuMemMap, address, bytes, 0, handle, 0) && !CALL(cuMemSetAccess, address, bytes, &d, 1)) c->api->cuMemUnmap(address, bytes);
  END;
}

cuda_status cuda_displace(const cuda_context* c, uint64_t address, uint64_t bytes) {
  BEGIN;
  (void)CALL(cuMemUnmap, address, bytes);
  END;
}

cuda_status cuda_unit(const cuda_context* c, uint64_t* unit) {
  BEGIN;
  CUmemAllocationProp p = {0};
  size_t n = 0;
  p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  p.location.id = c->device;
  if (CALL(cuMemGetAllocationGranularity, &n, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM)) *unit = n;
  END;
}
