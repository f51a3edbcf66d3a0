#define _GNU_SOURCE
#include "gdrcopy.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scope.h"

// Version 2 of the library's binary interface; in version 1 handles were half as long.
enum { kMajor = 2 };

typedef struct {
  unsigned long h;
} pinned;

typedef struct gdrcopy_library {
  struct gdrcopy_library* next;
  void (*runtime_get_version)(int* major, int* minor);
  void* (*open)(void);
  int (*close)(void* gdr);
  int (*pin_buffer)(void* gdr, unsigned long address, size_t bytes, uint64_t p2p_token, uint32_t va_space, pinned* made);
  int (*unpin_buffer)(void* gdr, pinned p);
  int (*map)(void* gdr, pinned p, void** at, size_t bytes);
  int (*unmap)(void* gdr, pinned p, void* at, size_t bytes);
  char path[];
} gdrcopy_library;

// Libraries that were opened, by path. None is closed.
static struct {
  pthread_mutex_t lock;
  gdrcopy_library* opened;
  char chosen[4096];
  char reason[512];
} libraries = {.lock = PTHREAD_MUTEX_INITIALIZER, .chosen = "libgdrapi.so.2\nlibgdrapi.so"};

void gdrcopy_choose(const char* paths) {
  pthread_mutex_lock(&libraries.lock);
  snprintf(libraries.chosen, sizeof libraries.chosen, "%s", paths);
  pthread_mutex_unlock(&libraries.lock);
}

void gdrcopy_reason(char* text, size_t bytes) {
  pthread_mutex_lock(&libraries.lock);
  snprintf(text, bytes, "%s", libraries.reason);
  pthread_mutex_unlock(&libraries.lock);
}

// A mapping has a connection to the module of its own: the library's list of what is pinned
// over one is not for concurrent use.
typedef struct {
  const gdrcopy_library* library;
  void* gdr;
  pinned pin;
  void* at;
  size_t bytes;
} gdrcopy_view;

// Opens the library and looks up what is used of it. On failure returns NULL, and the reason in why.
static gdrcopy_library* open_library(const char* path, char* why, size_t bytes) {
  void* so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (so == NULL) {
    const char* text = dlerror();
    snprintf(why, bytes, "%s", text != NULL ? text : "unknown");
    return NULL;
  }
  gdrcopy_library* l = calloc(1, sizeof *l + strlen(path) + 1);
  if (l == NULL) {
    snprintf(why, bytes, "out of memory");
    goto failed;
  }
  strcpy(l->path, path);
  const struct {
    const char* name;
    void** at;
  } symbols[] = {
      {"gdr_runtime_get_version", (void**)&l->runtime_get_version},
      {"gdr_open", (void**)&l->open},
      {"gdr_close", (void**)&l->close},
      {"gdr_pin_buffer", (void**)&l->pin_buffer},
      {"gdr_unpin_buffer", (void**)&l->unpin_buffer},
      {"gdr_map", (void**)&l->map},
      {"gdr_unmap", (void**)&l->unmap},
  };
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    *symbols[i].at = dlsym(so, symbols[i].name);
    if (*symbols[i].at == NULL) {
      snprintf(why, bytes, "%s has no function %s: expected GDRCopy %d", path, symbols[i].name, kMajor);
      goto failed;
    }
  }
  int major = 0, minor = 0;
  l->runtime_get_version(&major, &minor);
  if (major != kMajor) {
    snprintf(why, bytes, "%s is of version %d.%d: expected %d", path, major, minor, kMajor);
    goto failed;
  }
  return l;
failed:
  free(l);
  dlclose(so);
  return NULL;
}

// Finds or opens the first of the chosen libraries that can be used.
static const gdrcopy_library* chosen(void) {
  char paths[sizeof libraries.chosen], *rest = NULL;
  pthread_mutex_lock(&libraries.lock);
  snprintf(paths, sizeof paths, "%s", libraries.chosen);
  libraries.reason[0] = '\0';
  gdrcopy_library* found = NULL;
  for (char* path = strtok_r(paths, "\n", &rest); path != NULL && found == NULL; path = strtok_r(NULL, "\n", &rest)) {
    for (found = libraries.opened; found != NULL && strcmp(found->path, path) != 0;) found = found->next;
    if (found != NULL) break;
    char why[256];
    found = open_library(path, why, sizeof why);
    if (found != NULL) {
      found->next = libraries.opened, libraries.opened = found;
    } else {
      const size_t n = strlen(libraries.reason);
      snprintf(libraries.reason + n, sizeof libraries.reason - n, "%s%s", n > 0 ? "; " : "", why);
    }
  }
  pthread_mutex_unlock(&libraries.lock);
  return found;
}

// TRY calls a function of the library and notes which it was; it is true on success.
#define TRY(name, ...) (st.call = "gdr_" #name " of GDRCopy", st.code = library->name(__VA_ARGS__), st.code == 0)

static cuda_status failed(cuda_status st) {
  st.code += CUDA_WORDS_GDRCOPY * CUDA_HINT;
  return st;
}

static cuda_status map(const gdrcopy_library* library, gdrcopy_view* v, uint64_t address) {
  cuda_status st = {.call = "gdr_open of GDRCopy"};
  errno = 0;
  v->gdr = library->open();
  if (v->gdr == NULL) {  // it does not say why, but most often what it tried last does
    st.code = errno != 0 ? errno : ENODEV;
    return failed(st);
  }
  if (!TRY(pin_buffer, v->gdr, address, v->bytes, 0, 0, &v->pin)) goto close;
  if (!TRY(map, v->gdr, v->pin, &v->at, v->bytes)) goto unpin;
  return st;
unpin:
  (void)library->unpin_buffer(v->gdr, v->pin);
close:
  (void)library->close(v->gdr);
  return failed(st);
}

// Memory of a GPU is mapped in whole pages of it.
cuda_status cuda_view_open(cuda_context* c, const mscclpp_device_memory* m, uint64_t* view, uint64_t* host) {
  const uint64_t page = 1 << 16, first = m->address & ~(page - 1), end = (m->address + m->bytes + page - 1) & ~(page - 1);
  if (c->without_gdrcopy) return worded(CUDA_WORDS_GDRCOPY_OFF, 0);
  const gdrcopy_library* library = chosen();
  if (library == NULL) return worded(CUDA_WORDS_NO_GDRCOPY, 0);
  gdrcopy_view* v = calloc(1, sizeof *v);
  if (v == NULL) return (cuda_status){.code = MSCCLPP_DEVICE_NO_MEMORY, .call = "calloc"};
  v->library = library, v->bytes = end - first;
  const cuda_status st = map(library, v, first);
  if (st.code == 0) {
    *view = (uintptr_t)v, *host = (uintptr_t)v->at + (m->address - first);
  } else {
    free(v);
  }
  return st;
}

// Gives a mapping back, all of it also behind a failure; the status is that of the first.
cuda_status cuda_view_close(uint64_t view) {
  gdrcopy_view* v = (gdrcopy_view*)view;
  const gdrcopy_library* library = v->library;
  cuda_status st = {0}, first;
  (void)TRY(unmap, v->gdr, v->pin, v->at, v->bytes);
  first = st;
  if (!TRY(unpin_buffer, v->gdr, v->pin) && first.code == 0) first = st;
  if (!TRY(close, v->gdr) && first.code == 0) first = st;
  free(v);
  return first.code != 0 ? failed(first) : first;
}

// The mapping is write-combined: a processor may keep what was stored there in a buffer,
// for as long as nothing else asks for the buffer, and a release store does not empty it,
// though it orders all that goes to caches. These are what Linux means by wmb(): on x86-64 sfence, on Arm a barrier that
// waits for the end of stores, where dmb would but order them.
static inline void drain(void) {
#if defined(__x86_64__)
  __asm__ volatile("sfence" ::: "memory");
#elif defined(__aarch64__)
  __asm__ volatile("dsb st" ::: "memory");
#else
  __sync_synchronize();
#endif
}

// One store of 8 aligned bytes, which neither processors nor the bus divide. It must not be
// what Go's atomics are on x86-64, an exchange: that reads over the bus, and holds it meanwhile.
cuda_status cuda_view_store(uint64_t view, uint64_t host, uint64_t value) {
  (void)view;
  __atomic_store_n((uint64_t*)host, value, __ATOMIC_RELAXED);
  drain();
  return (cuda_status){0};
}

// On the bus a read does not pass writes that were posted before it.
cuda_status cuda_view_settle(uint64_t view, uint64_t host) {
  (void)view;
  __sync_synchronize();
  (void)*(volatile uint64_t*)host;
  __sync_synchronize();
  return (cuda_status){0};
}
