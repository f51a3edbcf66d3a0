#define _GNU_SOURCE
#include "door.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../capi/mscclpp.h"
#include "env.h"
#include "fallback.h"
#include "fork.h"
#include "log.h"
#include "maker.h"
#include "room.h"
#include "settings.h"
#include "version.h"

/* The functions of libmscclpp that are called. */
#define FUNCTIONS(F)                                                                                        \
  F(version) F(last_error) F(setting) F(comm_create) F(comm_join) F(comm_split) F(comm_shrink) F(comm_rank) F(comm_size) F(comm_status) \
  F(comm_query) F(memory_alloc) F(memory_register) F(memory_range) F(memory_write) F(memory_free) F(window_arrange) F(window_flat) F(window_free) \
  F(comm_exchange) F(comm_destroy) F(comm_leave) F(comm_settle) F(all_reduce) F(all_gather) F(reduce_scatter) F(broadcast)     \
  F(reduce) F(all_to_all) F(gather) F(scatter) F(send) F(recv) F(group_start) F(group_end)

static struct {
#define F(name) __typeof__(mscclpp_##name)* name;
  FUNCTIONS(F)
#undef F
} lib;

/* Types and operations of NCCL in the numbers of libmscclpp. */
static const mscclpp_type_t types[ncclNumTypes] = {
    [ncclInt8] = MSCCLPP_INT8,         [ncclUint8] = MSCCLPP_UINT8,           [ncclInt32] = MSCCLPP_INT32,
    [ncclUint32] = MSCCLPP_UINT32,     [ncclInt64] = MSCCLPP_INT64,           [ncclUint64] = MSCCLPP_UINT64,
    [ncclFloat16] = MSCCLPP_FLOAT16,   [ncclFloat32] = MSCCLPP_FLOAT32,       [ncclFloat64] = MSCCLPP_FLOAT64,
    [ncclBfloat16] = MSCCLPP_BFLOAT16, [ncclFloat8e4m3] = MSCCLPP_FLOAT8_E4M3, [ncclFloat8e5m2] = MSCCLPP_FLOAT8_E5M2,
};
static const mscclpp_op_t ops[] = {
    [ncclSum] = MSCCLPP_SUM, [ncclProd] = MSCCLPP_PROD, [ncclMax] = MSCCLPP_MAX,
    [ncclMin] = MSCCLPP_MIN, [ncclAvg] = MSCCLPP_AVG,   [DOOR_PREMUL_SUM] = MSCCLPP_PREMUL_SUM,
};

static ncclResult_t result(mscclpp_result_t r) {
  switch (r) {
    case MSCCLPP_SUCCESS: return ncclSuccess;
    case MSCCLPP_IN_PROGRESS: return ncclInProgress;
    case MSCCLPP_INVALID: return ncclInvalidArgument;
    case MSCCLPP_UNSUPPORTED: return ncclInvalidUsage;
    case MSCCLPP_CLOSED: return ncclInvalidUsage;
    case MSCCLPP_PEER:
    case MSCCLPP_TIMEOUT: return ncclRemoteError;
    case MSCCLPP_UNAVAILABLE:
    case MSCCLPP_PLUGIN: return ncclSystemError;
    default: return ncclInternalError;
  }
}

/* configured writes what the configuration says of a key, if there is a file of it. */
static int configured(const char* key, char* value, size_t size) {
  return configuration_file() && lib.setting(key, value, size) == MSCCLPP_SUCCESS;
}

static ncclResult_t create(const struct door_comm* o, void** comm) {
  char device[32];
  mscclpp_unique_id_t id;
  memcpy(id.bytes, o->id->internal, sizeof id.bytes);
  snprintf(device, sizeof device, o->device < 0 ? "host" : DEVICE_FORMAT, o->device);
  struct settings s;
  char listed[SETTINGS_TEXT];
  settings_read(&s, &(struct settings_for){o->device, o->max_blocks, configured("transports", listed, sizeof listed) ? listed : NULL, o->net});
  mscclpp_comm_options_t options = MSCCLPP_COMM_OPTIONS_INIT;
  options.id = &id;
  options.rank = o->rank;
  options.ranks = o->size;
  options.device = device;
  options.settings = (const char* const*)s.set.texts;
  options.settings_count = s.set.count;
  options.defaults = (const char* const*)s.defaults.texts;
  options.defaults_count = s.defaults.count;
  char version[640];
  int number = 0;
  pncclGetVersion(&number);
  snprintf(version, sizeof version, "%d (%s)", number, library_version());
  fallback_describe(version, sizeof version);
  options.version = version;
  mscclpp_comm_t c = NULL;
  ncclResult_t r = result(lib.comm_create(&options, &c));
  settings_free(&s);
  *comm = c;
  return r;
}

static ncclResult_t join(void* comm) { return result(lib.comm_join(comm)); }

static ncclResult_t place(void* comm, int* rank, int* size) {
  int32_t n = 0;
  ncclResult_t r = result(lib.comm_rank(comm, &n));
  *rank = n;
  if (r == ncclSuccess) r = result(lib.comm_size(comm, &n));
  *size = n;
  return r;
}

static ncclResult_t split(void* comm, int color, int key, void** out, int* rank, int* size) {
  mscclpp_comm_t c = NULL;
  ncclResult_t r = result(lib.comm_split(comm, color, key, &c));
  *out = c;
  return r == ncclSuccess && c ? place(c, rank, size) : r;
}

static ncclResult_t shrink(void* comm, const int* excluded, size_t count, int abort, void** out) {
  mscclpp_comm_t c = NULL;
  ncclResult_t r = result(lib.comm_shrink(comm, excluded, count, abort ? MSCCLPP_SHRINK_ABORT : 0, &c));
  *out = c;
  return r;
}

static ncclResult_t exchange(void* comm, const void* mine, size_t bytes, void* all) { return result(lib.comm_exchange(comm, mine, bytes, all)); }

static ncclResult_t call(void* comm, const struct door_call* c) {
  mscclpp_call_options_t o = MSCCLPP_CALL_OPTIONS_INIT;
  o.stream = c->stream;
  o.scale_at = c->scalar_at ? c->scalar_at : c->scalar;
  o.scale_on_device = c->scalar_at != NULL;
  mscclpp_type_t t = types[c->type];
  switch (c->kind) {
    case DOOR_ALL_REDUCE: return result(lib.all_reduce(comm, c->send, c->recv, c->count, t, ops[c->op], &o));
    case DOOR_ALL_GATHER: return result(lib.all_gather(comm, c->send, c->recv, c->count, t, &o));
    case DOOR_REDUCE_SCATTER: return result(lib.reduce_scatter(comm, c->send, c->recv, c->count, t, ops[c->op], &o));
    case DOOR_BROADCAST: return result(lib.broadcast(comm, c->send, c->recv, c->count, t, c->root, &o));
    case DOOR_REDUCE: return result(lib.reduce(comm, c->send, c->recv, c->count, t, ops[c->op], c->root, &o));
    case DOOR_ALL_TO_ALL: return result(lib.all_to_all(comm, c->send, c->recv, c->count, t, &o));
    case DOOR_GATHER: return result(lib.gather(comm, c->send, c->recv, c->count, t, c->root, &o));
    case DOOR_SCATTER: return result(lib.scatter(comm, c->send, c->recv, c->count, t, c->root, &o));
    case DOOR_SEND: return result(lib.send(comm, c->send, c->count, t, c->root, &o));
    case DOOR_RECV: return result(lib.recv(comm, c->recv, c->count, t, c->root, &o));
  }
  return ncclInternalError;
}

static int is_message(int kind) { return kind >= DOOR_GATHER; }

/* group performs the calls in their order, and neighboring messages together. */
static ncclResult_t group(void* comm, const struct door_call* calls, size_t n) {
  ncclResult_t r = ncclSuccess;
  for (size_t i = 0; i < n && r == ncclSuccess;) {
    if (!is_message(calls[i].kind)) {
      r = call(comm, &calls[i++]);
      continue;
    }
    r = result(lib.group_start(comm));
    if (r != ncclSuccess) return r;
    for (; i < n && is_message(calls[i].kind) && r == ncclSuccess; i++) r = call(comm, &calls[i]);
    ncclResult_t end = result(lib.group_end(comm));
    if (r == ncclSuccess) r = end;
  }
  return r;
}

static void window_close(struct door_window* w) {
  (void)lib.window_free(w->window);
  (void)lib.memory_free(w->memory);
  *w = (struct door_window){0};
}

static ncclResult_t window_open(void* comm, const struct door_memory* m, struct door_window* out) {
  mscclpp_memory_t memory = NULL;
  mscclpp_window_t window = NULL;
  /* A rank whose memory cannot be registered takes part all the same: the others wait for it. */
  if (!m->none) (void)(m->buff ? lib.memory_register(comm, m->buff, m->size, &memory) : lib.memory_alloc(comm, m->size, &memory));
  *out = (struct door_window){0};
  mscclpp_result_t r = lib.window_arrange(comm, memory, m->private ? MSCCLPP_WINDOW_PRIVATE : 0, &window);
  *out = (struct door_window){.window = window, .memory = memory};
  if (r == MSCCLPP_SUCCESS) r = lib.window_flat(window, (void**)&out->base, &out->stride);
  if (r == MSCCLPP_SUCCESS) r = lib.memory_range(memory, &out->own, NULL);
  if (r != MSCCLPP_SUCCESS) window_close(out);
  return r == MSCCLPP_UNSUPPORTED ? ncclSuccess : result(r);
}

static ncclResult_t store_new(void* comm, size_t bytes, void** memory, void** at) {
  mscclpp_memory_t m = NULL;
  ncclResult_t r = result(lib.memory_alloc(comm, bytes, &m));
  *memory = m;
  return r == ncclSuccess ? result(lib.memory_range(m, at, NULL)) : r;
}

static ncclResult_t store(void* memory, size_t offset, const void* bytes, size_t n) { return result(lib.memory_write(memory, offset, bytes, n)); }

static void store_free(void* memory) { (void)lib.memory_free(memory); }

static void host(void* comm, char* text, size_t size) {
  if (lib.comm_query(comm, "host.id", text, &size) != MSCCLPP_SUCCESS) *text = 0;
}

static int shared(void* comm) {
  char text[8] = "";
  size_t room = sizeof text;
  return lib.comm_query(comm, "shared", text, &room) == MSCCLPP_SUCCESS && strcmp(text, "1") == 0;
}

static ncclResult_t close_comm(void* comm) { return result(lib.comm_destroy(comm)); }

static void abort_comm(void* comm, const char* why) { (void)lib.comm_leave(comm, why); }

static int settle(void* comm, ncclResult_t* r) {
  mscclpp_result_t s = lib.comm_settle(comm, NULL, 0, 0);
  *r = result(s);
  return s != MSCCLPP_UNSUPPORTED;
}

static ncclResult_t failed(void* comm) { return result(lib.comm_status(comm)); }

static const char* error(void) { return lib.last_error(); }

static const struct door functions = {create, join, split, shrink, place, exchange, call, group,
                                     window_open, window_close, store_new, store, store_free, host, shared, close_comm, abort_comm, settle, failed, error};
static const struct door* opened;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* load opens libmscclpp beside this file, one folder above, or where the loader finds it. The runtime
 * that comes with it starts threads: they take none of the program's signals. */
static void* load(void) {
  static const char* const places[] = {"", "../"};
  char path[4096];
  const char* file = "libmscclpp.so.1";
  Dl_info self;
  if (!dladdr((void*)load, &self) || self.dli_fname == NULL) self.dli_fname = "";
  const char* slash = strrchr(self.dli_fname, '/');
  int n = slash ? (int)(slash - self.dli_fname) + 1 : 0;
  for (size_t i = 0; i < 2 && n > 0; i++)
    if (snprintf(path, sizeof path, "%.*s%slibmscclpp.so.1", n, self.dli_fname, places[i]) < (int)sizeof path && access(path, F_OK) == 0) {
      file = path;
      break;
    }
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  void* handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (handle == NULL)
    fail(ncclSystemError, "cannot open libmscclpp.so.1, which belongs to %s: %s: expected it beside that file, one folder above, or where the loader looks",
         self.dli_fname, dlerror());
  return handle;
}

/* same_build compares versions; what mscclpp_version says in parentheses is about compilers. */
static int same_build(const char* version) {
  size_t n = strcspn(version, " ");
  return n == strlen(library_version()) && memcmp(version, library_version(), n) == 0;
}

const struct door* door_open(void) {
  const struct door* d = door_opened();
  if (d) return d;
  pthread_mutex_lock(&lock);
  const char* lacks = opened ? NULL : room_missing();
  if (lacks) fail(ncclSystemError, "libmscclpp cannot run in this process: %s", lacks);
  void* handle = opened || lacks ? NULL : load();
  if (handle) {
    const char* missing = NULL;
#define F(name) \
  if ((*(void**)&lib.name = dlsym(handle, "mscclpp_" #name)) == NULL && missing == NULL) missing = "mscclpp_" #name;
    FUNCTIONS(F)
#undef F
    Dl_info info = {0};
    dladdr(dlsym(handle, "mscclpp_version"), &info);
    if (missing) {
      fail(ncclSystemError, "%s has no function %s: expected the library that was built with this " LIBRARY_FILE, info.dli_fname, missing);
    } else if (!same_build(lib.version())) {
      fail(ncclSystemError, "%s is version %s: expected %s, with which this " LIBRARY_FILE " was built", info.dli_fname, lib.version(), library_version());
    } else {
      fork_watch();
      __atomic_store_n(&opened, &functions, __ATOMIC_RELEASE);
    }
  }
  d = opened;
  pthread_mutex_unlock(&lock);
  return d;
}

const struct door* door_opened(void) { return __atomic_load_n(&opened, __ATOMIC_ACQUIRE); }

int on_host(void) {
  char device[64];
  const char* named = setting("MSCCLPP_DEVICE");
  if (named && *named) return strcmp(named, "host") == 0;
  return configuration_file() && door_open() != NULL && configured("device", device, sizeof device) && strcmp(device, "host") == 0;
}
