// The C side of NVIDIA GPUs: the driver's library, which is opened at run time, behind a table of mscclpp/device_backend.h. Each
// entry sets the context, does its work and restores what it found, so that it does not matter on which thread it is called,
// nor which context the application uses there.
#ifndef MSCCLPP_CUDA_SHIM_H_
#define MSCCLPP_CUDA_SHIM_H_

#include "../native/include/mscclpp/device_backend.h"
#include "types.h"

// Names of this package do not meet those of the application.
#pragma GCC visibility push(hidden)

// The driver's functions.
typedef struct {
  void* library;
#define CUDA_SYMBOL(name, arguments) CUresult(*name) arguments;
#define CUDA_LATER_SYMBOL CUDA_SYMBOL
#include "symbols.h"
#undef CUDA_LATER_SYMBOL
#undef CUDA_SYMBOL
} cuda_api;

// How an entry ended: the driver's answer, and which function gave it. Codes above 0 are the driver's, or those of words.c.
typedef mscclpp_device_status cuda_status;

// The words for what the driver's answers alone do not say, as codes: one of these times CUDA_HINT, plus the answer.
enum {
  CUDA_HINT = 1 << 16,
  CUDA_WORDS_WHOLE = 1,    // an answer of cuMemMap
  CUDA_WORDS_ACCESS,       // of cuMemSetAccess
  CUDA_WORDS_IMAGE,        // of cuModuleLoadDataEx
  CUDA_WORDS_NO_DRIVER,    // the reason is that of cuda_reason
  CUDA_WORDS_OPTION,       // of open
  CUDA_WORDS_OLD,          // the GPU
  CUDA_WORDS_NO_REGISTER,  // of memory of the host
  CUDA_WORDS_NO_FLUSH,
  CUDA_WORDS_NO_MARK,
  CUDA_WORDS_NO_SHARE,     // of the kind that is asked for
  CUDA_WORDS_PAGES,        // a dma-buf has them whole
  CUDA_WORDS_FABRIC,       // a share that is none of the fabric's
  CUDA_WORDS_LEGACY,       // a share of the older kind, of another form
  CUDA_WORDS_OWN,          // it is of this process
  CUDA_WORDS_RANGE,        // it is smaller
  CUDA_WORDS_SWITCH,       // an answer of a step of multicast
  CUDA_WORDS_NVLS_OFF,     // by NCCL_NVLS_ENABLE, or MSCCLPP_NVLS
  CUDA_WORDS_NO_MULTICAST,
  CUDA_WORDS_MULTICAST_MEMORY,
  CUDA_WORDS_GDRCOPY,      // plus one of errno
  CUDA_WORDS_NO_GDRCOPY,   // the reason is that of gdrcopy_reason
  CUDA_WORDS_GDRCOPY_OFF
};

typedef struct {
  char name[128];
  char uuid[16];
  char pci[32];
  int major, minor, sms;
  int shared_optin;   // most dynamic shared memory of a block, bytes
  int multicast, vmm, posix_fd, rdma_vmm, fabric, dma_buf, host_register, memops64;
  int rdma_flush, rdma_order;  // how writes of adapters become visible: CU_FLUSH_…, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_…
  int least_priority, greatest_priority;
  uint64_t unit;  // of memory behind handles
} cuda_facts;

// A device: its primary context, retained.
typedef struct mscclpp_device {
  const cuda_api* api;
  CUdevice device;
  CUcontext context;
  CUstream aux;  // for zeroing and for copies that wait
  int index;
  cuda_facts facts;
  int legacy, fabric, without_gdrcopy;  // options
  int no_fabric;  // not 0: the driver refused to make memory for the fabric
} cuda_context;

// Memory behind a handle, mapped.
typedef struct {
  uint64_t address, bytes, handle;
} cuda_block;

// Indexes of the kinds of shares.
enum { CUDA_SHARE_VMM, CUDA_SHARE_FABRIC, CUDA_SHARE_LEGACY, CUDA_SHARE_DMA_BUF, CUDA_SHARES };

// Handles of memory that is none of ours behind a handle: from the driver's older allocator, or the application's behind one.
#define CUDA_NO_HANDLE 0ull
#define CUDA_FOREIGN_HANDLE ~0ull

// The table.
extern const mscclpp_device_backend cuda_table;

// ---- What package cuda calls beside the table ----

// Chooses the driver for start and count. One that is not open yet is opened by start.
void cuda_choose(const char* path);
// Says why start did not open it.
void cuda_reason(char* text, size_t bytes);
// Has the driver's words for an answer.
void cuda_driver_words(int answer, mscclpp_device_error* e);
// The highest version of CUDA that the driver supports, of the one at path; 0: it is not open.
int cuda_version(const char* path);
// Writes the names of the functions that are looked up; returns how many there are.
size_t cuda_symbol_names(const char** names, size_t most);
// Whether the driver was asked for memory of the fabric, and did not make it.
int cuda_fabric_refused(const cuda_context* c);
// Makes a context that of the thread, and returns which was.
uintptr_t cuda_swap_current(uintptr_t device, uintptr_t context);
void cuda_archs(int major, int minor, char* text, size_t bytes);
// Spells an address as the kernel does: lower case, and a domain of four digits unless it needs more.
void cuda_bus_address(char* text);

// A share of the older kind: version, process, the driver's handle of an allocation, and where in it the memory lies.
enum { CUDA_LEGACY_VERSION = 1, CUDA_LEGACY_BYTES = 1 + 16 + sizeof(CUipcMemHandle) + 8 + 8 };
int cuda_parse_legacy(const uint8_t* blob, uint32_t bytes, CUipcMemHandle* handle, uint64_t* start, uint64_t* size);

// ---- Entries of the table ----

#define CUDA_ENTRY(name, ...) cuda_status cuda_##name(__VA_ARGS__)
typedef mscclpp_device_handle cuda_handle;

CUDA_ENTRY(start, void);
CUDA_ENTRY(count, int32_t* devices);
CUDA_ENTRY(open, int32_t index, const char* options, cuda_context** made);
CUDA_ENTRY(close, cuda_context* c);
CUDA_ENTRY(info, cuda_context* c, mscclpp_device_info* info);
CUDA_ENTRY(memory_info, cuda_context* c, uint64_t* available, uint64_t* total);
CUDA_ENTRY(reaches, cuda_context* c, int32_t other, int32_t* can);
CUDA_ENTRY(bind, cuda_context* c, uint64_t saved[4]);
CUDA_ENTRY(unbind, cuda_context* c, const uint64_t saved[4]);
CUDA_ENTRY(alloc, cuda_context* c, uint64_t bytes, mscclpp_device_memory* m);
CUDA_ENTRY(free_memory, cuda_context* c, const mscclpp_device_memory* m);
CUDA_ENTRY(range_of, cuda_context* c, uint64_t address, mscclpp_device_memory* m);
CUDA_ENTRY(grant, cuda_context* c, cuda_context* owner, const mscclpp_device_memory* m);
CUDA_ENTRY(upload, cuda_context* c, uint64_t to, const void* from, uint64_t bytes);
CUDA_ENTRY(download, cuda_context* c, void* to, uint64_t from, uint64_t bytes);
CUDA_ENTRY(fill, cuda_context* c, uint64_t to, uint8_t value, uint64_t bytes);
CUDA_ENTRY(export_share, cuda_context* c, const mscclpp_device_memory* m, mscclpp_device_share* share);
CUDA_ENTRY(import_share, cuda_context* c, const mscclpp_device_share* share, uint64_t offset, uint64_t bytes, mscclpp_device_memory* m);
CUDA_ENTRY(unmap, cuda_context* c, const mscclpp_device_memory* m);
CUDA_ENTRY(reserve, cuda_context* c, uint64_t bytes, uint64_t* address);
CUDA_ENTRY(unreserve, cuda_context* c, uint64_t address, uint64_t bytes);
CUDA_ENTRY(place_share, cuda_context* c, const mscclpp_device_share* share, uint64_t address, uint64_t bytes, mscclpp_device_memory* m);
CUDA_ENTRY(place_own, cuda_context* c, const mscclpp_device_memory* own, uint64_t address, uint64_t bytes, mscclpp_device_memory* m);
CUDA_ENTRY(displace, cuda_context* c, const mscclpp_device_memory* m);
CUDA_ENTRY(multicast_ready, cuda_context* c);
CUDA_ENTRY(multicast_create, cuda_context* c, uint32_t members, uint64_t bytes, mscclpp_device_multicast* m);
CUDA_ENTRY(multicast_share, cuda_context* c, const mscclpp_device_multicast* m, mscclpp_device_share* share);
CUDA_ENTRY(multicast_open, cuda_context* c, const mscclpp_device_share* share, uint32_t members, uint64_t bytes, mscclpp_device_multicast* m);
CUDA_ENTRY(multicast_add, cuda_context* c, const mscclpp_device_multicast* m);
CUDA_ENTRY(multicast_bind, cuda_context* c, const mscclpp_device_multicast* m, const mscclpp_device_memory* own, uint64_t offset, uint64_t place, uint64_t bytes);
CUDA_ENTRY(multicast_unbind, cuda_context* c, const mscclpp_device_multicast* m, uint64_t place, uint64_t bytes);
CUDA_ENTRY(multicast_map, cuda_context* c, mscclpp_device_multicast* m);
CUDA_ENTRY(multicast_unmap, cuda_context* c, const mscclpp_device_multicast* m);
CUDA_ENTRY(multicast_close, cuda_context* c, const mscclpp_device_multicast* m);
CUDA_ENTRY(host_alloc, cuda_context* c, uint64_t bytes, uint64_t* host, uint64_t* address);
CUDA_ENTRY(host_free, cuda_context* c, uint64_t host);
CUDA_ENTRY(host_register, cuda_context* c, uint64_t host, uint64_t bytes, int32_t fd, uint64_t offset, uint64_t* address);
CUDA_ENTRY(host_unregister, cuda_context* c, uint64_t host);
CUDA_ENTRY(view_open, cuda_context* c, const mscclpp_device_memory* m, uint64_t* view, uint64_t* host);
CUDA_ENTRY(view_store, uint64_t view, uint64_t host, uint64_t value);
CUDA_ENTRY(view_settle, uint64_t view, uint64_t host);
CUDA_ENTRY(view_close, uint64_t view);
CUDA_ENTRY(flush_writes, cuda_context* c);
CUDA_ENTRY(module_load, cuda_context* c, const void* image, uint64_t bytes, cuda_handle* module, char* log, uint64_t log_bytes);
CUDA_ENTRY(module_unload, cuda_context* c, cuda_handle module);
CUDA_ENTRY(kernel_find, cuda_context* c, cuda_handle module, const char* name, cuda_handle* kernel, mscclpp_device_kernel_info* f);
CUDA_ENTRY(kernel_allow, cuda_context* c, cuda_handle kernel, uint32_t shared);
CUDA_ENTRY(kernel_fit, cuda_context* c, cuda_handle kernel, uint32_t block, uint32_t shared, uint32_t* blocks);
CUDA_ENTRY(launch, cuda_context* c, const mscclpp_device_launch* l);
CUDA_ENTRY(stream_create, cuda_context* c, int32_t priority, cuda_handle* stream);
CUDA_ENTRY(stream_destroy, cuda_context* c, cuda_handle stream);
CUDA_ENTRY(stream_query, cuda_context* c, cuda_handle stream);
CUDA_ENTRY(stream_capturing, cuda_context* c, cuda_handle stream);
CUDA_ENTRY(stream_sync, cuda_context* c, cuda_handle stream);
CUDA_ENTRY(event_create, cuda_context* c, int32_t timing, cuda_handle* event);
CUDA_ENTRY(event_destroy, cuda_context* c, cuda_handle event);
CUDA_ENTRY(event_record, cuda_context* c, cuda_handle event, cuda_handle stream);
CUDA_ENTRY(event_record_all, cuda_context* c, cuda_handle event);
CUDA_ENTRY(event_record_each, cuda_context* c, cuda_handle event, cuda_handle stream);
CUDA_ENTRY(event_wait, cuda_context* c, cuda_handle event, cuda_handle stream);
CUDA_ENTRY(event_query, cuda_context* c, cuda_handle event);
CUDA_ENTRY(event_sync, cuda_context* c, cuda_handle event);
CUDA_ENTRY(event_elapsed, cuda_context* c, cuda_handle start, cuda_handle end, uint64_t* nanoseconds);
CUDA_ENTRY(capture_begin, cuda_context* c, cuda_handle stream, int32_t mode);
CUDA_ENTRY(capture_end, cuda_context* c, cuda_handle stream, cuda_handle* graph, uint64_t* nodes);
CUDA_ENTRY(graph_launch, cuda_context* c, cuda_handle graph, cuda_handle stream);
CUDA_ENTRY(graph_destroy, cuda_context* c, cuda_handle graph);
CUDA_ENTRY(copy, cuda_context* c, cuda_handle stream, uint64_t to, uint64_t from, uint64_t bytes);
CUDA_ENTRY(set, cuda_context* c, cuda_handle stream, uint64_t to, uint8_t value, uint64_t bytes);
CUDA_ENTRY(write_word, cuda_context* c, cuda_handle stream, uint64_t address, uint64_t value);
CUDA_ENTRY(wait_word, cuda_context* c, cuda_handle stream, uint64_t address, uint64_t value);
void cuda_describe(int32_t code, mscclpp_device_error* e);
uint64_t cuda_stream_id(cuda_context* c, cuda_handle stream);
uint32_t cuda_stream_processors(cuda_context* c, cuda_handle stream);

#pragma GCC visibility pop

#endif
