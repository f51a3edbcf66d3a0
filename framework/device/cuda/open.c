#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

// Drivers that were opened. None is ever closed: the application may use it as well, and a driver leaves threads behind.
typedef struct driver {
  struct driver* next;
  const cuda_api* api;
  int version;
  char path[];
} driver;

static struct {
  pthread_mutex_t lock;
  driver* opened;
  char chosen[4096];  // start opens it
  char reason[512];   // for which it did not
} drivers = {.lock = PTHREAD_MUTEX_INITIALIZER};

void cuda_choose(const char* path) {
  pthread_mutex_lock(&drivers.lock);
  snprintf(drivers.chosen, sizeof drivers.chosen, "%s", path);
  pthread_mutex_unlock(&drivers.lock);
}

void cuda_reason(char* text, size_t bytes) {
  pthread_mutex_lock(&drivers.lock);
  snprintf(text, bytes, "%s", drivers.reason);
  pthread_mutex_unlock(&drivers.lock);
}

static driver* find(const char* path) {
  for (driver* d = drivers.opened; d != NULL; d = d->next) {
    if (strcmp(d->path, path) == 0) return d;
  }
  return NULL;
}

static driver* locked_find(const char* path) {
  pthread_mutex_lock(&drivers.lock);
  driver* d = find(path[0] != '\0' ? path : drivers.chosen);
  pthread_mutex_unlock(&drivers.lock);
  return d;
}

int cuda_version(const char* path) {
  const driver* d = locked_find(path);
  return d != NULL ? d->version : 0;
}

void cuda_driver_words(int answer, mscclpp_device_error* e) {
  pthread_mutex_lock(&drivers.lock);
  const driver* d = drivers.opened;
  pthread_mutex_unlock(&drivers.lock);
  const char* s = NULL;
  if (d == NULL) return;
  if (d->api->cuGetErrorName(answer, &s) == CUDA_SUCCESS && s != NULL) snprintf(e->name, sizeof e->name, "%s", s);
  s = NULL;
  if (d->api->cuGetErrorString(answer, &s) == CUDA_SUCCESS && s != NULL) snprintf(e->text, sizeof e->text, "%s", s);
}

static void discard(cuda_api* api) {
  dlclose(api->library);
  free(api);
}

// Opens a library and looks up everything. On failure returns NULL, and the reason in why.
static cuda_api* open_api(const char* path, char* why, size_t bytes) {
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

// The driver that is chosen; NULL: there is none. The lock is held.
static driver* chosen(void) {
  driver* d = find(drivers.chosen);
  if (d != NULL) return d;
  cuda_api* api = open_api(drivers.chosen, drivers.reason, sizeof drivers.reason);
  if (api == NULL) return NULL;
  d = calloc(1, sizeof *d + strlen(drivers.chosen) + 1);
  if (d == NULL) {
    snprintf(drivers.reason, sizeof drivers.reason, "out of memory");
    discard(api);
    return NULL;
  }
  strcpy(d->path, drivers.chosen);
  d->api = api, d->next = drivers.opened;
  return drivers.opened = d;
}

cuda_status cuda_start(void) {
  pthread_mutex_lock(&drivers.lock);
  driver* d = chosen();
  pthread_mutex_unlock(&drivers.lock);
  if (d == NULL) return worded(CUDA_WORDS_NO_DRIVER, 0);
  const cuda_context context = {.api = d->api}, *c = &context;
  int version = 0;
  cuda_status st = {0};
  if (CALL(cuInit, 0) && CALL(cuDriverGetVersion, &version)) d->version = version;
  return st;
}

cuda_status cuda_count(int32_t* devices) {
  const driver* d = locked_find("");
  if (d == NULL) return worded(CUDA_WORDS_NO_DRIVER, 0);
  const cuda_context context = {.api = d->api}, *c = &context;
  int count = 0;
  cuda_status st = {0};
  if (CALL(cuDeviceGetCount, &count)) *devices = count;
  return st;
}

static cuda_status facts_of(const cuda_context* c, cuda_facts* f) {
  cuda_status st = {0};
  CUuuid uuid;
  if (!CALL(cuDeviceGetName, f->name, sizeof f->name, c->device)) return st;
  if (!CALL(cuDeviceGetUuid_v2, &uuid, c->device)) return st;
  memcpy(f->uuid, uuid.bytes, sizeof uuid.bytes);
  if (!CALL(cuDeviceGetPCIBusId, f->pci, sizeof f->pci, c->device)) return st;
  cuda_bus_address(f->pci);
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
  if (c->api->cuDeviceGetAttribute(&f->multicast, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, c->device) != CUDA_SUCCESS) f->multicast = 0;
  if (c->api->cuDeviceGetAttribute(&f->fabric, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, c->device) != CUDA_SUCCESS) {
    f->fabric = 0;
  }
  return f->memops64 ? st : worded(CUDA_WORDS_OLD, 0);
}

// With the context current: what needs it.
static cuda_status complete(cuda_context* c) {
  BEGIN;
  const CUmemAllocationProp p = cuda_properties(c, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  size_t unit = 0;  // 0: memory of this GPU has no handles
  if (c->facts.vmm && c->api->cuMemGetAllocationGranularity(&unit, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS) c->facts.unit = unit;
  if (CALL(cuCtxGetStreamPriorityRange, &c->facts.least_priority, &c->facts.greatest_priority)) {
    (void)CALL(cuStreamCreateWithPriority, &c->aux, CU_STREAM_NON_BLOCKING, c->facts.greatest_priority);
  }
  END;
}

static int is(const char* line, size_t n, const char* option) { return n == strlen(option) && strncmp(line, option, n) == 0; }

// Takes the lines of options apart: library=PATH of the driver, memory=legacy, memory=fabric, gdrcopy=off. 0: one is unknown.
static int take(cuda_context* c, const char* options, char* path, size_t bytes) {
  static const char library[] = "library=";
  for (const char* line = options; *line != '\0';) {
    const size_t n = strcspn(line, "\n"), skip = sizeof library - 1;
    if (n > skip && strncmp(line, library, skip) == 0) {
      snprintf(path, bytes, "%.*s", (int)(n - skip), line + skip);
    } else if (is(line, n, "memory=legacy")) {
      c->legacy = 1;
    } else if (is(line, n, "memory=fabric")) {
      c->fabric = 1;
    } else if (is(line, n, "gdrcopy=off")) {
      c->without_gdrcopy = 1;
    } else if (n > 0) {
      return 0;
    }
    line += n + (line[n] == '\n');
  }
  return 1;
}

static cuda_status prepare(cuda_context* c, int32_t index, const char* options) {
  char path[4096] = "";
  if (!take(c, options, path, sizeof path)) return worded(CUDA_WORDS_OPTION, 0);
  const driver* d = locked_find(path);
  if (d == NULL) return worded(CUDA_WORDS_NO_DRIVER, 0);
  c->api = d->api, c->index = index;
  cuda_status st = {0};
  if (!CALL(cuDeviceGet, &c->device, index)) return st;
  st = facts_of(c, &c->facts);
  if (st.code != CUDA_SUCCESS || !CALL(cuDevicePrimaryCtxRetain, &c->context, c->device)) return st;
  st = complete(c);
  if (st.code != CUDA_SUCCESS) c->api->cuDevicePrimaryCtxRelease_v2(c->device);
  return st;
}

cuda_status cuda_open(int32_t index, const char* options, cuda_context** made) {
  cuda_context* c = calloc(1, sizeof *c);
  if (c == NULL) return (cuda_status){.code = MSCCLPP_DEVICE_NO_MEMORY, .call = "calloc"};
  const cuda_status st = prepare(c, index, options);
  if (st.code == CUDA_SUCCESS) {
    *made = c;
  } else {
    free(c);
  }
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

cuda_status cuda_close(cuda_context* c) {
  unsigned flags = 0;
  int current = 0, active = 0;
  cuda_status first = destroy_aux(c, &current), st = {0};
  (void)CALL(cuDevicePrimaryCtxRelease_v2, c->device);
  // The program uses the context as well: it stays current where it was.
  if (current && c->api->cuDevicePrimaryCtxGetState(c->device, &flags, &active) == CUDA_SUCCESS && active) c->api->cuCtxSetCurrent(c->context);
  free(c);
  return first.code != CUDA_SUCCESS ? first : st;
}

void cuda_archs(int major, int minor, char* text, size_t bytes) {
  const int has = 10 * major + minor;
  snprintf(text, bytes, "%s", has >= 90 ? "sm_90 sm_80" : has >= 80 ? "sm_80" : "");
}

void cuda_bus_address(char* text) {
  const size_t domain = strcspn(text, ":");
  for (char* p = text; *p != '\0'; p++) *p = (char)tolower((unsigned char)*p);
  if (domain > 4 && text[domain] == ':' && strspn(text, "0") >= domain - 4) memmove(text, text + domain - 4, strlen(text + domain - 4) + 1);
}

cuda_status cuda_info(cuda_context* c, mscclpp_device_info* i) {
  const cuda_facts* f = &c->facts;
  memcpy(i->name, f->name, sizeof i->name);
  cuda_archs(f->major, f->minor, i->archs, sizeof i->archs);
  memcpy(i->pci, f->pci, sizeof i->pci);
  memcpy(i->uuid, f->uuid, sizeof i->uuid);
  i->processors = (uint32_t)f->sms;
  i->shared_most = (uint32_t)f->shared_optin;
  i->least_priority = f->least_priority, i->greatest_priority = f->greatest_priority;
  i->overlap = f->major >= 9;
  i->unit = f->unit;
  i->ordered = f->rdma_order >= CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
  return (cuda_status){0};
}

uintptr_t cuda_swap_current(uintptr_t device, uintptr_t context) {
  const cuda_context* c = (const cuda_context*)device;
  CUcontext found = NULL;
  c->api->cuCtxGetCurrent(&found);
  c->api->cuCtxSetCurrent((CUcontext)context);
  return (uintptr_t)found;
}

cuda_status cuda_bind(cuda_context* c, uint64_t saved[4]) {
  cuda_scope scope = {0};
  const cuda_status st = {.code = enter(c, &scope), .call = "cuCtxSetCurrent"};
  saved[0] = (uintptr_t)scope.found;
  return st;
}

cuda_status cuda_unbind(cuda_context* c, const uint64_t saved[4]) {
  const cuda_scope scope = {.found = (CUcontext)(uintptr_t)saved[0]};
  leave(c, &scope);
  return (cuda_status){0};
}

cuda_status cuda_memory_info(cuda_context* c, uint64_t* available, uint64_t* total) {
  size_t a = 0, t = 0;
  BEGIN;
  (void)CALL(cuMemGetInfo_v2, &a, &t);
  *available = a, *total = t;
  END;
}

cuda_status cuda_reaches(cuda_context* c, int32_t other, int32_t* can) {
  cuda_status st = {0};
  CUdevice device;
  int yes = other == c->index;
  if (!yes && CALL(cuDeviceGet, &device, other)) (void)CALL(cuDeviceCanAccessPeer, &yes, c->device, device);
  *can = yes;
  return st;
}
