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

static hip_status export_fd(const hip_device* d, const mscclpp_device_memory* m, mscclpp_device_share* share) {
  BEGIN;
  int fd = -1;
  if (CALL(hipMemExportToShareableHandle, &fd, (hipMemGenericAllocationHandle_t)POINTER(m->handle), hipMemHandleTypePosixFileDescriptor, 0)) {
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    share->fd = fd;
  }
  END;
}

static hip_status export_legacy(const hip_device* d, const mscclpp_device_memory* m, mscclpp_device_share* share) {
  BEGIN;
  hipIpcMemHandle_t handle;
  if (CALL(hipIpcGetMemHandle, &handle, POINTER(m->start))) {
    const uint64_t place[] = {m->address - m->start, m->bytes};
    pthread_once(&process_once, choose_process);
    uint8_t* to = share->blob;
    *to++ = HIP_LEGACY_VERSION;
    memcpy(to, process, sizeof process);
    memcpy(to + sizeof process, &handle, sizeof handle);
    memcpy(to + sizeof process + sizeof handle, place, sizeof place);
    share->blob_bytes = HIP_LEGACY_BYTES;
  }
  END;
}

// Before 7.0 the function is the lower library's, and tells at which place in the buffer the memory begins.
static hip_status export_by_runtime(const hip_device* d, const mscclpp_device_memory* m, mscclpp_device_share* share) {
  int fd = -1;
  uint64_t offset = 0;
  hip_status st = {.call = "hsa_amd_portable_export_dmabuf"};
  st.code = d->api->export_dmabuf(POINTER(m->address), m->bytes, &fd, &offset);
  if (st.code != 0) {
    st.code = HIP_SAYS_NO_DMA_BUF * HIP_HINT;
  } else if (offset != 0) {
    close(fd);
    st = says(HIP_SAYS_PAGES, 0);
  } else {
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    share->fd = fd;
  }
  return st;
}

static hip_status export_dma_buf(const hip_device* d, const mscclpp_device_memory* m, mscclpp_device_share* share) {
  const uint64_t page = (uint64_t)getpagesize(), bytes = (m->bytes + page - 1) & ~(page - 1);
  if (m->address % page != 0 || m->address + bytes > m->start + m->whole) return says(HIP_SAYS_PAGES, 0);
  if (d->api->hipMemGetHandleForAddressRange == NULL) return export_by_runtime(d, m, share);
  BEGIN;
  int fd = -1;
  if (CALL(hipMemGetHandleForAddressRange, &fd, POINTER(m->address), bytes, hipMemRangeHandleTypeDmaBufFd, 0)) {
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    share->fd = fd;
  }
  END;
}

hip_status hip_export_share(hip_device* d, const mscclpp_device_memory* m, mscclpp_device_share* share) {
  share->fd = -1, share->blob_bytes = 0;
  if (share->kind >= HIP_SHARES || (m->shares & (1ull << share->kind)) == 0) return says(HIP_SAYS_NO_SHARE, 0);
  switch (share->kind) {
    case HIP_SHARE_VMM: return export_fd(d, m, share);
    case HIP_SHARE_LEGACY: return export_legacy(d, m, share);
    default: return export_dma_buf(d, m, share);
  }
}

// The library maps no part of an allocation: unsupported, unless offset and bytes reach its last unit.
static hip_status import_handle(const hip_device* d, const mscclpp_device_share* share, uint64_t offset, uint64_t bytes, mscclpp_device_memory* m) {
  BEGIN;
  const hipMemAllocationProp p = hip_properties(d, hipMemAllocationTypePinned);
  hipMemGenericAllocationHandle_t handle = NULL;
  hip_block b = {0};
  uint64_t whole = offset + bytes;
  st = hip_rounded(d, &p, &whole);
  if (st.code == hipSuccess && CALL(hipMemImportFromShareableHandle, &handle, POINTER(share->fd), hipMemHandleTypePosixFileDescriptor)) {
    st = hip_map_handle(d, handle, whole, &b);
    m->start = b.address, m->address = b.address + offset, m->whole = b.bytes, m->handle = (uintptr_t)b.handle;
  }
  if (st.code == hipErrorNotSupported) st.code += HIP_SAYS_WHOLE * HIP_HINT;
  if (st.code == hipErrorInvalidDevice || st.code == hipErrorPeerAccessUnsupported) st.code += HIP_SAYS_ACCESS * HIP_HINT;
  END;
}

static int parse_legacy(const mscclpp_device_share* share, hipIpcMemHandle_t* handle, uint64_t place[2]) {
  const uint8_t* blob = share->blob;
  if (share->blob_bytes != HIP_LEGACY_BYTES || blob[0] != HIP_LEGACY_VERSION) return HIP_SAYS_LEGACY;
  pthread_once(&process_once, choose_process);
  if (memcmp(blob + 1, process, sizeof process) == 0) return HIP_SAYS_OWN;
  memcpy(handle, blob + 1 + sizeof process, sizeof *handle);
  memcpy(place, blob + 1 + sizeof process + sizeof *handle, 2 * sizeof place[0]);
  return place[0] > most || place[1] > most ? HIP_SAYS_LEGACY : 0;
}

// The only flag that is accepted changed its number with 6.0.
static unsigned lazy_enable_peer_access(const hip_device* d) { return d->api->version >= 60000000 ? 1 : 0; }

static hip_status import_legacy(const hip_device* d, const mscclpp_device_share* share, uint64_t offset, uint64_t bytes, mscclpp_device_memory* m) {
  hipIpcMemHandle_t handle;
  uint64_t place[2];
  const int wrong = parse_legacy(share, &handle, place);
  if (wrong != 0) return says(wrong, 0);
  if (offset > place[1] || bytes > place[1] - offset) return says(HIP_SAYS_RANGE, 0);
  BEGIN;
  void* a = NULL;
  if (CALL(hipIpcOpenMemHandle, &a, handle, lazy_enable_peer_access(d))) {
    m->start = (uintptr_t)a, m->address = m->start + place[0] + offset, m->whole = place[1], m->handle = HIP_NO_HANDLE;
  } else if (st.code == hipErrorInvalidContext) {
    st = says(HIP_SAYS_OWN, 0);
  } else if (st.code == hipErrorInvalidDevice || st.code == hipErrorPeerAccessUnsupported) {
    st.code += HIP_SAYS_ACCESS * HIP_HINT;
  }
  END;
}

hip_status hip_import_share(hip_device* d, const mscclpp_device_share* share, uint64_t offset, uint64_t bytes, mscclpp_device_memory* m) {
  if (offset > most || bytes > most) return says(HIP_SAYS_RANGE, 0);
  m->bytes = bytes, m->shares = 0, m->on_host = 0, m->ordinal = d->index;
  switch (share->kind) {
    case HIP_SHARE_VMM: return import_handle(d, share, offset, bytes, m);
    case HIP_SHARE_LEGACY: return import_legacy(d, share, offset, bytes, m);
    default: return says(HIP_SAYS_NO_SHARE, 0);
  }
}

hip_status hip_unmap(hip_device* d, const mscclpp_device_memory* m) {
  BEGIN;
  if (m->handle == HIP_NO_HANDLE) {
    (void)CALL(hipIpcCloseMemHandle, POINTER(m->start));
  } else {
    const hip_block b = {m->start, m->whole, (hipMemGenericAllocationHandle_t)POINTER(m->handle)};
    st = hip_unmap_handle(d, &b);
  }
  END;
}
