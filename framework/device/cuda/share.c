#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "memory.h"

static const uint64_t most = 1ull << 46;  // bytes, beyond any device; keeps sums from wrapping

// A number of this process. A process id would not do: it is reused, and means something else in another namespace.
static uint8_t process[16];
static pthread_once_t process_once = PTHREAD_ONCE_INIT;

static void choose_process(void) {
  for (size_t n = 0; n < sizeof process;) {
    const ssize_t got = getrandom(process + n, sizeof process - n, 0);
    if (got > 0) n += (size_t)got;
  }
}

// Lends the driver's handle of memory: that of the allocation, or one for the time of the call.
static cuda_status export_handle(const cuda_context* c, const mscclpp_device_memory* m, void* shareable, int type) {
  cuda_status st = {0};
  CUmemGenericAllocationHandle handle = m->handle;
  if (handle == CUDA_FOREIGN_HANDLE && !CALL(cuMemRetainAllocationHandle, &handle, (void*)(uintptr_t)m->address)) return st;
  (void)CALL(cuMemExportToShareableHandle, shareable, handle, type, 0);
  if (m->handle == CUDA_FOREIGN_HANDLE) c->api->cuMemRelease(handle);
  return st;
}

static cuda_status export_fd(const cuda_context* c, const mscclpp_device_memory* m, mscclpp_device_share* share) {
  BEGIN;
  int fd = -1;
  st = export_handle(c, m, &fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (st.code == CUDA_SUCCESS) {
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    share->fd = fd;
  }
  END;
}

static cuda_status export_fabric(cuda_context* c, const mscclpp_device_memory* m, mscclpp_device_share* share) {
  BEGIN;
  st = export_handle(c, m, share->blob, CU_MEM_HANDLE_TYPE_FABRIC);
  if (st.code == CUDA_SUCCESS) {
    share->blob_bytes = sizeof(CUmemFabricHandle);
  } else {  // others can still import the memory
    __atomic_store_n(&c->no_fabric, 1, __ATOMIC_RELAXED);
    st.code = MSCCLPP_DEVICE_UNSUPPORTED;
  }
  END;
}

static cuda_status export_legacy(const cuda_context* c, const mscclpp_device_memory* m, mscclpp_device_share* share) {
  BEGIN;
  CUipcMemHandle handle;
  if (CALL(cuIpcGetMemHandle, &handle, m->address)) {
    const uint64_t place[] = {m->address - m->start, m->bytes};
    pthread_once(&process_once, choose_process);
    uint8_t* to = share->blob;
    *to++ = CUDA_LEGACY_VERSION;
    memcpy(to, process, sizeof process);
    memcpy(to + sizeof process, &handle, sizeof handle);
    memcpy(to + sizeof process + sizeof handle, place, sizeof place);
    share->blob_bytes = CUDA_LEGACY_BYTES;
  }
  END;
}

static cuda_status export_dma_buf(const cuda_context* c, const mscclpp_device_memory* m, mscclpp_device_share* share) {
  const uint64_t page = (uint64_t)getpagesize(), bytes = (m->bytes + page - 1) & ~(page - 1);
  const int ours = m->handle != CUDA_FOREIGN_HANDLE && m->address == m->start && m->bytes <= m->whole;
  if (m->address % page != 0 || (!ours && m->address + bytes > m->start + m->whole)) return worded(CUDA_WORDS_PAGES, 0);
  BEGIN;
  int fd = -1;
  if (CALL(cuMemGetHandleForAddressRange, &fd, m->address, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0)) {
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    share->fd = fd;
  }
  END;
}

cuda_status cuda_export_share(cuda_context* c, const mscclpp_device_memory* m, mscclpp_device_share* share) {
  share->fd = -1, share->blob_bytes = 0;
  if (share->kind >= CUDA_SHARES || (m->shares & (1ull << share->kind)) == 0) return worded(CUDA_WORDS_NO_SHARE, 0);
  switch (share->kind) {
    case CUDA_SHARE_VMM: return export_fd(c, m, share);
    case CUDA_SHARE_FABRIC: return export_fabric(c, m, share);
    case CUDA_SHARE_LEGACY: return export_legacy(c, m, share);
    default: return export_dma_buf(c, m, share);
  }
}

// The meaning of an answer depends on the step: one code alone may say that a kind of handle, a part of an allocation, or a path
// between two GPUs is not available.
cuda_status cuda_explained(cuda_status st) {
  if (st.call == NULL) return st;
  if (strcmp(st.call, "cuMemMap") == 0 && st.code == CUDA_ERROR_NOT_SUPPORTED) st.code += CUDA_WORDS_WHOLE * CUDA_HINT;
  if (strcmp(st.call, "cuMemSetAccess") == 0 && (st.code == CUDA_ERROR_INVALID_DEVICE || st.code == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)) {
    st.code += CUDA_WORDS_ACCESS * CUDA_HINT;
  }
  return st;
}

// The driver maps no part of an allocation: unsupported, unless offset and bytes reach its last unit.
static cuda_status import_handle(const cuda_context* c, int type, const mscclpp_device_share* share, uint64_t offset, uint64_t bytes, mscclpp_device_memory* m) {
  BEGIN;
  const CUmemAllocationProp p = cuda_properties(c, type, 0);
  CUmemGenericAllocationHandle handle = 0;
  cuda_block b = {0};
  uint64_t whole = offset + bytes;
  void* shareable = type == CU_MEM_HANDLE_TYPE_FABRIC ? (void*)share->blob : (void*)(uintptr_t)share->fd;
  st = cuda_rounded(c, &p, &whole);
  if (st.code == CUDA_SUCCESS && CALL(cuMemImportFromShareableHandle, &handle, shareable, type)) {
    st = cuda_map_handle(c, handle, whole, &b);
    m->start = b.address, m->address = b.address + offset, m->whole = b.bytes, m->handle = b.handle;
  }
  END;
}

int cuda_parse_legacy(const uint8_t* blob, uint32_t bytes, CUipcMemHandle* handle, uint64_t* start, uint64_t* size) {
  uint64_t place[2];
  if (bytes != CUDA_LEGACY_BYTES || blob[0] != CUDA_LEGACY_VERSION) return CUDA_WORDS_LEGACY;
  pthread_once(&process_once, choose_process);
  if (memcmp(blob + 1, process, sizeof process) == 0) return CUDA_WORDS_OWN;
  memcpy(handle, blob + 1 + sizeof process, sizeof *handle);
  memcpy(place, blob + 1 + sizeof process + sizeof *handle, sizeof place);
  *start = place[0], *size = place[1];
  return place[0] > most || place[1] > most ? CUDA_WORDS_LEGACY : 0;
}

static cuda_status import_legacy(const cuda_context* c, const mscclpp_device_share* share, uint64_t offset, uint64_t bytes, mscclpp_device_memory* m) {
  CUipcMemHandle handle;
  uint64_t start = 0, size = 0;
  const int wrong = cuda_parse_legacy(share->blob, share->blob_bytes, &handle, &start, &size);
  if (wrong != 0) return worded(wrong, 0);
  if (offset > size || bytes > size - offset) return worded(CUDA_WORDS_RANGE, 0);
  BEGIN;
  CUdeviceptr a = 0;
  if (CALL(cuIpcOpenMemHandle_v2, &a, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)) {
    m->start = a, m->address = a + start + offset, m->whole = size, m->handle = CUDA_NO_HANDLE;
  }
  END;
}

cuda_status cuda_import_share(cuda_context* c, const mscclpp_device_share* share, uint64_t offset, uint64_t bytes, mscclpp_device_memory* m) {
  if (offset > most || bytes > most) return worded(CUDA_WORDS_RANGE, 0);
  m->bytes = bytes, m->shares = 0, m->on_host = 0, m->ordinal = c->index;
  switch (share->kind) {
    case CUDA_SHARE_VMM: return cuda_explained(import_handle(c, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, share, offset, bytes, m));
    case CUDA_SHARE_FABRIC:
      if (share->blob_bytes != sizeof(CUmemFabricHandle)) return worded(CUDA_WORDS_FABRIC, 0);
      return cuda_explained(import_handle(c, CU_MEM_HANDLE_TYPE_FABRIC, share, offset, bytes, m));
    case CUDA_SHARE_LEGACY: return import_legacy(c, share, offset, bytes, m);
    default: return worded(CUDA_WORDS_NO_SHARE, 0);
  }
}

cuda_status cuda_unmap(cuda_context* c, const mscclpp_device_memory* m) {
  BEGIN;
  if (m->handle == CUDA_NO_HANDLE) {
    (void)CALL(cuIpcCloseMemHandle, m->start);
  } else {
    const cuda_block b = {m->start, m->whole, m->handle};
    st = cuda_unmap_handle(c, &b);
  }
  END;
}
