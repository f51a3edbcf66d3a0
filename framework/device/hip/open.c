#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scope.h"

enum { VERSION_5_7 = 50700000 };

// Libraries that were opened. None is ever closed: the application may use it as well, and it leaves threads behind.
typedef struct library {
  struct library* next;
  hip_api* api;
  char path[];
} library;

static struct {
  pthread_mutex_t lock;
  library* opened;
  char chosen[4096], runtime[4096];  // for start to open
  char reason[512];                  // why it did not
} libraries = {.lock = PTHREAD_MUTEX_INITIALIZER};

void hip_choose(const char* path, const char* runtime) {
  pthread_mutex_lock(&libraries.lock);
  snprintf(libraries.chosen, sizeof libraries.chosen, "%s", path);
  snprintf(libraries.runtime, sizeof libraries.runtime, "%s", runtime);
  pthread_mutex_unlock(&libraries.lock);
}

void hip_reason(char* text, size_t bytes) {
  pthread_mutex_lock(&libraries.lock);
  snprintf(text, bytes, "%s", libraries.reason);
  pthread_mutex_unlock(&libraries.lock);
}

static library* find(const char* path) {
  for (library* l = libraries.opened; l != NULL; l = l->next) {
    if (strcmp(l->path, path) == 0) return l;
  }
  return NULL;
}

static const hip_api* locked_find(const char* path) {
  pthread_mutex_lock(&libraries.lock);
  const library* l = find(path[0] != '\0' ? path : libraries.chosen);
  pthread_mutex_unlock(&libraries.lock);
  return l != NULL ? l->api : NULL;
}

void hip_library_words(int answer, mscclpp_device_error* e) {
  pthread_mutex_lock(&libraries.lock);
  const library* l = libraries.opened;
  pthread_mutex_unlock(&libraries.lock);
  if (l == NULL) return;
  const char *name = l->api->hipGetErrorName(answer), *text = l->api->hipGetErrorString(answer);
  if (name != NULL) snprintf(e->name, sizeof e->name, "%s", name);
  if (text != NULL) snprintf(e->text, sizeof e->text, "%s", text);
}

// Looks up everything. 0: something is missing, and why says what.
static int look_up(hip_api* api, const char* path, char* why, size_t bytes) {
  const char* missing = NULL;
#define LOOK_UP(name) (*(void**)&api->name = dlsym(api->library, #name)) == NULL
#define HIP_SYMBOL(name, arguments) \
  if (LOOK_UP(name) && missing == NULL) missing = #name;
#define HIP_LATER_SYMBOL(name, arguments) (void)(LOOK_UP(name));
#include "symbols.h"
#undef HIP_LATER_SYMBOL
#undef HIP_SYMBOL
  if (LOOK_UP(hipGetErrorName)) missing = "hipGetErrorName";
  if (LOOK_UP(hipGetErrorString)) missing = "hipGetErrorString";
#undef LOOK_UP
  if (missing != NULL) snprintf(why, bytes, "%s has no function %s: expected HIP 5.7 or later", path, missing);
  return missing == NULL;
}

// Asks for the version, and looks for the function that exports dma-bufs before 7.0.
static int complete(hip_api* api, const char* path, const char* runtime, char* why, size_t bytes) {
  hipError_t r = api->hipRuntimeGetVersion(&api->version);
  if (r != hipSuccess || api->version < VERSION_5_7) {
    snprintf(why, bytes, "%s is of version %d.%d (answer %d): expected HIP 5.7 or later", path, api->version / 10000000, api->version / 100000 % 100, r);
    return 0;
  }
  void* hsa = api->hipMemGetHandleForAddressRange == NULL && runtime[0] != '\0' ? dlopen(runtime, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (hsa != NULL) *(void**)&api->export_dmabuf = dlsym(hsa, "hsa_amd_portable_export_dmabuf");
  return 1;
}

static hip_api* open_api(const char* path, const char* runtime, char* why, size_t bytes) {
  hip_api* api = calloc(1, sizeof *api);
  if (api == NULL) {
    snprintf(why, bytes, "out of memory");
    return NULL;
  }
  // dlopen and dlerror in one call: the message belongs to the thread.
  api->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (api->library == NULL) {
    const char* text = dlerror();
    snprintf(why, bytes, "%s", text != NULL ? text : "unknown");
  } else if (look_up(api, path, why, bytes) && complete(api, path, runtime, why, bytes)) {
    return api;
  } else {
    dlclose(api->library);
  }
  free(api);
  return NULL;
}

size_t hip_symbol_names(const char** names, size_t most) {
  static const char* const all[] = {
#define HIP_SYMBOL(name, arguments) #name,
#define HIP_LATER_SYMBOL(name, arguments)
#include "symbols.h"
#undef HIP_LATER_SYMBOL
#undef HIP_SYMBOL
  };
  const size_t count = sizeof all / sizeof *all;
  for (size_t i = 0; i < count && i < most; i++) names[i] = all[i];
  return count;
}

// The library that is chosen; NULL: there is none. The lock is held.
static library* chosen(void) {
  library* l = find(libraries.chosen);
  if (l != NULL) return l;
  hip_api* api = open_api(libraries.chosen, libraries.runtime, libraries.reason, sizeof libraries.reason);
  if (api == NULL) return NULL;
  l = calloc(1, sizeof *l + strlen(libraries.chosen) + 1);
  if (l == NULL) {
    snprintf(libraries.reason, sizeof libraries.reason, "out of memory");
    dlclose(api->library);
    free(api);
    return NULL;
  }
  strcpy(l->path, libraries.chosen);
  l->api = api, l->next = libraries.opened;
  return libraries.opened = l;
}

hip_status hip_start(void) {
  pthread_mutex_lock(&libraries.lock);
  const library* l = chosen();
  pthread_mutex_unlock(&libraries.lock);
  if (l == NULL) return says(HIP_SAYS_NO_DRIVER, 0);
  const hip_device device = {.api = l->api}, *d = &device;
  hip_status st = {0};
  (void)CALL(hipInit, 0);
  return st;
}

hip_status hip_count(int32_t* devices) {
  const hip_device device = {.api = locked_find("")}, *d = &device;
  if (d->api == NULL) return says(HIP_SAYS_NO_DRIVER, 0);
  int count = 0;
  hip_status st = {0};
  if (CALL(hipGetDeviceCount, &count)) *devices = count;
  return st;
}

void hip_base_arch(const char* name, char* base, size_t bytes) { snprintf(base, bytes, "%.*s", (int)strcspn(name, ":"), name); }

// The name of the architecture is in the properties alone. Their layout is that of the symbol: R0600 in 6.0 and later, and the
// older one under the plain name, which later libraries keep.
static hip_status arch_of(const hip_device* d, hip_facts* f) {
  enum { MORE_THAN_ANY = 8192, AT_R0600 = 1160, AT_OLDER = 396 };
  hip_status st = {.code = MSCCLPP_DEVICE_NO_MEMORY, .call = "calloc"};
  char* properties = calloc(1, MORE_THAN_ANY);
  if (properties == NULL) return st;
  const int later = d->api->hipGetDevicePropertiesR0600 != NULL;
  if (later ? CALL(hipGetDevicePropertiesR0600, properties, d->index) : CALL(hipGetDeviceProperties, properties, d->index)) {
    hip_base_arch(properties + (later ? AT_R0600 : AT_OLDER), f->arch, sizeof f->arch);
    if (strncmp(f->arch, "gfx", 3) != 0) st.code = hipErrorInvalidValue;
  }
  free(properties);
  return st;
}

static hip_status facts_of(const hip_device* d, hip_facts* f) {
  hip_status st = {0};
  hipUUID uuid;
  if (!CALL(hipDeviceGetName, f->name, sizeof f->name, d->index)) return st;
  if (!CALL(hipDeviceGetUuid, &uuid, d->index)) return st;
  memcpy(f->uuid, uuid.bytes, sizeof uuid.bytes);
  if (!CALL(hipDeviceGetPCIBusId, f->pci, sizeof f->pci, d->index)) return st;
  for (char* p = f->pci; *p != '\0'; p++) *p = (char)tolower((unsigned char)*p);
  const struct {
    int attribute;
    int* value;
  } all[] = {
      {hipDeviceAttributeComputeCapabilityMajor, &f->major},  {hipDeviceAttributeComputeCapabilityMinor, &f->minor},
      {hipDeviceAttributeMultiprocessorCount, &f->cus},       {hipDeviceAttributeMaxSharedMemoryPerBlock, &f->shared},
      {hipDeviceAttributeWarpSize, &f->wave},                 {hipDeviceAttributeVirtualMemoryManagementSupported, &f->vmm},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    if (!CALL(hipDeviceGetAttribute, all[i].value, all[i].attribute, d->index)) return st;
  }
  // This one is as wide as an address.
  union {
    int value;
    volatile uint32_t* address;
  } flush = {.address = NULL};
  if (d->api->hipDeviceGetAttribute(&flush.value, hipDeviceAttributeHdpMemFlushCntl, d->index) == hipSuccess) f->flush = flush.address;
  return arch_of(d, f);
}

// Takes the lines of options apart: library=PATH, memory=vmm. 0: one is unknown.
static int take(hip_device* d, const char* options, char* path, size_t bytes) {
  static const char word[] = "library=", vmm[] = "memory=vmm";
  for (const char* line = options; *line != '\0';) {
    const size_t n = strcspn(line, "\n"), skip = sizeof word - 1;
    if (n > skip && strncmp(line, word, skip) == 0) {
      snprintf(path, bytes, "%.*s", (int)(n - skip), line + skip);
    } else if (n == sizeof vmm - 1 && strncmp(line, vmm, n) == 0) {
      d->vmm = 1;
    } else if (n > 0) {
      return 0;
    }
    line += n + (line[n] == '\n');
  }
  return 1;
}

// Makes ready what needs the device to be current. The stream has the highest priority, because streams of one priority may
// share a queue, in which a kernel that waits would hold it up.
static hip_status begin(hip_device* d) {
  BEGIN;
  hip_facts* f = &d->facts;
  size_t bytes = 0;
  if (CALL(hipDeviceGetStreamPriorityRange, &f->least_priority, &f->greatest_priority) &&
      CALL(hipStreamCreateWithPriority, &d->aux, hipStreamNonBlocking, f->greatest_priority)) {
    const void* image = hip_find_word_image(f->arch, &bytes);
    if (image != NULL && CALL(hipModuleLoadData, &d->words, image) && CALL(hipModuleGetFunction, &d->word, d->words, "mscclpp_hip_word")) {
      (void)CALL(hipModuleGetFunction, &d->wait, d->words, "mscclpp_hip_wait");
    }
    if (st.code != hipSuccess) d->api->hipStreamDestroy(d->aux);
  }
  END;
}

hip_status hip_open(int32_t index, const char* options, hip_device** made) {
  char path[4096] = "";
  hip_device* d = calloc(1, sizeof *d);
  if (d == NULL) return (hip_status){.code = MSCCLPP_DEVICE_NO_MEMORY, .call = "calloc"};
  hip_status st = {0};
  d->index = index;
  if (!take(d, options, path, sizeof path)) {
    st = says(HIP_SAYS_OPTION, 0);
  } else if ((d->api = locked_find(path)) == NULL) {
    st = says(HIP_SAYS_NO_DRIVER, 0);
  } else {
    st = facts_of(d, &d->facts);
    if (st.code == hipSuccess) st = begin(d);
  }
  if (st.code == hipSuccess) {
    *made = d;
  } else {
    free(d);
  }
  return st;
}

static hip_status end(const hip_device* d) {
  BEGIN;
  (void)CALL(hipStreamDestroy, d->aux);
  if (d->words != NULL) d->api->hipModuleUnload(d->words);
  END;
}

hip_status hip_close(hip_device* d) {
  const hip_status st = end(d);
  free(d);
  return st;
}

hip_status hip_info(hip_device* d, mscclpp_device_info* i) {
  const hip_facts* f = &d->facts;
  memcpy(i->name, f->name, sizeof i->name);
  snprintf(i->archs, sizeof i->archs, "%s", f->arch);
  memcpy(i->pci, f->pci, sizeof i->pci);
  memcpy(i->uuid, f->uuid, sizeof i->uuid);
  i->processors = (uint32_t)f->cus, i->shared_most = (uint32_t)f->shared;
  i->least_priority = f->least_priority, i->greatest_priority = f->greatest_priority;
  return (hip_status){0};
}

hip_status hip_memory_info(hip_device* d, uint64_t* available, uint64_t* total) {
  size_t a = 0, t = 0;
  BEGIN;
  (void)CALL(hipMemGetInfo, &a, &t);
  *available = a, *total = t;
  END;
}

hip_status hip_reaches(hip_device* d, int32_t other, int32_t* can) {
  hip_status st = {0};
  int yes = other == d->index;
  if (!yes) (void)CALL(hipDeviceCanAccessPeer, &yes, d->index, other);
  *can = yes;
  return st;
}

int hip_current_device(uintptr_t device) {
  int current = -1;
  ((const hip_device*)device)->api->hipGetDevice(&current);
  return current;
}

hip_status hip_bind(hip_device* d, uint64_t saved[4]) {
  hip_scope scope = {0};
  const hip_status st = {.code = enter(d, &scope), .call = "hipSetDevice"};
  saved[0] = (uint64_t)scope.found;
  return st;
}

hip_status hip_unbind(hip_device* d, const uint64_t saved[4]) {
  const hip_scope scope = {.found = (int)saved[0]};
  leave(d, &scope);
  return (hip_status){0};
}
