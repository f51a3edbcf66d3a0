#define _GNU_SOURCE
#include "table.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// dlopen and dlerror in one call: the message belongs to the thread.
void* native_library(const char* path, char* why, size_t bytes) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    const char* text = dlerror();
    snprintf(why, bytes, "%s", text != NULL ? text : "unknown");
  }
  return library;
}

const native_table* native_found(void* library, char* why, size_t bytes) {
  const native_table* (*table)(void);
  *(void**)&table = dlsym(library, MSCCLPP_DEVICE_BACKEND_SYMBOL);
  if (table == NULL) {
    snprintf(why, bytes, "it has no function %s", MSCCLPP_DEVICE_BACKEND_SYMBOL);
    return NULL;
  }
  const native_table* found = table();
  if (found == NULL) snprintf(why, bytes, "%s returns no table", MSCCLPP_DEVICE_BACKEND_SYMBOL);
  return found;
}

void native_unload(void* library) { dlclose(library); }

void native_adopt(native_table* to, const native_table* from) {
  memset(to, 0, sizeof *to);
  memcpy(to, from, from->size < sizeof *to ? from->size : sizeof *to);
}

const char* native_lacks(const native_table* t) {
  const struct {
    const char* name;
    int there;
    uint64_t group;  // 0: always
  } entries[] = {
#define E(name, group) {#name, t->name != NULL, group},
      E(start, 0) E(count, 0) E(open, 0) E(close, 0) E(info, 0) E(memory_info, 0) E(reaches, MSCCLPP_DEVICE_HAS_PEERS)
      E(bind, MSCCLPP_DEVICE_HAS_BINDING) E(unbind, MSCCLPP_DEVICE_HAS_BINDING)
      E(alloc, 0) E(free_memory, 0) E(range_of, MSCCLPP_DEVICE_HAS_RANGES) E(grant, MSCCLPP_DEVICE_HAS_PEERS)
      E(upload, 0) E(download, 0) E(fill, 0)
      E(export_share, MSCCLPP_DEVICE_HAS_SHARES) E(import_share, MSCCLPP_DEVICE_HAS_SHARES) E(unmap, MSCCLPP_DEVICE_HAS_SHARES)
      E(host_alloc, MSCCLPP_DEVICE_HAS_HOST) E(host_free, MSCCLPP_DEVICE_HAS_HOST)
      E(host_register, MSCCLPP_DEVICE_HAS_HOST) E(host_unregister, MSCCLPP_DEVICE_HAS_HOST)
      E(view_open, MSCCLPP_DEVICE_HAS_VIEWS) E(view_store, MSCCLPP_DEVICE_HAS_VIEWS)
      E(view_settle, MSCCLPP_DEVICE_HAS_VIEWS) E(view_close, MSCCLPP_DEVICE_HAS_VIEWS)
      E(flush_writes, MSCCLPP_DEVICE_HAS_FLUSH)
      E(module_load, 0) E(module_unload, 0) E(kernel_find, 0) E(kernel_allow, 0) E(kernel_fit, 0) E(launch, 0)
      E(stream_create, MSCCLPP_DEVICE_HAS_STREAMS) E(stream_destroy, MSCCLPP_DEVICE_HAS_STREAMS)
      E(stream_query, MSCCLPP_DEVICE_HAS_STREAMS) E(stream_capturing, MSCCLPP_DEVICE_HAS_STREAMS) E(stream_sync, MSCCLPP_DEVICE_HAS_STREAMS)
      E(event_create, MSCCLPP_DEVICE_HAS_EVENTS) E(event_destroy, MSCCLPP_DEVICE_HAS_EVENTS) E(event_record, MSCCLPP_DEVICE_HAS_EVENTS)
      E(event_record_all, MSCCLPP_DEVICE_HAS_ALL_EVENT) E(event_wait, MSCCLPP_DEVICE_HAS_EVENTS)
      E(event_query, MSCCLPP_DEVICE_HAS_EVENTS) E(event_sync, MSCCLPP_DEVICE_HAS_EVENTS) E(event_elapsed, MSCCLPP_DEVICE_HAS_TIMES)
      E(capture_begin, MSCCLPP_DEVICE_HAS_GRAPHS) E(capture_end, MSCCLPP_DEVICE_HAS_GRAPHS)
      E(graph_launch, MSCCLPP_DEVICE_HAS_GRAPHS) E(graph_destroy, MSCCLPP_DEVICE_HAS_GRAPHS)
      E(copy, MSCCLPP_DEVICE_HAS_STREAMS) E(set, MSCCLPP_DEVICE_HAS_STREAMS) E(write_word, MSCCLPP_DEVICE_HAS_STREAMS)
      E(wait_word, MSCCLPP_DEVICE_HAS_WAITS) E(describe, 0)
      E(stream_id, MSCCLPP_DEVICE_HAS_STREAM_IDS) E(reserve, MSCCLPP_DEVICE_HAS_PLACES) E(unreserve, MSCCLPP_DEVICE_HAS_PLACES)
#define M(name) E(multicast_##name, MSCCLPP_DEVICE_HAS_MULTICAST)
      M(ready) M(create) M(share) M(open) M(add) M(bind) M(unbind) M(map) M(unmap) M(close)
#undef M
      E(place_share, MSCCLPP_DEVICE_HAS_PLACES) E(place_own, MSCCLPP_DEVICE_HAS_PLACES) E(displace, MSCCLPP_DEVICE_HAS_PLACES)
      E(alloc_data, MSCCLPP_DEVICE_HAS_DATA) E(stream_processors, MSCCLPP_DEVICE_HAS_PARTS)
      E(link, MSCCLPP_DEVICE_HAS_LINKS)
      E(event_record_each, MSCCLPP_DEVICE_HAS_GRAPH_TIMES)
#undef E
  };
  for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
    if (!entries[i].there && (entries[i].group == 0 || (t->capabilities & entries[i].group) != 0)) return entries[i].name;
  }
  return NULL;
}

native_context* native_context_of(uintptr_t table, uintptr_t device) {
  native_context* c = malloc(sizeof *c);
  if (c != NULL) *c = (native_context){(const native_table*)table, (mscclpp_device*)device};
  return c;
}

int native_direct_launch(uintptr_t context, uintptr_t kernel, uintptr_t stream, uint32_t grid, uint32_t block, uint32_t shared, int overlap,
                         uintptr_t arguments, size_t bytes) {
  const native_context* c = (const native_context*)context;
  const mscclpp_device_launch l = {sizeof l, kernel, stream, grid, block, shared, overlap ? MSCCLPP_DEVICE_LAUNCH_OVERLAP : 0, (const void*)arguments, bytes};
  return c->table->launch(c->device, &l).code;
}

uint64_t native_direct_stream_id(uintptr_t context, uintptr_t stream) {
  const native_context* c = (const native_context*)context;
  return c->table->stream_id(c->device, stream);
}
