// The C side of package native: finding a table in a shared object, and calling its entries.
#ifndef MSCCLPP_NATIVE_TABLE_H_
#define MSCCLPP_NATIVE_TABLE_H_

#include "include/mscclpp/device_backend.h"

typedef mscclpp_device_backend native_table;
typedef mscclpp_device_status native_status;

// Opens the shared object at path. On failure returns NULL, and the reason in why.
void* native_library(const char* path, char* why, size_t bytes);
// Returns what the object's function returns, or NULL, and in why that it has none.
const native_table* native_found(void* library, char* why, size_t bytes);
void native_unload(void* library);

// Copies a table of any length: what it does not have is 0.
void native_adopt(native_table* to, const native_table* from);
// Returns the name of an entry that the table lacks and must have by its capabilities, or NULL.
const char* native_lacks(const native_table* t);

// A device as C calls it without Go: the context of the functions below.
typedef struct {
  const native_table* table;
  mscclpp_device* device;
} native_context;

// Returns NULL without memory; free gives it back.
native_context* native_context_of(uintptr_t table, uintptr_t device);
// Launches a kernel: 0, or the code of a failure. The form is that of internal/fastpath.
int native_direct_launch(uintptr_t context, uintptr_t kernel, uintptr_t stream, uint32_t grid, uint32_t block, uint32_t shared, int overlap,
                         uintptr_t arguments, size_t bytes);
uint64_t native_direct_stream_id(uintptr_t context, uintptr_t stream);

// Calls of the data path: addresses and handles travel as integers, so that they need no checks of pointers.
static inline native_status native_launch(uintptr_t table, uintptr_t device, uintptr_t kernel, uintptr_t stream, uint32_t grid, uint32_t block,
                                          uint32_t shared, uint32_t flags, uintptr_t arguments, size_t bytes) {
  const mscclpp_device_launch l = {sizeof l, kernel, stream, grid, block, shared, flags, (const void*)arguments, bytes};
  return ((const native_table*)table)->launch((mscclpp_device*)device, &l);
}

#define NATIVE_FORWARD(name, parameters, ...)                                   \
  static inline native_status native_##name parameters {                        \
    return ((const native_table*)t)->name((mscclpp_device*)d __VA_OPT__(, ) __VA_ARGS__); \
  }

NATIVE_FORWARD(copy, (uintptr_t t, uintptr_t d, uintptr_t s, uint64_t to, uint64_t from, uint64_t bytes), s, to, from, bytes)
NATIVE_FORWARD(set, (uintptr_t t, uintptr_t d, uintptr_t s, uint64_t to, uint8_t value, uint64_t bytes), s, to, value, bytes)
NATIVE_FORWARD(write_word, (uintptr_t t, uintptr_t d, uintptr_t s, uint64_t at, uint64_t value), s, at, value)
NATIVE_FORWARD(wait_word, (uintptr_t t, uintptr_t d, uintptr_t s, uint64_t at, uint64_t value), s, at, value)
NATIVE_FORWARD(stream_create, (uintptr_t t, uintptr_t d, int32_t priority, uintptr_t* out), priority, out)
NATIVE_FORWARD(stream_destroy, (uintptr_t t, uintptr_t d, uintptr_t s), s)
NATIVE_FORWARD(stream_query, (uintptr_t t, uintptr_t d, uintptr_t s), s)
NATIVE_FORWARD(stream_capturing, (uintptr_t t, uintptr_t d, uintptr_t s), s)
NATIVE_FORWARD(stream_sync, (uintptr_t t, uintptr_t d, uintptr_t s), s)
NATIVE_FORWARD(event_create, (uintptr_t t, uintptr_t d, int32_t timing, uintptr_t* out), timing, out)
NATIVE_FORWARD(event_destroy, (uintptr_t t, uintptr_t d, uintptr_t e), e)
NATIVE_FORWARD(event_record, (uintptr_t t, uintptr_t d, uintptr_t e, uintptr_t s), e, s)
NATIVE_FORWARD(event_record_each, (uintptr_t t, uintptr_t d, uintptr_t e, uintptr_t s), e, s)
NATIVE_FORWARD(event_record_all, (uintptr_t t, uintptr_t d, uintptr_t e), e)
NATIVE_FORWARD(event_wait, (uintptr_t t, uintptr_t d, uintptr_t e, uintptr_t s), e, s)
NATIVE_FORWARD(event_query, (uintptr_t t, uintptr_t d, uintptr_t e), e)
NATIVE_FORWARD(event_sync, (uintptr_t t, uintptr_t d, uintptr_t e), e)
NATIVE_FORWARD(event_elapsed, (uintptr_t t, uintptr_t d, uintptr_t a, uintptr_t b, uint64_t* out), a, b, out)
NATIVE_FORWARD(capture_begin, (uintptr_t t, uintptr_t d, uintptr_t s, int32_t mode), s, mode)
NATIVE_FORWARD(capture_end, (uintptr_t t, uintptr_t d, uintptr_t s, uintptr_t* graph, uint64_t* nodes), s, graph, nodes)
NATIVE_FORWARD(graph_launch, (uintptr_t t, uintptr_t d, uintptr_t g, uintptr_t s), g, s)
NATIVE_FORWARD(graph_destroy, (uintptr_t t, uintptr_t d, uintptr_t g), g)

NATIVE_FORWARD(close, (uintptr_t t, uintptr_t d))
NATIVE_FORWARD(info, (uintptr_t t, uintptr_t d, mscclpp_device_info* out), out)
NATIVE_FORWARD(memory_info, (uintptr_t t, uintptr_t d, uint64_t* available, uint64_t* total), available, total)
NATIVE_FORWARD(reaches, (uintptr_t t, uintptr_t d, int32_t other, int32_t* can), other, can)
NATIVE_FORWARD(bind, (uintptr_t t, uintptr_t d, uint64_t* saved), saved)
NATIVE_FORWARD(unbind, (uintptr_t t, uintptr_t d, const uint64_t* saved), saved)
NATIVE_FORWARD(alloc, (uintptr_t t, uintptr_t d, uint64_t bytes, mscclpp_device_memory* out), bytes, out)
NATIVE_FORWARD(alloc_data, (uintptr_t t, uintptr_t d, uint64_t bytes, mscclpp_device_memory* out), bytes, out)
NATIVE_FORWARD(free_memory, (uintptr_t t, uintptr_t d, const mscclpp_device_memory* m), m)
NATIVE_FORWARD(range_of, (uintptr_t t, uintptr_t d, uint64_t address, mscclpp_device_memory* out), address, out)
NATIVE_FORWARD(grant, (uintptr_t t, uintptr_t d, uintptr_t owner, const mscclpp_device_memory* m), (mscclpp_device*)owner, m)
NATIVE_FORWARD(upload, (uintptr_t t, uintptr_t d, uint64_t to, const void* from, uint64_t bytes), to, from, bytes)
NATIVE_FORWARD(download, (uintptr_t t, uintptr_t d, void* to, uint64_t from, uint64_t bytes), to, from, bytes)
NATIVE_FORWARD(fill, (uintptr_t t, uintptr_t d, uint64_t to, uint8_t value, uint64_t bytes), to, value, bytes)
NATIVE_FORWARD(export_share, (uintptr_t t, uintptr_t d, const mscclpp_device_memory* m, mscclpp_device_share* out), m, out)
NATIVE_FORWARD(import_share, (uintptr_t t, uintptr_t d, const mscclpp_device_share* s, uint64_t offset, uint64_t bytes, mscclpp_device_memory* out), s, offset, bytes, out)
NATIVE_FORWARD(reserve, (uintptr_t t, uintptr_t d, uint64_t bytes, uint64_t* address), bytes, address)
NATIVE_FORWARD(unreserve, (uintptr_t t, uintptr_t d, uint64_t address, uint64_t bytes), address, bytes)
NATIVE_FORWARD(place_share, (uintptr_t t, uintptr_t d, const mscclpp_device_share* s, uint64_t at, uint64_t bytes, mscclpp_device_memory* out), s, at, bytes, out)
NATIVE_FORWARD(place_own, (uintptr_t t, uintptr_t d, const mscclpp_device_memory* own, uint64_t at, uint64_t bytes, mscclpp_device_memory* out), own, at, bytes, out)
NATIVE_FORWARD(displace, (uintptr_t t, uintptr_t d, const mscclpp_device_memory* m), m)
NATIVE_FORWARD(unmap, (uintptr_t t, uintptr_t d, const mscclpp_device_memory* m), m)
NATIVE_FORWARD(host_alloc, (uintptr_t t, uintptr_t d, uint64_t bytes, uint64_t* host, uint64_t* address), bytes, host, address)
NATIVE_FORWARD(host_free, (uintptr_t t, uintptr_t d, uint64_t host), host)
NATIVE_FORWARD(host_register, (uintptr_t t, uintptr_t d, uint64_t host, uint64_t bytes, int32_t fd, uint64_t offset, uint64_t* address), host, bytes, fd, offset, address)
NATIVE_FORWARD(host_unregister, (uintptr_t t, uintptr_t d, uint64_t host), host)
NATIVE_FORWARD(view_open, (uintptr_t t, uintptr_t d, const mscclpp_device_memory* m, uint64_t* view, uint64_t* host), m, view, host)
NATIVE_FORWARD(flush_writes, (uintptr_t t, uintptr_t d))
NATIVE_FORWARD(module_load, (uintptr_t t, uintptr_t d, const void* image, uint64_t bytes, uintptr_t* out, char* log, uint64_t room), image, bytes, out, log, room)
NATIVE_FORWARD(module_unload, (uintptr_t t, uintptr_t d, uintptr_t m), m)
NATIVE_FORWARD(kernel_find, (uintptr_t t, uintptr_t d, uintptr_t m, const char* name, uintptr_t* out, mscclpp_device_kernel_info* info), m, name, out, info)
NATIVE_FORWARD(kernel_allow, (uintptr_t t, uintptr_t d, uintptr_t k, uint32_t shared), k, shared)
NATIVE_FORWARD(kernel_fit, (uintptr_t t, uintptr_t d, uintptr_t k, uint32_t block, uint32_t shared, uint32_t* blocks), k, block, shared, blocks)

NATIVE_FORWARD(link, (uintptr_t t, uintptr_t d, uint32_t index, mscclpp_device_link* out), index, out)

NATIVE_FORWARD(multicast_ready, (uintptr_t t, uintptr_t d))
NATIVE_FORWARD(multicast_create, (uintptr_t t, uintptr_t d, uint32_t members, uint64_t bytes, mscclpp_device_multicast* out), members, bytes, out)
NATIVE_FORWARD(multicast_share, (uintptr_t t, uintptr_t d, const mscclpp_device_multicast* m, mscclpp_device_share* out), m, out)
NATIVE_FORWARD(multicast_open, (uintptr_t t, uintptr_t d, const mscclpp_device_share* s, uint32_t members, uint64_t bytes, mscclpp_device_multicast* out), s, members, bytes, out)
NATIVE_FORWARD(multicast_add, (uintptr_t t, uintptr_t d, const mscclpp_device_multicast* m), m)
NATIVE_FORWARD(multicast_bind, (uintptr_t t, uintptr_t d, const mscclpp_device_multicast* m, const mscclpp_device_memory* own, uint64_t offset, uint64_t place, uint64_t bytes), m, own, offset, place, bytes)
NATIVE_FORWARD(multicast_unbind, (uintptr_t t, uintptr_t d, const mscclpp_device_multicast* m, uint64_t place, uint64_t bytes), m, place, bytes)
NATIVE_FORWARD(multicast_map, (uintptr_t t, uintptr_t d, mscclpp_device_multicast* m), m)
NATIVE_FORWARD(multicast_unmap, (uintptr_t t, uintptr_t d, const mscclpp_device_multicast* m), m)
NATIVE_FORWARD(multicast_close, (uintptr_t t, uintptr_t d, const mscclpp_device_multicast* m), m)

static inline uint32_t native_stream_processors(uintptr_t t, uintptr_t d, uintptr_t s) { return ((const native_table*)t)->stream_processors((mscclpp_device*)d, s); }
static inline uint64_t native_stream_id(uintptr_t t, uintptr_t d, uintptr_t s) { return ((const native_table*)t)->stream_id((mscclpp_device*)d, s); }

// Those that take no device.
static inline native_status native_start(uintptr_t t) { return ((const native_table*)t)->start(); }
static inline native_status native_count(uintptr_t t, int32_t* n) { return ((const native_table*)t)->count(n); }
static inline native_status native_open(uintptr_t t, int32_t index, const char* options, uintptr_t* out) {
  mscclpp_device* made = NULL;
  const native_status st = ((const native_table*)t)->open(index, options, &made);
  *out = (uintptr_t)made;
  return st;
}
static inline native_status native_view_store(uintptr_t t, uint64_t view, uint64_t host, uint64_t value) {
  return ((const native_table*)t)->view_store(view, host, value);
}
static inline native_status native_view_settle(uintptr_t t, uint64_t view, uint64_t host) { return ((const native_table*)t)->view_settle(view, host); }
static inline native_status native_view_close(uintptr_t t, uint64_t view) { return ((const native_table*)t)->view_close(view); }
static inline void native_describe(uintptr_t t, int32_t code, mscclpp_device_error* e) { ((const native_table*)t)->describe(code, e); }

#endif
