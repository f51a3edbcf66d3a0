#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>

#include "scope.h"

static CUmemAllocationProp properties(const cuda_context* c, int handle_types, int rdma) {
  CUmemAllocationProp p;
  memset(&p, 0, sizeof p);
  p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.requestedHandleTypes = handle_types;
  p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  p.location.id = c->device;
  p.allocFlags.gpuDirectRDMACapable = rdma != 0;
  return p;
}

// Rounds bytes up to what the device maps at once. 0 if that overflows.
static cuda_status rounded(const cuda_context* c, const CUmemAllocationProp* p, uint64_t* bytes) {
  cuda_status st;
  size_t unit = 0;
  if (!CALL(cuMemGetAllocationGranularity, &unit, p, CU_MEM_ALLOC_GRANULARITY_MINIMUM)) return st;
  if (unit == 0 || *bytes > UINT64_MAX - unit) {
    st.code = CUDA_ERROR_INVALID_VALUE;
    return st;
  }
  *bytes = (*bytes + unit - 1) / unit * unit;
  return st;
}

static cuda_status access_to(const cuda_context* c, uint64_t address, uint64_t bytes) {
  cuda_status st;
  CUmemAccessDesc d;
  memset(&d, 0, sizeof d);
  d.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  d.location.id = c->device;
  d.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  (void)CALL(cuMemSetAccess, address, bytes, &d, 1);
  return st;
}

// Gives the handle addresses. On failure the handle is released.
static cuda_status map_handle(const cuda_context* c, CUmemGenericAllocationHandle handle, uint64_t bytes, cuda_block* made) {
  cuda_status st;
  CUdeviceptr address = 0;
  // Large memory is aligned to large pages, so that the driver can use them.
  const size_t alignment = bytes >= 2u << 20 ? 2u << 20 : 0;
  if (!CALL(cuMemAddressReserve, &address, bytes, alignment, 0, 0)) goto release;
  if (!CALL(cuMemMap, address, bytes, 0, handle, 0)) goto release_addresses;
  st = access_to(c, address, bytes);
  if (st.code != CUDA_SUCCESS) goto unmap;
  made->address = address, made->bytes = bytes, made->handle = handle;
  return st;
unmap:
  c->api->cuMemUnmap(address, bytes);
release_addresses:
  c->api->cuMemAddressFree(address, bytes);
release:
  c->api->cuMemRelease(handle);
  return st;
}

static cuda_status unmap_handle(const cuda_context* c, const cuda_block* b) {
  cuda_status st, first;
  (void)CALL(cuMemUnmap, b->address, b->bytes);
  first = st;
  if (!CALL(cuMemAddressFree, b->address, b->bytes) && first.code == CUDA_SUCCESS) first = st;
  if (!CALL(cuMemRelease, b->handle) && first.code == CUDA_SUCCESS) first = st;
  return first;
}

// The stream is one of our own: the default stream would wait for others, and they
// for it.
static cuda_status zero(const cuda_context* c, uint64_t address, uint64_t bytes) {
  cuda_status st;
  if (CALL(cuMemsetD8Async, address, 0, bytes, c->aux)) (void)CALL(cuStreamSynchronize, c->aux);
  return st;
}

cuda_status cuda_create(const cuda_context* c, uint64_t bytes, int handle_types, int rdma, cuda_block* made) {
  BEGIN;
  const CUmemAllocationProp p = properties(c, handle_types, rdma);
  CUmemGenericAllocationHandle handle = 0;
  st = rounded(c, &p, &bytes);
  if (st.code == CUDA_SUCCESS && CALL(cuMemCreate, &handle, bytes, &p, 0)) {
    st = map_handle(c, handle, bytes, made);
    if (st.code == CUDA_SUCCESS) {
      st = zero(c, made->address, bytes);
      if (st.code != CUDA_SUCCESS) (void)unmap_handle(c, made);
    }
  }
  END;
}

cuda_status cuda_import(const cuda_context* c, int type, int fd, const void* blob, uint64_t bytes, cuda_block* made) {
  BEGIN;
  const CUmemAllocationProp p = properties(c, type, 0);
  CUmemGenericAllocationHandle handle = 0;
  void* shareable = type == CU_MEM_HANDLE_TYPE_FABRIC ? (void*)blob : (void*)(uintptr_t)fd;
  st = rounded(c, &p, &bytes);
  if (st.code == CUDA_SUCCESS && CALL(cuMemImportFromShareableHandle, &handle, shareable, type)) {
    st = map_handle(c, handle, bytes, made);
  }
  END;
}

cuda_status cuda_destroy(const cuda_context* c, const cuda_block* block) {
  BEGIN;
  st = unmap_handle(c, block);
  END;
}

cuda_status cuda_grant(const cuda_context* c, uint64_t address, uint64_t bytes) {
  BEGIN;
  st = access_to(c, address, bytes);
  END;
}

cuda_status cuda_export_fd(const cuda_context* c, uint64_t handle, int* fd) {
  BEGIN;
  if (CALL(cuMemExportToShareableHandle, fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)) {
    fcntl(*fd, F_SETFD, FD_CLOEXEC);
  }
  END;
}

cuda_status cuda_export_fabric(const cuda_context* c, uint64_t handle, void* blob) {
  BEGIN;
  (void)CALL(cuMemExportToShareableHandle, blob, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0);
  END;
}

cuda_status cuda_export_dma_buf(const cuda_context* c, uint64_t address, uint64_t bytes, int* fd) {
  BEGIN;
  if (CALL(cuMemGetHandleForAddressRange, fd, address, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0)) {
    fcntl(*fd, F_SETFD, FD_CLOEXEC);
  }
  END;
}

cuda_status cuda_alloc(const cuda_context* c, uint64_t bytes, uint64_t* address) {
  BEGIN;
  CUdeviceptr a = 0;
  if (CALL(cuMemAlloc_v2, &a, bytes)) {
    *address = a;
    st = zero(c, a, bytes);
    if (st.code != CUDA_SUCCESS) c->api->cuMemFree_v2(a);
  }
  END;
}

cuda_status cuda_free(const cuda_context* c, uint64_t address) {
  BEGIN;
  (void)CALL(cuMemFree_v2, address);
  END;
}

cuda_status cuda_ipc_get(const cuda_context* c, uint64_t address, void* blob) {
  BEGIN;
  (void)CALL(cuIpcGetMemHandle, blob, address);
  END;
}

cuda_status cuda_ipc_open(const cuda_context* c, const void* blob, uint64_t* address) {
  BEGIN;
  CUipcMemHandle handle;
  CUdeviceptr a = 0;
  memcpy(&handle, blob, sizeof handle);
  if (CALL(cuIpcOpenMemHandle_v2, &a, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)) *address = a;
  END;
}

cuda_status cuda_ipc_close(const cuda_context* c, uint64_t address) {
  BEGIN;
  (void)CALL(cuIpcCloseMemHandle, address);
  END;
}

cuda_status cuda_host_alloc(const cuda_context* c, uint64_t bytes, uint64_t* host, uint64_t* address) {
  BEGIN;
  void* h = NULL;
  CUdeviceptr a = 0;
  if (CALL(cuMemHostAlloc, &h, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP)) {
    if (CALL(cuMemHostGetDevicePointer_v2, &a, h, 0)) {
      memset(h, 0, bytes);
      *host = (uintptr_t)h, *address = a;
    } else {
      c->api->cuMemFreeHost(h);
    }
  }
  END;
}

cuda_status cuda_host_free(const cuda_context* c, uint64_t host) {
  BEGIN;
  (void)CALL(cuMemFreeHost, (void*)(uintptr_t)host);
  END;
}

cuda_status cuda_register(const cuda_context* c, uint64_t host, uint64_t bytes, uint64_t* address) {
  BEGIN;
  void* h = (void*)(uintptr_t)host;
  CUdeviceptr a = 0;
  if (CALL(cuMemHostRegister_v2, h, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP)) {
    if (CALL(cuMemHostGetDevicePointer_v2, &a, h, 0)) {
      *address = a;
    } else {
      c->api->cuMemHostUnregister(h);
    }
  }
  END;
}

cuda_status cuda_unregister(const cuda_context* c, uint64_t host) {
  BEGIN;
  (void)CALL(cuMemHostUnregister, (void*)(uintptr_t)host);
  END;
}

// The driver writes one to eight bytes, depending on the attribute.
static uint64_t attribute(const cuda_context* c, int which, uint64_t address) {
  uint64_t value = 0;
  return c->api->cuPointerGetAttribute(&value, which, address) == CUDA_SUCCESS ? value : 0;
}

cuda_status cuda_range_of(const cuda_context* c, uint64_t address, cuda_range* range) {
  BEGIN;
  uint64_t type = 0;
  CUmemGenericAllocationHandle handle = 0;
  memset(range, 0, sizeof *range);
  if (CALL(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)) {
    range->host = (int)type == CU_MEMORYTYPE_HOST;
    range->ordinal = (int)attribute(c, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
    range->start = attribute(c, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address);
    range->bytes = attribute(c, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address);
    range->legacy = (int)attribute(c, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address);
    range->handle_types = (int)attribute(c, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address);
    if (!range->host && c->api->cuMemRetainAllocationHandle(&handle, (void*)(uintptr_t)address) == CUDA_SUCCESS) {
      range->vmm = 1;
      c->api->cuMemRelease(handle);
    }
  }
  END;
}

cuda_status cuda_retain_handle(const cuda_context* c, uint64_t address, uint64_t* handle) {
  BEGIN;
  CUmemGenericAllocationHandle h = 0;
  if (CALL(cuMemRetainAllocationHandle, &h, (void*)(uintptr_t)address)) *handle = h;
  END;
}

cuda_status cuda_release_handle(const cuda_context* c, uint64_t handle) {
  BEGIN;
  (void)CALL(cuMemRelease, handle);
  END;
}

cuda_status cuda_upload(const cuda_context* c, uint64_t to, const void* from, uint64_t bytes) {
  BEGIN;
  if (CALL(cuMemcpyHtoDAsync_v2, to, from, bytes, c->aux)) (void)CALL(cuStreamSynchronize, c->aux);
  END;
}

cuda_status cuda_download(const cuda_context* c, void* to, uint64_t from, uint64_t bytes) {
  BEGIN;
  if (CALL(cuMemcpyDtoHAsync_v2, to, from, bytes, c->aux)) (void)CALL(cuStreamSynchronize, c->aux);
  END;
}

cuda_status cuda_fill(const cuda_context* c, uint64_t to, int value, uint64_t bytes) {
  BEGIN;
  if (CALL(cuMemsetD8Async, to, (unsigned char)value, bytes, c->aux)) (void)CALL(cuStreamSynchronize, c->aux);
  END;
}
