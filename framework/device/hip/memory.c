#include <string.h>

#include "memory.h"

hipMemAllocationProp hip_properties(const hip_device* d, int type) {
  hipMemAllocationProp p;
  memset(&p, 0, sizeof p);
  p.type = type;
  p.requestedHandleType = hipMemHandleTypePosixFileDescriptor;
  p.location.type = hipMemLocationTypeDevice;
  p.location.id = d->index;
  return p;
}

hip_status hip_rounded(const hip_device* d, const hipMemAllocationProp* p, uint64_t* bytes) {
  hip_status st = {0};
  size_t unit = 0;
  if (!CALL(hipMemGetAllocationGranularity, &unit, p, hipMemAllocationGranularityMinimum)) return st;
  if (unit == 0 || *bytes > UINT64_MAX - unit) {
    st.code = hipErrorInvalidValue;
    return st;
  }
  *bytes = (*bytes + unit - 1) / unit * unit;
  return st;
}

static hip_status access_to(const hip_device* d, uint64_t address, uint64_t bytes) {
  hip_status st = {0};
  const hipMemAccessDesc a = {{hipMemLocationTypeDevice, d->index}, hipMemAccessFlagsProtReadWrite};
  (void)CALL(hipMemSetAccess, POINTER(address), bytes, &a, 1);
  return st;
}

// Gives the handle addresses. On failure the handle is released.
hip_status hip_map_handle(const hip_device* d, hipMemGenericAllocationHandle_t handle, uint64_t bytes, hip_block* made) {
  hip_status st = {0};
  void* address = NULL;
  if (!CALL(hipMemAddressReserve, &address, bytes, bytes >= HIP_FRAGMENT ? HIP_FRAGMENT : 0, NULL, 0)) goto release;
  if (!CALL(hipMemMap, address, bytes, 0, handle, 0)) goto release_addresses;
  st = access_to(d, (uintptr_t)address, bytes);
  if (st.code != hipSuccess) goto unmap;
  made->address = (uintptr_t)address, made->bytes = bytes, made->handle = handle;
  return st;
unmap:
  d->api->hipMemUnmap(address, bytes);
release_addresses:
  d->api->hipMemAddressFree(address, bytes);
release:
  d->api->hipMemRelease(handle);
  return st;
}

hip_status hip_unmap_handle(const hip_device* d, const hip_block* b) {
  hip_status st = {0}, first;
  (void)CALL(hipMemUnmap, POINTER(b->address), b->bytes);
  first = st;
  if (!CALL(hipMemAddressFree, POINTER(b->address), b->bytes) && first.code == hipSuccess) first = st;
  if (!CALL(hipMemRelease, b->handle) && first.code == hipSuccess) first = st;
  return first;
}

// The stream is one of our own: the default stream would wait for others, and they for it.
static hip_status zero(const hip_device* d, uint64_t address, uint64_t bytes) {
  hip_status st = {0};
  if (CALL(hipMemsetAsync, POINTER(address), 0, bytes, d->aux)) (void)CALL(hipStreamSynchronize, d->aux);
  return st;
}

uint64_t hip_shares_of(const hip_device* d, int behind_handle) {
  uint64_t shares = 1 << (behind_handle ? HIP_SHARE_VMM : HIP_SHARE_LEGACY);
  if (d->api->hipMemGetHandleForAddressRange != NULL || d->api->export_dmabuf != NULL) shares |= 1 << HIP_SHARE_DMA_BUF;
  return shares;
}

// Whether caches of the GPU keep memory that is only fine-grained coherent with writes of peers. On gfx942 it is ordinary memory.
static int fine_is_coherent(const hip_facts* f) { return strcmp(f->arch, "gfx90a") == 0; }

// Memory of one of hipExtMallocWithFlags's kinds, zeroed.
static hip_status alloc_flagged(const hip_device* d, uint64_t bytes, unsigned flags, mscclpp_device_memory* m) {
  hip_status st = {0};
  void* p = NULL;
  if (!CALL(hipExtMallocWithFlags, &p, bytes, flags)) return st;
  st = zero(d, (uintptr_t)p, bytes);
  if (st.code != hipSuccess) {
    d->api->hipFree(p);
    return st;
  }
  m->address = m->start = (uintptr_t)p, m->whole = bytes, m->handle = HIP_NO_HANDLE, m->shares = hip_shares_of(d, 0);
  return st;
}

// Memory that peers write while kernels poll it is uncached, and data is not. A part of a fragment would be shared whole with what
// else is in it.
static hip_status alloc_legacy(const hip_device* d, uint64_t bytes, int data, mscclpp_device_memory* m) {
  hip_status st = {.code = hipErrorOutOfMemory, .call = "hipExtMallocWithFlags"};
  if (bytes > UINT64_MAX - HIP_FRAGMENT) return st;
  bytes = (bytes + HIP_FRAGMENT - 1) / HIP_FRAGMENT * HIP_FRAGMENT;
  if (data) return alloc_flagged(d, bytes, hipDeviceMallocDefault, m);
  st = alloc_flagged(d, bytes, hipDeviceMallocUncached, m);
  if (st.code != hipErrorInvalidValue) return st;
  if (fine_is_coherent(&d->facts)) return alloc_flagged(d, bytes, hipDeviceMallocFinegrained, m);
  st.code += HIP_SAYS_UNCACHED * HIP_HINT;
  return st;
}

// Memory behind a descriptor. Uncached memory of this kind exists from 7 on; before, and where that is refused, peers' writes
// are not seen in time by kernels that poll.
static hip_status alloc_vmm(const hip_device* d, uint64_t bytes, int data, mscclpp_device_memory* m) {
  hip_status st = {.code = HIP_SAYS_UNCACHED * HIP_HINT};
  if (!d->facts.vmm || (!data && d->api->version < 70000000)) return st;
  const hipMemAllocationProp p = hip_properties(d, data ? hipMemAllocationTypePinned : hipMemAllocationTypeUncached);
  hipMemGenericAllocationHandle_t handle = NULL;
  hip_block b = {0};
  st = hip_rounded(d, &p, &bytes);
  if (st.code != hipSuccess || !CALL(hipMemCreate, &handle, bytes, &p, 0)) return st;
  st = hip_map_handle(d, handle, bytes, &b);
  if (st.code != hipSuccess) return st;
  st = zero(d, b.address, bytes);
  if (st.code != hipSuccess) {
    (void)hip_unmap_handle(d, &b);
    return st;
  }
  m->address = m->start = b.address, m->whole = b.bytes, m->handle = (uintptr_t)handle, m->shares = hip_shares_of(d, 1);
  return st;
}

static hip_status alloc(const hip_device* d, uint64_t bytes, int data, mscclpp_device_memory* m) {
  BEGIN;
  st = d->vmm ? alloc_vmm(d, bytes, data, m) : alloc_legacy(d, bytes, data, m);
  m->bytes = bytes, m->on_host = 0, m->ordinal = d->index;
  END;
}

hip_status hip_alloc(hip_device* d, uint64_t bytes, mscclpp_device_memory* m) { return alloc(d, bytes, 0, m); }
hip_status hip_alloc_data(hip_device* d, uint64_t bytes, mscclpp_device_memory* m) { return alloc(d, bytes, 1, m); }

hip_status hip_free_memory(hip_device* d, const mscclpp_device_memory* m) {
  BEGIN;
  if (m->handle == HIP_NO_HANDLE) {
    (void)CALL(hipFree, POINTER(m->start));
  } else {
    const hip_block b = {m->start, m->whole, (hipMemGenericAllocationHandle_t)POINTER(m->handle)};
    st = hip_unmap_handle(d, &b);
  }
  END;
}

// Memory behind handles is granted by range, other memory of the device as a whole.
hip_status hip_grant(hip_device* d, hip_device* owner, const mscclpp_device_memory* m) {
  BEGIN;
  if (m->handle != HIP_NO_HANDLE) {
    st = access_to(d, m->start, m->whole);
  } else if (!CALL(hipDeviceEnablePeerAccess, owner->index, 0) && st.code == hipErrorPeerAccessAlreadyEnabled) {
    st.code = hipSuccess;
  }
  if (st.code == hipErrorPeerAccessUnsupported || st.code == hipErrorInvalidDevice) st.code += HIP_SAYS_ACCESS * HIP_HINT;
  END;
}

// The number of memory of the host changed with 6.0.
static int means_host(const hip_device* d, int type) { return type == (d->api->version >= 60000000 ? 1 : 0); }

hip_status hip_range_of(hip_device* d, uint64_t address, mscclpp_device_memory* m) {
  BEGIN;
  int type = -1, ordinal = 0;
  void* start = NULL;
  size_t bytes = 0;
  if (CALL(hipPointerGetAttribute, &type, HIP_POINTER_ATTRIBUTE_MEMORY_TYPE, POINTER(address)) &&
      CALL(hipPointerGetAttribute, &start, HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR, POINTER(address)) &&
      CALL(hipPointerGetAttribute, &bytes, HIP_POINTER_ATTRIBUTE_RANGE_SIZE, POINTER(address)) &&
      CALL(hipPointerGetAttribute, &ordinal, HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL, POINTER(address))) {
    m->on_host = means_host(d, type), m->ordinal = ordinal;
    m->start = (uintptr_t)start, m->whole = bytes;
    m->address = address, m->bytes = m->start + m->whole - address, m->handle = HIP_NO_HANDLE;
    m->shares = m->on_host ? 0 : hip_shares_of(d, 0);
  }
  END;
}

hip_status hip_host_alloc(hip_device* d, uint64_t bytes, uint64_t* host, uint64_t* address) {
  BEGIN;
  void *h = NULL, *a = NULL;
  if (CALL(hipHostMalloc, &h, bytes, hipHostMallocPortable | hipHostMallocMapped | hipHostMallocCoherent)) {
    if (CALL(hipHostGetDevicePointer, &a, h, 0)) {
      memset(h, 0, bytes);
      *host = (uintptr_t)h, *address = (uintptr_t)a;
    } else {
      d->api->hipHostFree(h);
    }
  }
  END;
}

hip_status hip_host_free(hip_device* d, uint64_t host) {
  BEGIN;
  (void)CALL(hipHostFree, POINTER(host));
  END;
}

hip_status hip_host_register(hip_device* d, uint64_t host, uint64_t bytes, int32_t fd, uint64_t offset, uint64_t* address) {
  (void)fd, (void)offset;
  BEGIN;
  void* a = NULL;
  if (CALL(hipHostRegister, POINTER(host), bytes, hipHostRegisterPortable | hipHostRegisterMapped)) {
    if (CALL(hipHostGetDevicePointer, &a, POINTER(host), 0)) {
      *address = (uintptr_t)a;
    } else {
      d->api->hipHostUnregister(POINTER(host));
    }
  }
  END;
}

hip_status hip_host_unregister(hip_device* d, uint64_t host) {
  BEGIN;
  (void)CALL(hipHostUnregister, POINTER(host));
  END;
}

// Copies name their places by address alone: the library finds out where they are.
static hip_status copied(const hip_device* d, void* to, const void* from, uint64_t bytes) {
  hip_status st = {0};
  if (CALL(hipMemcpyAsync, to, from, bytes, hipMemcpyDefault, d->aux)) (void)CALL(hipStreamSynchronize, d->aux);
  return st;
}

hip_status hip_upload(hip_device* d, uint64_t to, const void* from, uint64_t bytes) {
  BEGIN;
  st = copied(d, POINTER(to), from, bytes);
  END;
}

hip_status hip_download(hip_device* d, void* to, uint64_t from, uint64_t bytes) {
  BEGIN;
  st = copied(d, to, POINTER(from), bytes);
  END;
}

hip_status hip_fill(hip_device* d, uint64_t to, uint8_t value, uint64_t bytes) {
  BEGIN;
  if (CALL(hipMemsetAsync, POINTER(to), value, bytes, d->aux)) (void)CALL(hipStreamSynchronize, d->aux);
  END;
}

// Writes of adapters pass the host data path of the GPU, which has a register that flushes it. The load behind it is the proof
// that the store has arrived.
hip_status hip_flush_writes(hip_device* d) {
  if (d->facts.flush == NULL) return says(HIP_SAYS_NO_FLUSH, 0);
  *d->facts.flush = 1;
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  (void)*d->facts.flush;
  return (hip_status){0};
}
