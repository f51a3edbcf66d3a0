/* NVTX, version 3: a tool is a library that NVTX_INJECTION64_PATH names. It asks for a table of places, and writes its
 * functions there. Ranges are in the domain "NCCL", have the names of functions, and a payload: the bytes of a buffer. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "env.h"
#include "log.h"
#include "watch.h"

atomic_int watching = WATCH_UNKNOWN;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- the interface of tools ---- */

typedef void (*function)(void);
enum { TABLE_CALLBACKS = 1, TABLE_VERSION = 3, MODULE_CORE = 1, MODULES = 7, CORE2 = 5, FUNCTIONS = 24, VERSION = 3 };

/* Places in the table of domains. */
enum { PUSH = 4, POP = 5, CREATE = 12, INITIALIZE = 15, PLACES = 16 };

/* Functions of each module, of which the ones of domains are called. The tools find more in NVTX's own tables: these are as long. */
static const unsigned sizes[MODULES] = {0, 16, 9, 15, 7, PLACES, 7};
static function functions[MODULES][FUNCTIONS];
static function* places[MODULES][FUNCTIONS + 1];

static int get_table(int module, function*** table, unsigned* size) {
  if (module < MODULE_CORE || module >= MODULES) return 0;
  for (unsigned i = 0; i < sizes[module]; i++) places[module][i] = i ? &functions[module][i] : NULL;
  if (table) *table = places[module];
  if (size) *size = sizes[module];
  return 1;
}

static void set_version(uint32_t version) { (void)version; }

static const struct {
  size_t size;
  int (*get)(int module, function*** table, unsigned* size);
} callbacks = {sizeof callbacks, get_table};

static const struct {
  size_t size;
  uint32_t version, zero;
  void (*set)(uint32_t version);
} version = {sizeof version, VERSION, 0, set_version};

static const void* export_table(uint32_t id) { return id == TABLE_CALLBACKS ? (const void*)&callbacks : id == TABLE_VERSION ? (const void*)&version : NULL; }

/* What an event says of itself. */
struct attributes {
  uint16_t version, size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type, reserved;
  uint64_t payload;
  int32_t message_type; /* 1: text; 3: registered */
  const void* message;
};
_Static_assert(sizeof(struct attributes) == 48, "the layout of NVTX");

/* ---- ranges ---- */

static void* domain;

static void load(const char* path) {
  void* lib = dlopen(path, RTLD_LAZY);
  int (*initialize)(const void* (*)(uint32_t)) = NULL;
  if (lib) *(void**)&initialize = dlsym(lib, "InitializeInjectionNvtx2");
  if (initialize == NULL || !initialize(export_table)) {
    log_info(SUB_PROFILE | SUB_INIT, -1, "NVTX: %s has no tool that starts", path);
    if (lib && initialize == NULL) dlclose(lib);
    memset(functions, 0, sizeof functions);
    return;
  }
  void (*initialized)(const void*) = (void (*)(const void*))functions[CORE2][INITIALIZE];
  void* (*create)(const char*) = (void* (*)(const char*))functions[CORE2][CREATE];
  if (initialized) initialized(NULL);
  if (create) domain = create("NCCL");
}

static void find(void) {
  const char* path = variable("NVTX_INJECTION64_PATH");
  if (path && *path) load(path);
  int pushes = functions[CORE2][PUSH] && functions[CORE2][POP];
  atomic_fetch_or(&watching, pushes ? WATCH_NVTX : 0);
  atomic_fetch_and(&watching, ~WATCH_UNKNOWN);
}

void watch_profiler(void) { atomic_fetch_or(&watching, WATCH_PROFILER); }

struct range range_begin(const char* name, size_t bytes) {
  if (atomic_load_explicit(&watching, memory_order_acquire) & WATCH_UNKNOWN) pthread_once(&once, find);
  if (!(atomic_load_explicit(&watching, memory_order_acquire) & WATCH_NVTX)) return (struct range){0};
  int (*push)(void*, const struct attributes*) = (int (*)(void*, const struct attributes*))functions[CORE2][PUSH];
  struct attributes a = {.version = VERSION, .size = sizeof a, .message_type = 1, .message = name};
  if (bytes) {
    a.payload_type = 1; /* an unsigned 64-bit integer */
    a.payload = bytes;
  }
  push(domain, &a);
  return (struct range){1};
}

void range_end(struct range* r) {
  if (r->open) ((int (*)(void*))functions[CORE2][POP])(domain);
}
