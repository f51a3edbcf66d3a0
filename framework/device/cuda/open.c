#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scope.h"

static void discard(cuda_api* api) {
  dlclose(api->library);
  free(api);
}

cuda_api* cuda_open(const char* path, char* why, size_t bytes) {
  cuda_api* api = calloc(1, sizeof *api);
  if (api == NULL) {
    snprintf(why, bytes, "out of memory");
    return NULL;
  }
  // dlopen and dlerror in one call: the message belongs to the thread.
  api->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (api->library == NULL) {
    const char* text = dlerror();
    snprintf(why, bytes, "%s", text != NULL ? text : "unknown");
    free(api);
    return NULL;
  }
#define CUDA_SYMBOL(name, arguments)                                                                       \
  *(void**)&api->name = dlsym(api->library, #name);                                                        \
  if (api->name == NULL) {                                                                                 \
    snprintf(why, bytes, "%s has no function %s: expected a driver for CUDA 11.8 or later", path, #name);  \
    discard(api);                                                                                          \
    return NULL;                                                                                           \
  }
#define CUDA_LATER_SYMBOL(name, arguments) *(void**)&api->name = dlsym(api->library, #name);
#include "symbols.h"
#undef CUDA_LATER_SYMBOL
#undef CUDA_SYMBOL
  return api;
}

size_t cuda_symbol_names(const char** names, size_t most) {
  static const char* const all[] = {
#define CUDA_SYMBOL(name, arguments) #name,
#define CUDA_LATER_SYMBOL(name, arguments)
#include "symbols.h"
#undef CUDA_LATER_SYMBOL
#undef CUDA_SYMBOL
  };
  const size_t count = sizeof all / sizeof *all;
  for (size_t i = 0; i < count && i < most; i++) names[i] = all[i];
  return count;
}

cuda_status cuda_init(const cuda_api* api, int* version, int* count) {
  const cuda_context context = {.api = api}, *c = &context;
  cuda_status st;
  if (CALL(cuInit, 0) && CALL(cuDriverGetVersion, version)) (void)CALL(cuDeviceGetCount, count);
  return st;
}

void cuda_describe(const cuda_api* api, int code, char* name, char* text, size_t bytes) {
  const char* s = NULL;
  snprintf(name, bytes, "%s", api->cuGetErrorName(code, &s) == CUDA_SUCCESS && s != NULL ? s : "");
  s = NULL;
  snprintf(text, bytes, "%s", api->cuGetErrorString(code, &s) == CUDA_SUCCESS && s != NULL ? s : "");
}

static cuda_status facts_of(const cuda_context* c, cuda_facts* f) {
  cuda_status st;
  CUuuid uuid;
  if (!CALL(cuDeviceGetName, f->name, sizeof f->name, c->device)) return st;
  if (!CALL(cuDeviceGetUuid_v2, &uuid, c->device)) return st;
  memcpy(f->uuid, uuid.bytes, sizeof uuid.bytes);
  if (!CALL(cuDeviceGetPCIBusId, f->pci, sizeof f->pci, c->device)) return st;
  const struct {
    int attribute;
    int* value;
  } all[] = {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &f->major},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &f->minor},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &f->sms},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &f->shared_optin},
      {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, &f->vmm},
      {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, &f->posix_fd},
      {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, &f->rdma_vmm},
      {CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, &f->dma_buf},
      {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, &f->rdma_flush},
      {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, &f->rdma_order},
      {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, &f->host_register},
      {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, &f->memops64},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    if (!CALL(cuDeviceGetAttribute, all[i].value, all[i].attribute, c->device)) return st;
  }
  // Unknown to drivers before CUDA 12.3, which have none of it.
  if (c->api->cuDeviceGetAttribute(&f->fabric, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, c->device) != CUDA_SUCCESS) {
    f->fabric = 0;
  }
  return st;
}

// With the context current: what needs it.
static cuda_status complete(cuda_context* c, cuda_facts* facts) {
  BEGIN;
  if (CALL(cuCtxGetStreamPriorityRange, &facts->least_priority, &facts->greatest_priority)) {
    (void)CALL(cuStreamCreateWithPriority, &c->aux, CU_STREAM_NON_BLOCKING, facts->greatest_priority);
  }
  END;
}

cuda_status cuda_retain(const cuda_api* api, int ordinal, cuda_context** made, cuda_facts* facts) {
  cuda_status st = {CUDA_ERROR_OUT_OF_MEMORY, "malloc"};
  cuda_context* c = calloc(1, sizeof *c);
  if (c == NULL) return st;
  c->api = api;
  memset(facts, 0, sizeof *facts);
  if (!CALL(cuDeviceGet, &c->device, ordinal)) goto failed;
  st = facts_of(c, facts);
  if (st.code != CUDA_SUCCESS) goto failed;
  if (!CALL(cuDevicePrimaryCtxRetain, &c->context, c->device)) goto failed;
  st = complete(c, facts);
  if (st.code != CUDA_SUCCESS) {
    api->cuDevicePrimaryCtxRelease_v2(c->device);
    goto failed;
  }
  *made = c;
  return st;
failed:
  free(c);
  return st;
}

// destroy_aux destroys the stream that belongs to the context itself. current says whether the context was that of this thread.
static cuda_status destroy_aux(const cuda_context* c, int* current) {
  BEGIN;
  (void)CALL(cuStreamDestroy_v2, c->aux);
  leave_relaxed(c, &scope);
  *current = scope.found == c->context;
  // A context that may vanish now must not stay current.
  if (scope.found == NULL || scope.found == c->context) c->api->cuCtxSetCurrent(NULL);
  return st;
}

cuda_status cuda_release(cuda_context* c) {
  unsigned flags = 0;
  int current = 0, active = 0;
  cuda_status first = destroy_aux(c, &current), st;
  (void)CALL(cuDevicePrimaryCtxRelease_v2, c->device);
  // The program uses the context as well: it stays current where it was.
  if (current && c->api->cuDevicePrimaryCtxGetState(c->device, &flags, &active) == CUDA_SUCCESS && active) c->api->cuCtxSetCurrent(c->context);
  free(c);
  return first.code != CUDA_SUCCESS ? first : st;
}

uintptr_t cuda_swap_current(const cuda_api* api, uintptr_t context) {
  CUcontext found = NULL;
  api->cuCtxGetCurrent(&found);
  api->cuCtxSetCurrent((CUcontext)context);
  return (uintptr_t)found;
}

cuda_status cuda_mem_info(const cuda_context* c, uint64_t* available, uint64_t* total) {
  size_t a = 0, t = 0;
  BEGIN;
  (void)CALL(cuMemGetInfo_v2, &a, &t);
  *available = a, *total = t;
  END;
}

cuda_status cuda_can_access(const cuda_context* c, int peer, int* can) {
  cuda_status st;
  CUdevice device;
  if (CALL(cuDeviceGet, &device, peer)) (void)CALL(cuDeviceCanAccessPeer, can, c->device, device);
  return st;
}

cuda_status cuda_enable_peer(const cuda_context* c, const cuda_context* peer) {
  BEGIN;
  if (!CALL(cuCtxEnablePeerAccess, peer->context, 0) && st.code == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
    st.code = CUDA_SUCCESS;
  }
  END;
}
