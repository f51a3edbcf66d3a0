#define _GNU_SOURCE
#include "gdrcopy.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

// Version 2 of the library's binary interface; in version 1 handles were half as long.
enum { kMajor = 2 };

typedef struct {
  unsigned long h;
} pinned;

struct gdrcopy_library {
  void (*runtime_get_version)(int* major, int* minor);
  void* (*open)(void);
  int (*close)(void* gdr);
  int (*pin_buffer)(void* gdr, unsigned long address, size_t bytes, uint64_t p2p_token, uint32_t va_space, pinned* made);
  int (*unpin_buffer)(void* gdr, pinned p);
  int (*map)(void* gdr, pinned p, void** at, size_t bytes);
  int (*unmap)(void* gdr, pinned p, void* at, size_t bytes);
};

// A mapping has a connection to the module of its own: the library's list of what is pinned
// over one is not for concurrent use.
struct gdrcopy_view {
  const gdrcopy_library* library;
  void* gdr;
  pinned pin;
  void* at;
  size_t bytes;
};

gdrcopy_library* gdrcopy_open(const char* path, char* why, size_t bytes) {
  void* so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (so == NULL) {
    const char* text = dlerror();
    snprintf(why, bytes, "%s", text != NULL ? text : "unknown");
    return NULL;
  }
  gdrcopy_library* l = calloc(1, sizeof *l);
  if (l == NULL) {
    snprintf(why, bytes, "out of memory");
    goto failed;
  }
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

// TRY calls a function of the library and notes which it was; it is true on success.
#define TRY(name, ...) (st.call = "gdr_" #name, st.code = library->name(__VA_ARGS__), st.code == 0)

cuda_status gdrcopy_map(const gdrcopy_library* library, uint64_t address, uint64_t bytes, gdrcopy_view** made, uint64_t* host) {
  cuda_status st = {ENOMEM, "malloc"};
  gdrcopy_view* v = calloc(1, sizeof *v);
  if (v == NULL) return st;
  v->library = library;
  v->bytes = bytes;
  errno = 0;
  v->gdr = library->open();
  if (v->gdr == NULL) {  // it does not say why, but most often what it tried last does
    st.call = "gdr_open", st.code = errno != 0 ? errno : ENODEV;
    goto failed;
  }
  if (!TRY(pin_buffer, v->gdr, address, bytes, 0, 0, &v->pin)) goto close;
  if (!TRY(map, v->gdr, v->pin, &v->at, bytes)) goto unpin;
  *made = v;
  *host = (uintptr_t)v->at;
  return st;
unpin:
  (void)library->unpin_buffer(v->gdr, v->pin);
close:
  (void)library->close(v->gdr);
failed:
  free(v);
  return st;
}

cuda_status gdrcopy_unmap(gdrcopy_view* v) {
  const gdrcopy_library* library = v->library;
  cuda_status st, first;
  (void)TRY(unmap, v->gdr, v->pin, v->at, v->bytes);
  first = st;
  if (!TRY(unpin_buffer, v->gdr, v->pin) && first.code == 0) first = st;
  if (!TRY(close, v->gdr) && first.code == 0) first = st;
  free(v);
  return first;
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
void gdrcopy_store(uintptr_t word, uint64_t value) {
  __atomic_store_n((uint64_t*)word, value, __ATOMIC_RELAXED);
  drain();
}

// On the bus a read does not pass writes that were posted before it.
void gdrcopy_settle(uintptr_t word) {
  __sync_synchronize();
  (void)*(volatile uint64_t*)word;
  __sync_synchronize();
}
