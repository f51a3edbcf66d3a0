#include <string.h>

#include "memory.h"

CUmemAllocationProp cuda_properties(const cuda_context* c, int handle_types, int rdma) {
  CUmemAllocationProp p;
  memset(&p, 0, sizeof p);
  p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.requestedHandleTypes = handle_types;
  p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  p.location.id = c->device;
  p.allocFlags.gpuDirectRDMACapable = rdma != 0;
  return p;
}

// Rounds bytes up to what the device maps at once. An error if that overflows.
cuda_status cuda_rounded(const cuda_context* c, const CUmemAllocationProp* p, uint64_t* bytes) {
  cuda_status st = {0};
  size_t unit = 0;
  if (!CALL(cuMemGetAllocationGranularity, &unit, p, CU_MEM_ALLOC_GRANULARITY_MINIMUM)) return st;
  if (unit == 0 || *bytes > UINT64_MAX - unit) {
    st.code = CUDA_ERROR_INVALID_VALUE;
    return st;
  }
  *bytes = (*bytes + unit - 1) / unit * unit;
  return st;
}

cuda_status cuda_access_to(const cuda_context* c, uint64_t address, uint64_t bytes) {
  cuda_status st = {0};
  CUmemAccessDesc d;
  memset(&d, 0, sizeof d);
  d.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  d.location.id = c->device;
  d.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  (void)CALL(cuMemSetAccess, address, bytes, &d, 1);
  return st;
}

// Gives the handle addresses. On failure the handle is released.
cuda_status cuda_map_handle(const cuda_context* c, CUmemGenericAllocationHandle handle, uint64_t bytes, cuda_block* made) {
  cuda_status st = {0};
  CUdeviceptr address = 0;
  // Large memory is aligned to large pages, so that the driver can use them.
  const size_t alignment = bytes >= 2u << 20 ? 2u << 20 : 0;
  if (!CALL(cuMemAddressReserve, &address, bytes, alignment, 0, 0)) goto release;
  if (!CALL(cuMemMap, address, bytes, 0, handle, 0)) goto release_addresses;
  st = cuda_access_to(c, address, bytes);
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

cuda_status cuda_unmap_handle(const cuda_context* c, const cuda_block* b) {
  cuda_status st = {0}, first;
  (void)CALL(cuMemUnmap, b->address, b->bytes);
  first = st;
  if (!CALL(cuMemAddressFree, b->address, b->bytes) && first.code == CUDA_SUCCESS) first = st;
  if (!CALL(cuMemRelease, b->handle) && first.code == CUDA_SUCCESS) first = st;
  return first;
}

// The stream is one of our own: the default stream would wait for others, and they
// for it.
static cuda_status zero(const cuda_context* c, uint64_t address, uint64_t bytes) {
  cuda_status st = {0};
  if (CALL(cuMemsetD8Async, address, 0, bytes, c->aux)) (void)CALL(cuStreamSynchronize, c->aux);
  return st;
}

static cuda_status create(const cuda_context* c, uint64_t bytes, int handle_types, int rdma, cuda_block* made) {
  BEGIN;
  const CUmemAllocationProp p = cuda_properties(c, handle_types, rdma);
  CUmemGenericAllocationHandle handle = 0;
  st = cuda_rounded(c, &p, &bytes);
  if (st.code == CUDA_SUCCESS && CALL(cuMemCreate, &handle, bytes, &p, 0)) {
    st = cuda_map_handle(c, handle, bytes, made);
    if (st.code == CUDA_SUCCESS) {
      st = zero(c, made->address, bytes);
      if (st.code != CUDA_SUCCESS) (void)cuda_unmap_handle(c, made);
    }
  }
  END;
}

// Whether the driver cannot do, or is not allowed to do, what was asked, so that another way is worth a try.
static int refused(cuda_status st) {
  return st.code == CUDA_ERROR_NOT_SUPPORTED || st.code == CUDA_ERROR_NOT_PERMITTED || st.code == CUDA_ERROR_INVALID_VALUE ||
         st.code == CUDA_ERROR_INVALID_DEVICE;
}

static uint64_t shares_of(const cuda_context* c, int handle_types, int legacy) {
  uint64_t shares = 0;
  if (handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) shares |= 1 << CUDA_SHARE_VMM;
  if (handle_types & CU_MEM_HANDLE_TYPE_FABRIC) shares |= 1 << CUDA_SHARE_FABRIC;
  if (legacy) shares |= 1 << CUDA_SHARE_LEGACY;
  if (c->facts.dma_buf) shares |= 1 << CUDA_SHARE_DMA_BUF;
  return shares;
}

// Makes memory behind a handle, with the best abilities that the driver grants.
static cuda_status alloc_vmm(cuda_context* c, uint64_t bytes, mscclpp_device_memory* m) {
  cuda_status st = {.code = CUDA_ERROR_NOT_SUPPORTED, .call = "cuMemCreate"};
  const cuda_facts* f = &c->facts;
  if (c->legacy || !f->vmm || !f->posix_fd) return st;
  enum { FD = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, FABRIC = CU_MEM_HANDLE_TYPE_FABRIC };
  const struct {
    int on, types, rdma;
  } tries[] = {
      {c->fabric && f->fabric && !__atomic_load_n(&c->no_fabric, __ATOMIC_RELAXED), FD | FABRIC, f->rdma_vmm},
      {1, FD, f->rdma_vmm},
      {f->rdma_vmm, FD, 0},
  };
  for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
    cuda_block b = {0};
    if (!tries[i].on) continue;
    st = create(c, bytes, tries[i].types, tries[i].rdma, &b);
    if (st.code == CUDA_SUCCESS) {
      m->address = m->start = b.address, m->whole = b.bytes, m->handle = b.handle;
      m->shares = shares_of(c, tries[i].types, 0);
      return st;
    }
    if (!refused(st)) return st;
    if (tries[i].types & FABRIC) __atomic_store_n(&c->no_fabric, 1, __ATOMIC_RELAXED);
  }
  return st;
}

// The driver's older memory.
static cuda_status alloc_legacy(cuda_context* c, uint64_t bytes, mscclpp_device_memory* m) {
  BEGIN;
  CUdeviceptr a = 0;
  if (CALL(cuMemAlloc_v2, &a, bytes)) {
    st = zero(c, a, bytes);
    if (st.code == CUDA_SUCCESS) {
      m->address = m->start = a, m->whole = bytes, m->handle = CUDA_NO_HANDLE, m->shares = shares_of(c, 0, 1);
    } else {
      c->api->cuMemFree_v2(a);
    }
  }
  END;
}

cuda_status cuda_alloc(cuda_context* c, uint64_t bytes, mscclpp_device_memory* m) {
  cuda_status st = alloc_vmm(c, bytes, m);
  if (refused(st)) st = alloc_legacy(c, bytes, m);
  m->bytes = bytes, m->on_host = 0, m->ordinal = c->index;
  return st;
}

int cuda_fabric_refused(const cuda_context* c) { return __atomic_load_n(&c->no_fabric, __ATOMIC_RELAXED); }

cuda_status cuda_free_memory(cuda_context* c, const mscclpp_device_memory* m) {
  BEGIN;
  if (m->handle == CUDA_NO_HANDLE) {
    (void)CALL(cuMemFree_v2, m->start);
  } else {
    const cuda_block b = {m->start, m->whole, m->handle};
    st = cuda_unmap_handle(c, &b);
  }
  END;
}

// Memory behind handles is granted by range, other memory of the device as a whole.
cuda_status cuda_grant(cuda_context* c, cuda_context* owner, const mscclpp_device_memory* m) {
  BEGIN;
  if (m->handle != CUDA_NO_HANDLE) {
    st = cuda_access_to(c, m->start, m->whole);
  } else if (!CALL(cuCtxEnablePeerAccess, owner->context, 0) && st.code == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
    st.code = CUDA_SUCCESS;
  }
  END;
}

// The driver writes one to eight bytes, depending on the attribute.
static uint64_t attribute(const cuda_context* c, int which, uint64_t address) {
  uint64_t value = 0;
  return c->api->cuPointerGetAttribute(&value, which, address) == CUDA_SUCCESS ? value : 0;
}

// Memory behind handles is shared from its start only.
cuda_status cuda_range_of(cuda_context* c, uint64_t address, mscclpp_device_memory* m) {
  BEGIN;
  uint64_t type = 0;
  CUmemGenericAllocationHandle handle = 0;
  if (CALL(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)) {
    m->on_host = (int)type == CU_MEMORYTYPE_HOST;
    m->ordinal = (int)attribute(c, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
    m->start = attribute(c, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address);
    m->whole = attribute(c, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address);
    m->address = address, m->bytes = m->start + m->whole - address, m->handle = CUDA_NO_HANDLE, m->shares = 0;
    if (!m->on_host) {
      int types = 0;
      if (c->api->cuMemRetainAllocationHandle(&handle, (void*)(uintptr_t)address) == CUDA_SUCCESS) {
        m->handle = CUDA_FOREIGN_HANDLE;
        c->api->cuMemRelease(handle);
        if (address == m->start) types = (int)attribute(c, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address);
      }
      m->shares = shares_of(c, types, (int)attribute(c, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address));
    }
  }
  END;
}

cuda_status cuda_host_alloc(cuda_context* c, uint64_t bytes, uint64_t* host, uint64_t* address) {
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

cuda_status cuda_host_free(cuda_context* c, uint64_t host) {
  BEGIN;
  (void)CALL(cuMemFreeHost, (void*)(uintptr_t)host);
  END;
}

cuda_status cuda_host_register(cuda_context* c, uint64_t host, uint64_t bytes, int32_t fd, uint64_t offset, uint64_t* address) {
  (void)fd, (void)offset;
  if (!c->facts.host_register) return worded(CUDA_WORDS_NO_REGISTER, 0);
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

cuda_status cuda_host_unregister(cuda_context* c, uint64_t host) {
  BEGIN;
  (void)CALL(cuMemHostUnregister, (void*)(uintptr_t)host);
  END;
}

cuda_status cuda_upload(cuda_context* c, uint64_t to, const void* from, uint64_t bytes) {
  BEGIN;
  if (CALL(cuMemcpyHtoDAsync_v2, to, from, bytes, c->aux)) (void)CALL(cuStreamSynchronize, c->aux);
  END;
}

cuda_status cuda_download(cuda_context* c, void* to, uint64_t from, uint64_t bytes) {
  BEGIN;
  if (CALL(cuMemcpyDtoHAsync_v2, to, from, bytes, c->aux)) (void)CALL(cuStreamSynchronize, c->aux);
  END;
}

cuda_status cuda_fill(cuda_context* c, uint64_t to, uint8_t value, uint64_t bytes) {
  BEGIN;
  if (CALL(cuMemsetD8Async, to, value, bytes, c->aux)) (void)CALL(cuStreamSynchronize, c->aux);
  END;
}
