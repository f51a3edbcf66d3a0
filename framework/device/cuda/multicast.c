// Multicast: a window over the memory of several GPUs behind one switch.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

static CUmulticastObjectProp group_of(uint32_t members, uint64_t bytes) {
  CUmulticastObjectProp p;
  memset(&p, 0, sizeof p);
  p.numDevices = members;
  p.size = bytes;
  p.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return p;
}

// Asks nothing of the driver that would make anything: no multicast function is called where this says no.
cuda_status cuda_multicast_ready(cuda_context* c) {
  const char* off = getenv("NCCL_NVLS_ENABLE");
  if (off != NULL && strcmp(off, "0") == 0) return worded(CUDA_WORDS_NVLS_OFF, 0);
  off = getenv("MSCCLPP_NVLS");
  if (off != NULL && strcmp(off, "0") == 0) return worded(CUDA_WORDS_NVLS_OFF, 0);
  if (c->legacy) return worded(CUDA_WORDS_MULTICAST_MEMORY, 0);
  const cuda_api* a = c->api;
  if (!a->cuMulticastCreate || !a->cuMulticastAddDevice || !a->cuMulticastBindMem || !a->cuMulticastUnbind || !a->cuMulticastGetGranularity) {
    return worded(CUDA_WORDS_NO_MULTICAST, 0);
  }
  if (!c->facts.vmm || !c->facts.posix_fd || !c->facts.multicast) return worded(CUDA_WORDS_NO_MULTICAST, 0);
  return (cuda_status){0};
}

// The meaning of an answer depends on the step: those of memory are others.
static cuda_status of_switch(cuda_status st) {
  if (st.code > 0 && st.code < CUDA_HINT) st.code += CUDA_WORDS_SWITCH * CUDA_HINT;
  return st;
}

// Rounds up to the least unit of windows, which need not be that of memory.
static cuda_status unit_of(const cuda_context* c, uint32_t members, uint64_t bytes, mscclpp_device_multicast* m) {
  cuda_status st = {0};
  size_t unit = 0;
  const CUmulticastObjectProp p = group_of(members, bytes);
  if (!CALL(cuMulticastGetGranularity, &unit, &p, CU_MULTICAST_GRANULARITY_MINIMUM)) return st;
  if (unit == 0 || bytes > UINT64_MAX - unit) {
    st.code = CUDA_ERROR_INVALID_VALUE;
    return st;
  }
  m->unit = unit;
  m->bytes = (bytes + unit - 1) / unit * unit;
  m->members = members;
  return st;
}

cuda_status cuda_multicast_create(cuda_context* c, uint32_t members, uint64_t bytes, mscclpp_device_multicast* m) {
  cuda_status st = cuda_multicast_ready(c);
  if (st.code != CUDA_SUCCESS) return st;
  {
    BEGIN;
    st = unit_of(c, members, bytes, m);
    if (st.code == CUDA_SUCCESS) {
      CUmemGenericAllocationHandle handle = 0;
      const CUmulticastObjectProp p = group_of(members, m->bytes);
      if (CALL(cuMulticastCreate, &handle, &p)) m->handle = handle;
    }
    st = of_switch(st);
    END;
  }
}

cuda_status cuda_multicast_share(cuda_context* c, const mscclpp_device_multicast* m, mscclpp_device_share* share) {
  BEGIN;
  int fd = -1;
  if (CALL(cuMemExportToShareableHandle, &fd, m->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)) {
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    share->kind = CUDA_SHARE_VMM, share->fd = fd, share->blob_bytes = 0;
  }
  st = of_switch(st);
  END;
}

cuda_status cuda_multicast_open(cuda_context* c, const mscclpp_device_share* share, uint32_t members, uint64_t bytes, mscclpp_device_multicast* m) {
  cuda_status st = cuda_multicast_ready(c);
  if (st.code != CUDA_SUCCESS) return st;
  if (share->kind != CUDA_SHARE_VMM || share->fd < 0) return worded(CUDA_WORDS_NO_SHARE, 0);
  {
    BEGIN;
    st = unit_of(c, members, bytes, m);
    if (st.code == CUDA_SUCCESS) {
      CUmemGenericAllocationHandle handle = 0;
      if (CALL(cuMemImportFromShareableHandle, &handle, (void*)(uintptr_t)share->fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) m->handle = handle;
    }
    st = of_switch(st);
    END;
  }
}

cuda_status cuda_multicast_add(cuda_context* c, const mscclpp_device_multicast* m) {
  BEGIN;
  (void)CALL(cuMulticastAddDevice, m->handle, c->device);
  st = of_switch(st);
  END;
}

// Memory of ours is behind a handle; that of the application has one for the time of the call.
cuda_status cuda_multicast_bind(cuda_context* c, const mscclpp_device_multicast* m, const mscclpp_device_memory* own, uint64_t offset, uint64_t place,
                                uint64_t bytes) {
  if (own->on_host || own->handle == CUDA_NO_HANDLE || !(own->shares & (1 << CUDA_SHARE_VMM))) return worded(CUDA_WORDS_MULTICAST_MEMORY, 0);
  const uint64_t at = own->address - own->start + offset;
  if (at % m->unit != 0 || at > own->whole || bytes > own->whole - at) return worded(CUDA_WORDS_MULTICAST_MEMORY, 0);
  BEGIN;
  CUmemGenericAllocationHandle handle = own->handle;
  if (handle != CUDA_FOREIGN_HANDLE || CALL(cuMemRetainAllocationHandle, &handle, (void*)(uintptr_t)own->address)) {
    (void)CALL(cuMulticastBindMem, m->handle, place, handle, at, bytes, 0);
    if (own->handle == CUDA_FOREIGN_HANDLE) c->api->cuMemRelease(handle);
  }
  st = of_switch(st);
  END;
}

cuda_status cuda_multicast_unbind(cuda_context* c, const mscclpp_device_multicast* m, uint64_t place, uint64_t bytes) {
  BEGIN;
  (void)CALL(cuMulticastUnbind, m->handle, c->device, place, bytes);
  st = of_switch(st);
  END;
}

// Objects are mapped from their beginning, and whole.
cuda_status cuda_multicast_map(cuda_context* c, mscclpp_device_multicast* m) {
  BEGIN;
  CUdeviceptr at = 0;
  if (CALL(cuMemAddressReserve, &at, m->bytes, m->unit, 0, 0)) {
    if (CALL(cuMemMap, at, m->bytes, 0, m->handle, 0)) {
      st = cuda_access_to(c, at, m->bytes);
      if (st.code != CUDA_SUCCESS) c->api->cuMemUnmap(at, m->bytes);
    }
    if (st.code == CUDA_SUCCESS) m->address = at;
    else c->api->cuMemAddressFree(at, m->bytes);
  }
  st = of_switch(st);
  END;
}

cuda_status cuda_multicast_unmap(cuda_context* c, const mscclpp_device_multicast* m) {
  cuda_status first;
  BEGIN;
  (void)CALL(cuMemUnmap, m->address, m->bytes);
  first = st;
  if (!CALL(cuMemAddressFree, m->address, m->bytes) && first.code == CUDA_SUCCESS) first = st;
  st = of_switch(first);
  END;
}

cuda_status cuda_multicast_close(cuda_context* c, const mscclpp_device_multicast* m) {
  BEGIN;
  (void)CALL(cuMemRelease, m->handle);
  st = of_switch(st);
  END;
}
