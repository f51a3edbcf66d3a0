// The C side of NVIDIA GPUs: opening the driver's library, and its functions in
// the portions in which Go needs them. A call from Go sets the context, does its
// work and restores what it found, so that it does not matter on which thread a
// goroutine happens to run, nor which context the application uses there.
#ifndef MSCCLPP_CUDA_SHIM_H_
#define MSCCLPP_CUDA_SHIM_H_

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

// How a portion ended: the driver's answer, and which function gave it.
typedef struct {
  int code;
  const char* call;
} cuda_status;

// A device's primary context, retained. Handles travel as integers, so that calls
// from Go need no pointer checks.
typedef struct {
  const cuda_api* api;
  CUdevice device;
  CUcontext context;
  CUstream aux;  // for zeroing and for copies that wait
} cuda_context;

typedef struct {
  char name[128];
  char uuid[16];
  char pci[32];
  int major, minor, sms;
  int shared_optin;   // most dynamic shared memory of a block, bytes
  int vmm, posix_fd, rdma_vmm, fabric, dma_buf, host_register, memops64;
  int rdma_flush, rdma_order;  // how writes of adapters become visible: CU_FLUSH_…, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_…
  int least_priority, greatest_priority;
} cuda_facts;

// Memory behind a handle, mapped.
typedef struct {
  uint64_t address, bytes, handle;
} cuda_block;

// The driver's attributes of an address.
typedef struct {
  uint64_t start, bytes;
  int host, ordinal, legacy, handle_types, vmm;
} cuda_range;

typedef struct {
  int threads, shared, dynamic, local, registers;
} cuda_kernel_facts;

// Opens the library and looks up everything. On failure returns NULL, and the
// reason in why.
cuda_api* cuda_open(const char* path, char* why, size_t bytes);
// Writes the names of the functions that are looked up; returns how many there are.
size_t cuda_symbol_names(const char** names, size_t most);

cuda_status cuda_init(const cuda_api* api, int* version, int* count);
void cuda_describe(const cuda_api* api, int code, char* name, char* text, size_t bytes);

cuda_status cuda_retain(const cuda_api* api, int ordinal, cuda_context** made, cuda_facts* facts);
cuda_status cuda_release(cuda_context* c);
// Makes a context that of the thread, and returns which was.
uintptr_t cuda_swap_current(const cuda_api* api, uintptr_t context);
cuda_status cuda_mem_info(const cuda_context* c, uint64_t* available, uint64_t* total);
cuda_status cuda_can_access(const cuda_context* c, int peer, int* can);
cuda_status cuda_enable_peer(const cuda_context* c, const cuda_context* peer);

cuda_status cuda_create(const cuda_context* c, uint64_t bytes, int handle_types, int rdma, cuda_block* made);
cuda_status cuda_import(const cuda_context* c, int type, int fd, const void* blob, uint64_t bytes, cuda_block* made);
cuda_status cuda_destroy(const cuda_context* c, const cuda_block* block);
cuda_status cuda_grant(const cuda_context* c, uint64_t address, uint64_t bytes);
cuda_status cuda_export_fd(const cuda_context* c, uint64_t handle, int* fd);
cuda_status cuda_export_fabric(const cuda_context* c, uint64_t handle, void* blob);
int cuda_flush_writes(uintptr_t context);
cuda_status cuda_export_dma_buf(const cuda_context* c, uint64_t address, uint64_t bytes, int* fd);

cuda_status cuda_alloc(const cuda_context* c, uint64_t bytes, uint64_t* address);
cuda_status cuda_free(const cuda_context* c, uint64_t address);
cuda_status cuda_ipc_get(const cuda_context* c, uint64_t address, void* blob);
cuda_status cuda_ipc_open(const cuda_context* c, const void* blob, uint64_t* address);
cuda_status cuda_ipc_close(const cuda_context* c, uint64_t address);

cuda_status cuda_host_alloc(const cuda_context* c, uint64_t bytes, uint64_t* host, uint64_t* address);
cuda_status cuda_host_free(const cuda_context* c, uint64_t host);
cuda_status cuda_register(const cuda_context* c, uint64_t host, uint64_t bytes, uint64_t* address);
cuda_status cuda_unregister(const cuda_context* c, uint64_t host);

cuda_status cuda_range_of(const cuda_context* c, uint64_t address, cuda_range* range);
cuda_status cuda_retain_handle(const cuda_context* c, uint64_t address, uint64_t* handle);
cuda_status cuda_release_handle(const cuda_context* c, uint64_t handle);

cuda_status cuda_reserve(const cuda_context* c, uint64_t bytes, uint64_t alignment, uint64_t* address);
cuda_status cuda_unreserve(const cuda_context* c, uint64_t address, uint64_t bytes);
cuda_status cuda_open_handle(const cuda_context* c, int type, int fd, const void* blob, uint64_t* handle);
cuda_status cuda_place(const cuda_context* c, uint64_t handle, uint64_t address, uint64_t bytes);
cuda_status cuda_displace(const cuda_context* c, uint64_t address, uint64_t bytes);
cuda_status cuda_unit(const cuda_context* c, uint64_t* unit);

cuda_status cuda_upload(const cuda_context* c, uint64_t to, const void* from, uint64_t bytes);
cuda_status cuda_download(const cuda_context* c, void* to, uint64_t from, uint64_t bytes);
cuda_status cuda_fill(const cuda_context* c, uint64_t to, int value, uint64_t bytes);

cuda_status cuda_module_load(const cuda_context* c, const void* image, size_t bytes, uintptr_t* module, char* log, size_t log_bytes);
cuda_status cuda_module_unload(const cuda_context* c, uintptr_t module);
cuda_status cuda_kernel(const cuda_context* c, uintptr_t module, const char* name, uintptr_t* function, cuda_kernel_facts* facts);
cuda_status cuda_kernel_shared(const cuda_context* c, uintptr_t function, int bytes);
cuda_status cuda_occupancy(const cuda_context* c, uintptr_t function, int block, uint64_t shared, int* blocks);

cuda_status cuda_stream_create(const cuda_context* c, int priority, uintptr_t* stream);
cuda_status cuda_stream_destroy(const cuda_context* c, uintptr_t stream);
cuda_status cuda_stream_sync(const cuda_context* c, uintptr_t stream);
cuda_status cuda_capture_begin(const cuda_context* c, uintptr_t stream, int mode);
cuda_status cuda_capture_end(const cuda_context* c, uintptr_t stream, uintptr_t* exec, uint64_t* nodes);
cuda_status cuda_graph_destroy(const cuda_context* c, uintptr_t exec);
cuda_status cuda_event_create(const cuda_context* c, int timing, uintptr_t* event);
cuda_status cuda_event_destroy(const cuda_context* c, uintptr_t event);
cuda_status cuda_event_sync(const cuda_context* c, uintptr_t event);
cuda_status cuda_event_elapsed(const cuda_context* c, uintptr_t start, uintptr_t end, float* milliseconds);

// Functions that may be called often take the cuda_context as an integer, too, and answer
// with the code alone.
int cuda_launch(uintptr_t context, uintptr_t function, uintptr_t stream, uint32_t grid, uint32_t block, uint32_t shared,
                int overlap, uintptr_t arguments, size_t bytes);
int cuda_copy(uintptr_t context, uintptr_t stream, uint64_t to, uint64_t from, uint64_t bytes);
int cuda_memset(uintptr_t context, uintptr_t stream, uint64_t to, int value, uint64_t bytes);
int cuda_write_value(uintptr_t context, uintptr_t stream, uint64_t address, uint64_t value);
int cuda_wait_value(uintptr_t context, uintptr_t stream, uint64_t address, uint64_t value);
int cuda_event_record(uintptr_t context, uintptr_t event, uintptr_t stream);
int cuda_event_record_all(uintptr_t context, uintptr_t event);
int cuda_event_wait(uintptr_t context, uintptr_t event, uintptr_t stream);
int cuda_event_query(uintptr_t context, uintptr_t event);
int cuda_graph_launch(uintptr_t context, uintptr_t exec, uintptr_t stream);

// CUDA_CAPTURING is the answer of cuda_stream_query for a stream that records.
enum { CUDA_CAPTURING = -1 };
int cuda_stream_query(uintptr_t context, uintptr_t stream);
int cuda_stream_capturing(uintptr_t context, uintptr_t stream);
uint64_t cuda_stream_id(uintptr_t context, uintptr_t stream);

#pragma GCC visibility pop

#endif
