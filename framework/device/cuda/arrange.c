// Memory of several ranks at addresses that are reserved for it.
#include "memory.h"

cuda_status cuda_reserve(cuda_context* c, uint64_t bytes, uint64_t* address) {
  BEGIN;
  CUdeviceptr a = 0;
  const size_t large_page = 2u << 20;
  if (CALL(cuMemAddressReserve, &a, bytes, large_page, 0, 0)) *address = a;
  END;
}

cuda_status cuda_unreserve(cuda_context* c, uint64_t address, uint64_t bytes) {
  BEGIN;
  (void)CALL(cuMemAddressFree, address, bytes);
  END;
}

// Maps the allocation of a handle, which it gives back: the mapping keeps the memory.
static cuda_status place(const cuda_context* c, CUmemGenericAllocationHandle handle, uint64_t address, uint64_t bytes, mscclpp_device_memory* m) {
  cuda_status st = {0};
  if (CALL(cuMemMap, address, bytes, 0, handle, 0)) {
    st = cuda_access_to(c, address, bytes);
    if (st.code != CUDA_SUCCESS) c->api->cuMemUnmap(address, bytes);
  }
  c->api->cuMemRelease(handle);
  m->address = m->start = address, m->bytes = m->whole = bytes, m->handle = CUDA_FOREIGN_HANDLE, m->ordinal = c->index;
  return cuda_explained(st);
}

cuda_status cuda_place_share(cuda_context* c, const mscclpp_device_share* share, uint64_t address, uint64_t bytes, mscclpp_device_memory* m) {
  const int fabric = share->kind == CUDA_SHARE_FABRIC;
  if (share->kind != CUDA_SHARE_VMM && !fabric) return worded(CUDA_WORDS_NO_SHARE, 0);
  if (fabric && share->blob_bytes != sizeof(CUmemFabricHandle)) return worded(CUDA_WORDS_FABRIC, 0);
  BEGIN;
  CUmemGenericAllocationHandle handle = 0;
  void* shareable = fabric ? (void*)share->blob : (void*)(uintptr_t)share->fd;
  if (CALL(cuMemImportFromShareableHandle, &handle, shareable, fabric ? CU_MEM_HANDLE_TYPE_FABRIC : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
    st = place(c, handle, address, bytes, m);
  }
  END;
}

cuda_status cuda_place_own(cuda_context* c, const mscclpp_device_memory* own, uint64_t address, uint64_t bytes, mscclpp_device_memory* m) {
  BEGIN;
  CUmemGenericAllocationHandle handle = 0;
  if (CALL(cuMemRetainAllocationHandle, &handle, (void*)(uintptr_t)own->address)) st = place(c, handle, address, bytes, m);
  END;
}

cuda_status cuda_displace(cuda_context* c, const mscclpp_device_memory* m) {
  BEGIN;
  (void)CALL(cuMemUnmap, m->address, m->whole);
  END;
}
