/* Loading a profiler plugin, and the events of calls. */
#define _GNU_SOURCE
#include "profiler.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cuda.h"
#include "env.h"
#include "log.h"
#include "peers.h"
#include "profiler_abi.h"
#include "types.h"
#include "watch.h"

static const struct plugin* loaded;
static int version;
static pthread_once_t once = PTHREAD_ONCE_INIT;

int profiler_version(void) { return version; }

/* ---- loading ---- */

/* say is how a plugin prints lines: levels and subsystems have NCCL's numbers, as here. */
static void say(int level, unsigned long flags, const char* file, int line, const char* format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (level == LOG_WARN)
    log_warning_at(file, line, text);
  else if (level > LOG_WARN)
    log_info(flags ? (unsigned)flags : SUB_PROFILE, -1, "%s", text);
}

/* look takes the newest version that a library has. */
static int look(void* lib, const char* path) {
  char name[32];
  for (version = 6; version >= 4; version--) {
    snprintf(name, sizeof name, "ncclProfiler_v%d", version);
    if ((loaded = dlsym(lib, name)) != NULL) break;
  }
  if (loaded == NULL) {
    log_warning("PROFILER/Plugin: %s has no ncclProfiler_v4, _v5 or _v6: no profiler is used", path);
    return 0;
  }
  if (loaded->init5 && loaded->start && loaded->stop && loaded->state && loaded->finalize) {
    log_info(SUB_INIT | SUB_PROFILE, -1, "PROFILER/Plugin: loaded %s (v%d) of %s", loaded->name ? loaded->name : "?", version, path);
    return 1;
  }
  log_warning("PROFILER/Plugin: %s of %s lacks functions: no profiler is used", name, path);
  return 0;
}

/* find opens the file that NCCL_PROFILER_PLUGIN names: a path, a name, or the last part of one. */
static void find(void) {
  static const char* const forms[] = {"%s", "lib%s.so", "libnccl-profiler-%s.so"};
  const char* named = setting("NCCL_PROFILER_PLUGIN");
  int given = named && *named;
  char path[4096], why[512] = "";
  if (given && (strcasecmp(named, "none") == 0 || strcasecmp(named, "off") == 0)) return;
  if (!given) named = "libnccl-profiler.so";
  int whole = strchr(named, '/') || strstr(named, ".so");
  void* lib = NULL;
  for (int i = 0; i < (whole ? 1 : 3) && lib == NULL; i++) {
    snprintf(path, sizeof path, forms[i], named);
    lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (lib == NULL) snprintf(why, sizeof why, "%s", dlerror());
  }
  if (lib && look(lib, path)) {
    watch_profiler();
    return;
  }
  loaded = NULL;
  if (lib) dlclose(lib);
  if (lib == NULL && given) log_warning("PROFILER/Plugin: NCCL_PROFILER_PLUGIN=%s: %s: no profiler is used", named, why);
}

void profile_open(ncclComm_t c) {
  pthread_once(&once, find);
  if (loaded == NULL) return;
  struct profile* p = calloc(1, sizeof *p);
  if (p == NULL) return;
  p->plugin = loaded;
  const char* name = c->name[0] ? c->name : NULL;
  int nodes = peers_hosts(c);
  ncclResult_t r = version == 4 ? loaded->init4(&p->context, &p->mask, name, c->id, nodes, c->nranks, c->rank, say)
                                : loaded->init5(&p->context, c->id, &p->mask, name, nodes, c->nranks, c->rank, say);
  int idle = p->context == NULL && p->mask == 0; /* a plugin that has failed, or is off, and says so in this way */
  if (r == ncclSuccess && !idle) {
    atomic_store_explicit(&c->profile, p, memory_order_release);
    return;
  }
  if (r != ncclSuccess) log_warning("PROFILER/Plugin: %s: init fails for communicator %p: %s: no profiler is used for it", loaded->name ? loaded->name : "?", (void*)c, ncclGetErrorString(r));
  free(p);
}

void profile_close(ncclComm_t c) {
  struct profile* p = atomic_exchange(&c->profile, NULL);
  if (p == NULL) return;
  performed_end(p, atomic_load(&c->aborted));
}

/* ---- events ---- */

const char* const profile_names[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "AlltoAll", "Gather", "Scatter", "Send", "Recv"};

void* profile_start(const struct profile* p, struct event* what) {
  void* event = NULL;
  if (!profile_wants(p, (unsigned)what->kind)) return NULL;
  return p->plugin->start(p->context, &event, what) == ncclSuccess ? event : NULL;
}

void profile_stop(ncclComm_t c, void* event) {
  const struct profile* p = atomic_load_explicit(&c->profile, memory_order_relaxed);
  if (event && p) (void)p->plugin->stop(event);
}

static int captured(ncclComm_t c, cudaStream_t stream) { return c->device >= 0 && cuda_capturing(c->device, stream); }

static void state(const struct profile* p, void* event, int to) {
  union event_state none = {0};
  if (event) (void)p->plugin->state(event, to, &none);
}

void* profile_group(ncclComm_t c, int depth, cudaStream_t stream) {
  const struct profile* p = atomic_load_explicit(&c->profile, memory_order_acquire);
  if (!profile_wants(p, EVENT_GROUP_API) || version == 4) return NULL;
  void* event = profile_start(p, &(struct event){.kind = EVENT_GROUP_API, .rank = c->rank, .group_api = {captured(c, stream), depth}});
  state(p, event, STATE_GROUP_START_STOP);
  return event;
}

void profile_group_ends(ncclComm_t c, void* group) { state(atomic_load_explicit(&c->profile, memory_order_acquire), group, STATE_GROUP_END_START); }

void* profile_api(ncclComm_t c, void* group, const struct door_call* call) {
  const struct profile* p = atomic_load_explicit(&c->profile, memory_order_acquire);
  if (!profile_wants(p, EVENT_COLL_API | EVENT_P2P_API) || version == 4) return NULL;
  struct event e = {.parent = group, .rank = c->rank};
  const char *func = profile_names[call->kind], *type = type_name((ncclDataType_t)call->type);
  if (call->kind < COUNTED) {
    e.kind = EVENT_COLL_API;
    e.coll_api.func = func;
    e.coll_api.count = call->count;
    e.coll_api.type = type;
    e.coll_api.root = call->root;
    e.coll_api.stream = call->stream;
    e.coll_api.captured = captured(c, call->stream);
  } else {
    e.kind = EVENT_P2P_API;
    e.p2p_api.func = func;
    e.p2p_api.count = call->count;
    e.p2p_api.type = type;
    e.p2p_api.stream = call->stream;
    e.p2p_api.captured = captured(c, call->stream);
  }
  return profile_start(p, &e);
}
