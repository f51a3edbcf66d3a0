// The C side of AMD's GPUs: libamdhip64, which is opened at run time, behind a table of mscclpp/device_backend.h. Each entry makes
// its device the current one of the thread, does its work and restores what it found.
#ifndef MSCCLPP_HIP_SHIM_H_
#define MSCCLPP_HIP_SHIM_H_

#include "../native/include/mscclpp/device_backend.h"
#include "types.h"

// Names of this package do not meet those of the application.
#pragma GCC visibility push(hidden)

// The library's functions.
typedef struct {
  void* library;
  const char* (*hipGetErrorName)(hipError_t);
  const char* (*hipGetErrorString)(hipError_t);
#define HIP_SYMBOL(name, arguments) hipError_t(*name) arguments;
#define HIP_LATER_SYMBOL HIP_SYMBOL
#include "symbols.h"
#undef HIP_LATER_SYMBOL
#undef HIP_SYMBOL
  int version;  // 10000000 * major + 100000 * minor + patch
  // hsa_amd_portable_export_dmabuf of libhsa-runtime64, for libraries before 7.0; NULL: there is none.
  int (*export_dmabuf)(const void* address, size_t bytes, int* fd, uint64_t* offset);
} hip_api;

// How an entry ended: the library's answer, and which function gave it. Codes above 0 are the library's, or those of words.c.
typedef mscclpp_device_status hip_status;

// The words for what the library's answers alone do not say, as codes: one of these times HIP_HINT, plus the answer.
enum {
  HIP_HINT = 1 << 16,
  HIP_SAYS_NO_DRIVER = 1,  // the reason is that of hip_reason
  HIP_SAYS_OPTION,         // of open
  HIP_SAYS_IMAGE,          // of hipModuleLoadData
  HIP_SAYS_ACCESS,         // the GPUs do not reach each other
  HIP_SAYS_UNCACHED,       // memory that peers may write
  HIP_SAYS_NO_SHARE,       // of the kind that is asked for
  HIP_SAYS_LEGACY,         // a share of another form
  HIP_SAYS_OWN,            // it is of this process
  HIP_SAYS_RANGE,          // it is smaller
  HIP_SAYS_WHOLE,          // a part of memory behind a handle
  HIP_SAYS_NO_DMA_BUF,
  HIP_SAYS_PAGES,          // a dma-buf has them whole
  HIP_SAYS_NO_FLUSH,
  HIP_SAYS_NO_WORDS,       // the kernels that store words and wait for them
  HIP_SAYS_NO_GRAPH_TIMES,
  HIP_SAYS_SHARED          // more memory of a block than there is
};

typedef struct {
  char name[128], arch[64], pci[32];
  uint8_t uuid[16];
  int major, minor, cus, shared, wave, vmm;
  int least_priority, greatest_priority;
  volatile uint32_t* flush;  // the register that flushes writes of adapters; NULL: there is none
} hip_facts;

typedef struct mscclpp_device {
  const hip_api* api;
  int index;
  hip_facts facts;
  hipStream_t aux;        // for zeroing and for copies that wait
  hipModule_t words;      // the image of the kernels that store words, and wait for them
  hipFunction_t word;     // the one that stores
  hipFunction_t wait;     // the one that waits
  int vmm;                // option: memory behind descriptors
} hip_device;

// Memory behind a handle, mapped.
typedef struct {
  uint64_t address, bytes;
  hipMemGenericAllocationHandle_t handle;
} hip_block;

// Indexes of the kinds of shares.
enum { HIP_SHARE_LEGACY, HIP_SHARE_VMM, HIP_SHARE_DMA_BUF, HIP_SHARES };

// The handle of memory that is none of ours behind a handle.
#define HIP_NO_HANDLE 0ull

// IPC maps whole allocations, and small ones share a fragment of this size with others.
#define HIP_FRAGMENT (2ull << 20)

// The table.
extern const mscclpp_device_backend hip_table;

// ---- What package hip calls beside the table ----

// Chooses the library for start and count. One that is not open yet is opened by start. runtime is libhsa-runtime64, or "".
void hip_choose(const char* path, const char* runtime);
// Says why start did not open it.
void hip_reason(char* text, size_t bytes);
void hip_library_words(int answer, mscclpp_device_error* e);
// Writes the names of the functions that are looked up; returns how many there are.
size_t hip_symbol_names(const char** names, size_t most);
// The image that stores words and waits for them, for an architecture. It stays.
void hip_word_image(const char* arch, const void* image, size_t bytes);
const void* hip_find_word_image(const char* arch, size_t* bytes);
// The thread's device.
int hip_current_device(uintptr_t device);
// Spells an architecture without its features: "gfx942:sramecc+:xnack-" is "gfx942".
void hip_base_arch(const char* name, char* base, size_t bytes);

// A share of the older kind: version, process, the library's handle of an allocation, and where in it the memory lies.
enum { HIP_LEGACY_VERSION = 1, HIP_LEGACY_BYTES = 1 + 16 + sizeof(hipIpcMemHandle_t) + 8 + 8 };

// ---- Entries of the table ----

#define HIP_ENTRY(name, ...) hip_status hip_##name(__VA_ARGS__)
typedef mscclpp_device_handle hip_handle;

HIP_ENTRY(start, void);
HIP_ENTRY(count, int32_t* devices);
HIP_ENTRY(open, int32_t index, const char* options, hip_device** made);
HIP_ENTRY(close, hip_device* d);
HIP_ENTRY(info, hip_device* d, mscclpp_device_info* info);
HIP_ENTRY(memory_info, hip_device* d, uint64_t* available, uint64_t* total);
HIP_ENTRY(reaches, hip_device* d, int32_t other, int32_t* can);
HIP_ENTRY(bind, hip_device* d, uint64_t saved[4]);
HIP_ENTRY(unbind, hip_device* d, const uint64_t saved[4]);
HIP_ENTRY(alloc, hip_device* d, uint64_t bytes, mscclpp_device_memory* m);
HIP_ENTRY(alloc_data, hip_device* d, uint64_t bytes, mscclpp_device_memory* m);
HIP_ENTRY(free_memory, hip_device* d, const mscclpp_device_memory* m);
HIP_ENTRY(range_of, hip_device* d, uint64_t address, mscclpp_device_memory* m);
HIP_ENTRY(grant, hip_device* d, hip_device* owner, const mscclpp_device_memory* m);
HIP_ENTRY(upload, hip_device* d, uint64_t to, const void* from, uint64_t bytes);
HIP_ENTRY(download, hip_device* d, void* to, uint64_t from, uint64_t bytes);
HIP_ENTRY(fill, hip_device* d, uint64_t to, uint8_t value, uint64_t bytes);
HIP_ENTRY(export_share, hip_device* d, const mscclpp_device_memory* m, mscclpp_device_share* share);
HIP_ENTRY(import_share, hip_device* d, const mscclpp_device_share* share, uint64_t offset, uint64_t bytes, mscclpp_device_memory* m);
HIP_ENTRY(unmap, hip_device* d, const mscclpp_device_memory* m);
HIP_ENTRY(host_alloc, hip_device* d, uint64_t bytes, uint64_t* host, uint64_t* address);
HIP_ENTRY(host_free, hip_device* d, uint64_t host);
HIP_ENTRY(host_register, hip_device* d, uint64_t host, uint64_t bytes, int32_t fd, uint64_t offset, uint64_t* address);
HIP_ENTRY(host_unregister, hip_device* d, uint64_t host);
HIP_ENTRY(flush_writes, hip_device* d);
HIP_ENTRY(module_load, hip_device* d, const void* image, uint64_t bytes, hip_handle* module, char* log, uint64_t log_bytes);
HIP_ENTRY(module_unload, hip_device* d, hip_handle module);
HIP_ENTRY(kernel_find, hip_device* d, hip_handle module, const char* name, hip_handle* kernel, mscclpp_device_kernel_info* f);
HIP_ENTRY(kernel_allow, hip_device* d, hip_handle kernel, uint32_t shared);
HIP_ENTRY(kernel_fit, hip_device* d, hip_handle kernel, uint32_t block, uint32_t shared, uint32_t* blocks);
HIP_ENTRY(launch, hip_device* d, const mscclpp_device_launch* l);
HIP_ENTRY(stream_create, hip_device* d, int32_t priority, hip_handle* stream);
HIP_ENTRY(stream_destroy, hip_device* d, hip_handle stream);
HIP_ENTRY(stream_query, hip_device* d, hip_handle stream);
HIP_ENTRY(stream_capturing, hip_device* d, hip_handle stream);
HIP_ENTRY(stream_sync, hip_device* d, hip_handle stream);
HIP_ENTRY(event_create, hip_device* d, int32_t timing, hip_handle* event);
HIP_ENTRY(event_destroy, hip_device* d, hip_handle event);
HIP_ENTRY(event_record, hip_device* d, hip_handle event, hip_handle stream);
HIP_ENTRY(event_record_each, hip_device* d, hip_handle event, hip_handle stream);
HIP_ENTRY(event_wait, hip_device* d, hip_handle event, hip_handle stream);
HIP_ENTRY(event_query, hip_device* d, hip_handle event);
HIP_ENTRY(event_sync, hip_device* d, hip_handle event);
HIP_ENTRY(event_elapsed, hip_device* d, hip_handle start, hip_handle end, uint64_t* nanoseconds);
HIP_ENTRY(capture_begin, hip_device* d, hip_handle stream, int32_t mode);
HIP_ENTRY(capture_end, hip_device* d, hip_handle stream, hip_handle* graph, uint64_t* nodes);
HIP_ENTRY(graph_launch, hip_device* d, hip_handle graph, hip_handle stream);
HIP_ENTRY(graph_destroy, hip_device* d, hip_handle graph);
HIP_ENTRY(copy, hip_device* d, hip_handle stream, uint64_t to, uint64_t from, uint64_t bytes);
HIP_ENTRY(set, hip_device* d, hip_handle stream, uint64_t to, uint8_t value, uint64_t bytes);
HIP_ENTRY(write_word, hip_device* d, hip_handle stream, uint64_t address, uint64_t value);
HIP_ENTRY(wait_word, hip_device* d, hip_handle stream, uint64_t address, uint64_t value);
void hip_describe(int32_t code, mscclpp_device_error* e);

#pragma GCC visibility pop

#endif
