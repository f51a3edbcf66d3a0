// The table by which a maker of devices brings one to mscclpp-go: C functions, in a shared object that a rank loads.
//
// A device back end exports one function, MSCCLPP_DEVICE_BACKEND_SYMBOL, which returns its table. The rank reads the table
// once, and calls its functions for as long as the process lives: the object is never unloaded. It runs inside the rank, with
// all rights of the rank.
//
// Rules that hold for every entry, unless its comment says otherwise:
//
//   Sizes        are bytes. Addresses are those that kernels of the device use, and never 0.
//   Structures   begin with their size, which the caller sets. A back end writes no more than that, and takes what lies beyond
//                it for 0. So structures grow at their end, and so does the table.
//   Threads      Entries are called from any thread, by several at once, also for the same device. No entry may rely on
//                anything that belongs to a thread, and each leaves what it finds there as it was: the device that is current,
//                the signal mask, errno excepted.
//   Blocking     An entry returns without waiting for work of the device. Those marked [waits] may wait for it, and those
//                marked [slow] may take milliseconds. No entry waits for another rank.
//   Capture      An entry that is called while any stream is captured does not disturb the capture. Those marked [recorded]
//                become part of it, if their stream is the one that is captured.
//   Signals      A back end blocks all signals in threads of its own, and installs no handlers.
//   Fork         Nothing is called in a child of fork.
//   Output       Nothing is written to standard output or standard error.
//   Errors       code is 0, or says what went wrong: below 0 one of the codes here, above 0 one of the back end's own.
//                call names the function that failed, as the maker's documentation has it; it is a string that stays. An entry
//                that fails leaves nothing behind. `describe` has the words, and sorts codes into classes.
#ifndef MSCCLPP_DEVICE_BACKEND_H_
#define MSCCLPP_DEVICE_BACKEND_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Tables of another version cannot be used. One of the same version that is longer or shorter can.
#define MSCCLPP_DEVICE_BACKEND_VERSION 1

// The function that returns the table: const mscclpp_device_backend* mscclpp_device_backend_v1(void).
#define MSCCLPP_DEVICE_BACKEND_SYMBOL "mscclpp_device_backend_v1"

// A device that `open` has made, the back end's own.
typedef struct mscclpp_device mscclpp_device;

// A thing that the back end has made: modules, kernels, streams, events, graphs. Stream 0 is the default stream.
typedef uintptr_t mscclpp_device_handle;

// How a call ended.
typedef struct {
  int32_t code;
  uint32_t reserved;  // 0
  const char* call;   // the function that failed; NULL where code is 0 or no function failed
} mscclpp_device_status;

// Codes that have the same meaning for all back ends.
enum {
  MSCCLPP_DEVICE_OK = 0,
  MSCCLPP_DEVICE_NOT_READY = -1,    // a query: there is still work. No failure
  MSCCLPP_DEVICE_CAPTURING = -2,    // a query: the stream records. No failure
  MSCCLPP_DEVICE_NOT_FOUND = -3,    // the image has no such symbol; the list has ended
  MSCCLPP_DEVICE_UNSUPPORTED = -4,  // the device cannot do that; another way may be tried
  MSCCLPP_DEVICE_NO_MEMORY = -5,    // of the device, or of the host
  MSCCLPP_DEVICE_INVALID = -6,      // an argument makes no sense
  MSCCLPP_DEVICE_UNAVAILABLE = -7,  // no driver, no device, no permission
  MSCCLPP_DEVICE_LOST = -8          // a kernel went astray or hardware failed: every later call fails as well
};

// Classes of errors, for `describe`.
enum {
  MSCCLPP_DEVICE_CLASS_INVALID = 1,      // the caller's mistake
  MSCCLPP_DEVICE_CLASS_UNSUPPORTED = 2,  // cannot be had on this machine; another way may be tried
  MSCCLPP_DEVICE_CLASS_UNAVAILABLE = 3,  // cannot be had now
  MSCCLPP_DEVICE_CLASS_LATER = 5,        // cannot be had yet: the same may succeed in some seconds
  MSCCLPP_DEVICE_CLASS_FULL = 6,         // cannot be had in this size: less may succeed
  MSCCLPP_DEVICE_CLASS_CLOSED = 4        // the device has been closed, or the driver has ended
};

// The words for a code.
typedef struct {
  uint64_t size;
  int32_t error_class;  // MSCCLPP_DEVICE_CLASS_…; 0 counts as INVALID
  int32_t lost;         // not 0: all further use of the device by this process fails
  char name[64];        // of the code: "ACME_ERROR_BUSY"; empty: the number is printed, or the text alone if no call is known
  char text[256];       // a sentence without a full stop; may be empty
} mscclpp_device_error;

// Capabilities: the optional groups of entries. A back end that has one sets the bit, and all entries of the group.
enum {
  MSCCLPP_DEVICE_HAS_SHARES = 1 << 0,     // export_share, import_share, unmap, share_kinds
  MSCCLPP_DEVICE_HAS_PEERS = 1 << 1,      // reaches, grant: devices of one process use each other's memory
  MSCCLPP_DEVICE_HAS_HOST = 1 << 2,       // host_alloc, host_free, host_register, host_unregister
  MSCCLPP_DEVICE_HAS_VIEWS = 1 << 3,      // view_open, view_store, view_settle, view_close
  MSCCLPP_DEVICE_HAS_RANGES = 1 << 4,     // range_of: memory that the application allocated
  MSCCLPP_DEVICE_HAS_FLUSH = 1 << 5,      // flush_writes
  MSCCLPP_DEVICE_HAS_STREAMS = 1 << 6,    // stream_…, copy, set, write_word
  MSCCLPP_DEVICE_HAS_EVENTS = 1 << 7,     // event_create, _destroy, _record, _wait, _query, _sync; needs streams
  MSCCLPP_DEVICE_HAS_TIMES = 1 << 8,      // event_elapsed; needs events
  MSCCLPP_DEVICE_HAS_ALL_EVENT = 1 << 9,  // event_record_all; needs events
  MSCCLPP_DEVICE_HAS_GRAPHS = 1 << 10,    // capture_begin, capture_end, graph_launch, graph_destroy; needs streams
  MSCCLPP_DEVICE_HAS_WAITS = 1 << 11,     // wait_word; needs streams
  MSCCLPP_DEVICE_HAS_BINDING = 1 << 12,   // bind, unbind: libraries of the maker take the device from the thread
  MSCCLPP_DEVICE_HAS_STREAM_IDS = 1 << 13,  // stream_id; needs streams
  MSCCLPP_DEVICE_HAS_PLACES = 1 << 14,  // reserve, unreserve, place_share, place_own, displace; needs shares and ranges
  MSCCLPP_DEVICE_HAS_MULTICAST = 1 << 15,  // multicast_…; needs shares
  MSCCLPP_DEVICE_HAS_DATA = 1 << 16,  // alloc_data: memory that the device caches
  MSCCLPP_DEVICE_HAS_GRAPH_TIMES = 1 << 17,  // event_record_each; needs times and graphs
  MSCCLPP_DEVICE_HAS_PARTS = 1 << 18,  // stream_processors: streams may have a part of the device; needs streams
  MSCCLPP_DEVICE_HAS_LINKS = 1 << 19  // link: how the device is joined to others
};

// A way to share memory with other processes.
typedef struct {
  uint64_t size;
  // "vmm", "legacy-ipc", "fabric" and "dma-buf" are those that transports of mscclpp-go know. A maker's own begins with the
  // type of its devices and a hyphen, as "acme-handle"; or with "fd:", as "fd:acme", if it is a file descriptor.
  const char* name;
  uint32_t on_demand;  // not 0: exported where a transport asks for it alone, as "dma-buf"
  uint32_t places;     // not 0: place_share takes it
} mscclpp_device_share_kind;

// Memory that one of them carries.
typedef struct {
  uint64_t size;
  uint32_t kind;        // index in share_kinds
  int32_t fd;           // the receiver owns it; -1: the share is a blob
  uint32_t blob_bytes;  // 0 for a descriptor
  uint32_t reserved;    // 0
  uint8_t blob[256];
} mscclpp_device_share;

// Memory that kernels of the device address.
typedef struct {
  uint64_t size;
  uint64_t address;   // of the first byte
  uint64_t bytes;     // that were asked for
  uint64_t start;     // of the allocation that contains it…
  uint64_t whole;     // …and its size, rounded up as the device does
  uint64_t handle;    // the back end's own
  uint64_t shares;    // bit i: it can be exported as share_kinds[i]
  uint32_t on_host;   // not 0: it is memory of the host
  int32_t ordinal;    // index of the device that owns it
} mscclpp_device_memory;

// A window over the memory of several devices that one switch joins: an object of the driver, which the members share.
typedef struct {
  uint64_t size;
  uint64_t bytes;    // of the window: what was asked for, rounded up to units
  uint64_t unit;     // places in memory that is bound are multiples of it
  uint64_t handle;   // the back end's own
  uint64_t address;  // of the window, once it is mapped
  uint32_t members;
  uint32_t reserved;  // 0
} mscclpp_device_multicast;

// Facts about a device.
typedef struct {
  uint64_t size;
  char name[128];        // for people: "ACME X1"
  char archs[256];       // of images that it loads, best first, separated by spaces: "acme2 acme1"
  char pci[32];          // as in /sys/bus/pci/devices, "0000:19:00.0"; empty: not on a bus
  uint8_t uuid[16];      // no other device in the world has it; all 0: unknown
  uint32_t processors;   // blocks of one kernel that run at once, at one block each
  uint32_t shared_most;  // most dynamic shared memory of a block
  int32_t least_priority, greatest_priority;  // of streams; greatest is the smaller number. Both 0: there are none
  uint32_t overlap;      // not 0: launches can overlap, see MSCCLPP_DEVICE_LAUNCH_OVERLAP
  uint32_t ordered;      // not 0: kernels see writes of network adapters in order, without flush_writes
  uint64_t unit;         // HAS_PLACES: places are multiples of it, and allocations take whole ones
} mscclpp_device_info;

// The links from a device to one other: of the maker's, beside the bus of the host.
typedef struct {
  uint64_t size;
  char pci[32];       // of the other device, as in its info…
  uint8_t uuid[16];   // …likewise. One of the two is there; the address, if the device has one
  char kind[32];      // for people: "AcmeLink 2"
  uint32_t count;     // of links; not 0
  uint32_t switched;  // not 0: they lead to a switch, so that each device behind it is reached over all of them
  uint64_t rate;      // bytes a second that these links carry, each way; 0: unknown
  uint32_t latency;   // nanoseconds from a store until the other device, which polls, has seen it; 0: unknown
  uint32_t reserved;  // 0
} mscclpp_device_link;

// Facts about a compiled kernel.
typedef struct {
  uint64_t size;
  uint32_t threads;    // most threads of a block
  uint32_t shared;     // static shared memory of a block
  uint32_t dynamic;    // dynamic shared memory that a launch may ask for before kernel_allow
  uint32_t local;      // memory of a thread; not 0 if registers were spilled
  uint32_t registers;  // of a thread
  uint32_t reserved;   // 0
} mscclpp_device_kernel_info;

// A launch.
typedef struct {
  uint64_t size;
  mscclpp_device_handle kernel, stream;
  uint32_t grid, block;  // blocks, and threads of each; not 0
  uint32_t shared;       // dynamic shared memory of a block
  uint32_t flags;        // MSCCLPP_DEVICE_LAUNCH_…
  const void* arguments; // the kernel's one argument, a structure; copied before the launch returns
  uint64_t bytes;        // of arguments
} mscclpp_device_launch;

enum {
  // The kernel may begin while the one before it on the stream still runs; it waits for that one by itself. A device without
  // the ability ignores it.
  MSCCLPP_DEVICE_LAUNCH_OVERLAP = 1,
  // From this bit on flags have a number of neighboring blocks that run at the same time and reach each other's shared memory; 0 and 1
  // ask for nothing. A device without the ability ignores it.
  MSCCLPP_DEVICE_LAUNCH_CLUSTER = 8
};

// The calls that a capture forbids to others; see capture_begin.
enum {
  MSCCLPP_DEVICE_CAPTURE_GLOBAL = 0,
  MSCCLPP_DEVICE_CAPTURE_THREAD = 1,
  MSCCLPP_DEVICE_CAPTURE_RELAXED = 2
};

typedef struct mscclpp_device_backend {
  uint64_t size;          // sizeof(mscclpp_device_backend), as the back end was compiled
  uint32_t version;       // MSCCLPP_DEVICE_BACKEND_VERSION
  uint32_t share_count;   // of share_kinds, at most 64
  uint64_t capabilities;  // MSCCLPP_DEVICE_HAS_…
  const char* type;       // of its devices, as "acme" in acme:0: lower-case letters and digits, at most 32, a letter first
  const char* product;    // for people, with its version: "ACME driver 3.1"
  const mscclpp_device_share_kind* share_kinds;  // best first

  // ---- Open and info ----

  // [slow] Makes the back end ready. It is called once before anything else, and again after it failed. UNAVAILABLE: no driver.
  mscclpp_device_status (*start)(void);
  // The number of devices that are visible to this process; it does not change.
  mscclpp_device_status (*count)(int32_t* devices);
  // [slow] Opens a device. options are lines "key=value", or "": what the configuration has under devices.TYPE.options; INVALID
  // for one that is unknown. A device may be opened several times; each is closed by itself.
  mscclpp_device_status (*open)(int32_t index, const char* options, mscclpp_device** device);
  // [waits] Closes a device. Nothing that was made from it is left, and no call on it is in progress.
  mscclpp_device_status (*close)(mscclpp_device* device);
  // Describes a device. It does not change while the device is open.
  mscclpp_device_status (*info)(mscclpp_device* device, mscclpp_device_info* info);
  // The device's memory: what is free, and all of it.
  mscclpp_device_status (*memory_info)(mscclpp_device* device, uint64_t* available, uint64_t* total);
  // HAS_PEERS: whether kernels of the device can address memory of the device with the other index.
  mscclpp_device_status (*reaches)(mscclpp_device* device, int32_t other, int32_t* can);
  // HAS_BINDING: makes the device the current one of this thread, and notes in saved which it was, until unbind.
  mscclpp_device_status (*bind)(mscclpp_device* device, uint64_t saved[4]);
  mscclpp_device_status (*unbind)(mscclpp_device* device, const uint64_t saved[4]);

  // ---- Memory ----

  // [slow] Allocates zeroed memory that peers may write while kernels of this device poll it: on a device whose caches do not
  // see such writes it is uncached. All of it is there when the call returns: lack of memory is an error here, NO_MEMORY, and
  // never a fault on first use. address is a multiple of 256, and of 2 MiB from 2 MiB on where the device can.
  mscclpp_device_status (*alloc)(mscclpp_device* device, uint64_t bytes, mscclpp_device_memory* memory);
  // [waits] Frees it. Mappings that others have made of it stay valid.
  mscclpp_device_status (*free_memory)(mscclpp_device* device, const mscclpp_device_memory* memory);
  // HAS_RANGES: finds the application's memory that contains the address. INVALID: the driver does not know it. handle stays
  // valid as long as the memory does, and is not freed.
  mscclpp_device_status (*range_of)(mscclpp_device* device, uint64_t address, mscclpp_device_memory* memory);
  // HAS_PEERS: lets kernels of device address memory that owner has allocated, at the same address. It is not taken back.
  mscclpp_device_status (*grant)(mscclpp_device* device, mscclpp_device* owner, const mscclpp_device_memory* memory);
  // [waits] Copies from the host to the device, or back; the data has arrived when the call returns. Neither waits for work on
  // streams.
  mscclpp_device_status (*upload)(mscclpp_device* device, uint64_t to, const void* from, uint64_t bytes);
  mscclpp_device_status (*download)(mscclpp_device* device, void* to, uint64_t from, uint64_t bytes);
  // [waits] Sets bytes to a value; it is done when the call returns. It does not wait for work on streams.
  mscclpp_device_status (*fill)(mscclpp_device* device, uint64_t to, uint8_t value, uint64_t bytes);

  // ---- Export, import, map (HAS_SHARES) ----

  // Makes a share of a whole allocation, of the kind that share->kind says. UNSUPPORTED: this memory has none of that kind, and
  // goes without it.
  mscclpp_device_status (*export_share)(mscclpp_device* device, const mscclpp_device_memory* memory, mscclpp_device_share* share);
  // [slow] Makes memory of another process, or of this one, addressable: bytes of it at offset. The descriptor stays the
  // caller's. UNSUPPORTED: not by this kind, or not this part of it. INVALID: not a share of such memory, or less than is
  // asked for. A share comes from another process, so none may bring the back end down.
  mscclpp_device_status (*import_share)(mscclpp_device* device, const mscclpp_device_share* share, uint64_t offset, uint64_t bytes, mscclpp_device_memory* memory);
  // [waits] Ends the mapping.
  mscclpp_device_status (*unmap)(mscclpp_device* device, const mscclpp_device_memory* memory);

  // ---- Memory of the host ----

  // HAS_HOST. [slow] Allocates zeroed, pinned memory of the host, which all devices of the back end reach.
  mscclpp_device_status (*host_alloc)(mscclpp_device* device, uint64_t bytes, uint64_t* host, uint64_t* address);
  mscclpp_device_status (*host_free)(mscclpp_device* device, uint64_t host);
  // HAS_HOST. [slow] Makes memory of the host that is there addressable: whole pages. fd is the file that is mapped there and
  // offset the place in it, where the caller knows that, else -1 and 0. Loads, stores and atomic operations of 4 and 8 bytes
  // are coherent with those of the host and of other processes that have mapped the same file.
  mscclpp_device_status (*host_register)(mscclpp_device* device, uint64_t host, uint64_t bytes, int32_t fd, uint64_t offset, uint64_t* address);
  mscclpp_device_status (*host_unregister)(mscclpp_device* device, uint64_t host);
  // HAS_VIEWS. [slow] Maps memory of alloc for stores of the host; host is where its first byte is. It is closed before the
  // memory is freed.
  mscclpp_device_status (*view_open)(mscclpp_device* device, const mscclpp_device_memory* memory, uint64_t* view, uint64_t* host);
  // HAS_VIEWS. Stores a word at an address of the host within a view, a multiple of 8. Kernels see all of it or nothing, soon.
  mscclpp_device_status (*view_store)(uint64_t view, uint64_t host, uint64_t value);
  // HAS_VIEWS. Returns when everything that was stored before has arrived.
  mscclpp_device_status (*view_settle)(uint64_t view, uint64_t host);
  mscclpp_device_status (*view_close)(uint64_t view);
  // HAS_FLUSH. Returns when kernels see everything that network adapters wrote before the call.
  mscclpp_device_status (*flush_writes)(mscclpp_device* device);

  // ---- Modules and launches ----

  // [slow] Loads an image. log takes the compiler's last words, a string of at most log_bytes with its zero, where it refuses
  // one. INVALID: not an image of this device. An image may be any bytes, and must not bring the back end down.
  mscclpp_device_status (*module_load)(mscclpp_device* device, const void* image, uint64_t bytes, mscclpp_device_handle* module, char* log, uint64_t log_bytes);
  // [waits] Unloads it. Launches of its kernels that are under way are finished.
  mscclpp_device_status (*module_unload)(mscclpp_device* device, mscclpp_device_handle module);
  // [slow] Finds an entry point and makes it ready: its first launch is as quick as any. NOT_FOUND: the image has none of this
  // name. A kernel lives as long as its module.
  mscclpp_device_status (*kernel_find)(mscclpp_device* device, mscclpp_device_handle module, const char* name, mscclpp_device_handle* kernel, mscclpp_device_kernel_info* info);
  // Lets launches ask for this much dynamic shared memory.
  mscclpp_device_status (*kernel_allow)(mscclpp_device* device, mscclpp_device_handle kernel, uint32_t shared);
  // How many blocks of this shape are resident at once, if nothing else runs.
  mscclpp_device_status (*kernel_fit)(mscclpp_device* device, mscclpp_device_handle kernel, uint32_t block, uint32_t shared, uint32_t* blocks);
  // [recorded] Enqueues a kernel. This is the data path: no allocation, no lock that is held while a device works. Without
  // HAS_STREAMS the kernel has ended when the call returns.
  mscclpp_device_status (*launch)(mscclpp_device* device, const mscclpp_device_launch* launch);

  // ---- Streams (HAS_STREAMS) ----

  // Makes a stream. Work of a stream is done in order, and streams are independent of each other and of the default stream: a
  // kernel that waits delays nothing on other streams. Numbers out of the range of priorities count as the nearest.
  mscclpp_device_status (*stream_create)(mscclpp_device* device, int32_t priority, mscclpp_device_handle* stream);
  // Ends a stream. Enqueued work is still done.
  mscclpp_device_status (*stream_destroy)(mscclpp_device* device, mscclpp_device_handle stream);
  // OK: all work has ended. NOT_READY, CAPTURING, or the error of the device. Also for streams of the application.
  mscclpp_device_status (*stream_query)(mscclpp_device* device, mscclpp_device_handle stream);
  // OK, or CAPTURING; how far the stream is, is not asked. It is quicker than stream_query may be.
  mscclpp_device_status (*stream_capturing)(mscclpp_device* device, mscclpp_device_handle stream);
  // [waits] Returns when all work has ended. CAPTURING: nothing was waited for.
  mscclpp_device_status (*stream_sync)(mscclpp_device* device, mscclpp_device_handle stream);

  // ---- Events (HAS_EVENTS) ----

  // Makes an event; timing: not 0 for those that event_elapsed compares.
  mscclpp_device_status (*event_create)(mscclpp_device* device, int32_t timing, mscclpp_device_handle* event);
  // Work that waits for it is not disturbed.
  mscclpp_device_status (*event_destroy)(mscclpp_device* device, mscclpp_device_handle event);
  // [recorded] Marks the work that was enqueued on the stream so far.
  mscclpp_device_status (*event_record)(mscclpp_device* device, mscclpp_device_handle event, mscclpp_device_handle stream);
  // HAS_ALL_EVENT. Marks the work that all streams of the device were given so far, those that were destroyed included.
  // UNSUPPORTED: a stream is captured.
  mscclpp_device_status (*event_record_all)(mscclpp_device* device, mscclpp_device_handle event);
  // [recorded] Work enqueued on the stream later waits for what the event marks now; of an event that marks nothing yet, for
  // nothing. A stream that waits for one of a captured stream joins the capture.
  mscclpp_device_status (*event_wait)(mscclpp_device* device, mscclpp_device_handle event, mscclpp_device_handle stream);
  // OK, or NOT_READY.
  mscclpp_device_status (*event_query)(mscclpp_device* device, mscclpp_device_handle event);
  // [waits] Returns when the marked work is done.
  mscclpp_device_status (*event_sync)(mscclpp_device* device, mscclpp_device_handle event);
  // HAS_TIMES. The time between two events that were reached, in nanoseconds; 0, if the end was first.
  mscclpp_device_status (*event_elapsed)(mscclpp_device* device, mscclpp_device_handle start, mscclpp_device_handle end, uint64_t* nanoseconds);

  // ---- Graphs (HAS_GRAPHS) ----

  // Records what is enqueued on the stream instead of doing it. mode: MSCCLPP_DEVICE_CAPTURE_…. The thread that calls it calls
  // capture_end as well.
  mscclpp_device_status (*capture_begin)(mscclpp_device* device, mscclpp_device_handle stream, int32_t mode);
  // [slow] Ends the recording, and makes it ready for launches. nodes: how many operations there are. After an error there is
  // no recording any more.
  mscclpp_device_status (*capture_end)(mscclpp_device* device, mscclpp_device_handle stream, mscclpp_device_handle* graph, uint64_t* nodes);
  // Enqueues the whole recording.
  mscclpp_device_status (*graph_launch)(mscclpp_device* device, mscclpp_device_handle graph, mscclpp_device_handle stream);
  // Frees it. Launches that are under way are finished.
  mscclpp_device_status (*graph_destroy)(mscclpp_device* device, mscclpp_device_handle graph);

  // ---- Copies and words (HAS_STREAMS) ----

  // [recorded] Enqueues a copy between any two of: memory of the device, memory that it has mapped, memory of the host that it
  // knows. bytes is not 0. A copy of 8 bytes between multiples of 8 is whole for observers.
  mscclpp_device_status (*copy)(mscclpp_device* device, mscclpp_device_handle stream, uint64_t to, uint64_t from, uint64_t bytes);
  // [recorded] Enqueues setting bytes to a value. bytes is not 0.
  mscclpp_device_status (*set)(mscclpp_device* device, mscclpp_device_handle stream, uint64_t to, uint8_t value, uint64_t bytes);
  // [recorded] Enqueues the store of a word, whole, at a multiple of 8. All observers, on the host and on other devices, that
  // see it see all work before it.
  mscclpp_device_status (*write_word)(mscclpp_device* device, mscclpp_device_handle stream, uint64_t address, uint64_t value);
  // HAS_WAITS. [recorded] What is enqueued later waits until the word is at least the value, in the cyclic order of 64 bits.
  mscclpp_device_status (*wait_word)(mscclpp_device* device, mscclpp_device_handle stream, uint64_t address, uint64_t value);

  // ---- Error text ----

  // Has the words for a code of the back end's own; it cannot fail. Those below 0 need none.
  void (*describe)(int32_t code, mscclpp_device_error* error);

  // ---- Later entries; tables that end before them have none ----

  // HAS_STREAM_IDS: a number that tells a stream of the application from those that had its handle before; 0: it is not known, or
  // the stream records. It does not disturb a capture. This is the data path.
  uint64_t (*stream_id)(mscclpp_device* device, mscclpp_device_handle stream);
  // HAS_PLACES. [slow] Reserves addresses, at a multiple of 2 MiB where the device can, for memory of several ranks side by side.
  mscclpp_device_status (*reserve)(mscclpp_device* device, uint64_t bytes, uint64_t* address);
  // HAS_PLACES. Gives the addresses back. Nothing is mapped there any more.
  mscclpp_device_status (*unreserve)(mscclpp_device* device, uint64_t address, uint64_t bytes);
  // HAS_PLACES. [slow] Is import_share for a whole allocation, at an address that is reserved.
  mscclpp_device_status (*place_share)(mscclpp_device* device, const mscclpp_device_share* share, uint64_t address, uint64_t bytes, mscclpp_device_memory* memory);
  // HAS_PLACES. [slow] Maps an allocation of this process there, of the application or of alloc, a second time.
  mscclpp_device_status (*place_own)(mscclpp_device* device, const mscclpp_device_memory* own, uint64_t address, uint64_t bytes, mscclpp_device_memory* memory);
  // HAS_PLACES. [waits] Ends such a mapping.
  mscclpp_device_status (*displace)(mscclpp_device* device, const mscclpp_device_memory* memory);

  // HAS_MULTICAST: windows over the memory of several devices. A kernel's store to a window reaches the memory of all members,
  // and a load reduces over it; no other access is made. Each member calls, in this order: multicast_create or _open, _add,
  // [all have added], _bind, [all have bound], _map, [all have mapped]; later _bind and [all have bound] for more memory; and at the end [no kernel uses the window], _unmap,
  // _unbind, _close. Failures of the class LATER are tried again by all members, from the beginning.
  //
  // Whether the device can be a member: OK, or a code whose words say why not. It asks the driver to make nothing.
  mscclpp_device_status (*multicast_ready)(mscclpp_device* device);
  // [slow] Makes an object for so many members, with a window of at least so many bytes.
  mscclpp_device_status (*multicast_create)(mscclpp_device* device, uint32_t members, uint64_t bytes, mscclpp_device_multicast* object);
  // Makes a share of it, of a kind with a descriptor that the back end chooses.
  mscclpp_device_status (*multicast_share)(mscclpp_device* device, const mscclpp_device_multicast* object, mscclpp_device_share* share);
  // [slow] Opens the object behind a share. The descriptor stays the caller's.
  mscclpp_device_status (*multicast_open)(mscclpp_device* device, const mscclpp_device_share* share, uint32_t members, uint64_t bytes, mscclpp_device_multicast* object);
  // [slow] Makes the device a member, for as long as the object lives.
  mscclpp_device_status (*multicast_add)(mscclpp_device* device, const mscclpp_device_multicast* object);
  // [waits] Binds so many bytes of the device's own memory, from offset on, to that place of the window. Place and bytes are whole
  // units, and a window has several such ranges, which do not overlap. It may wait until all members are added.
  mscclpp_device_status (*multicast_bind)(mscclpp_device* device, const mscclpp_device_multicast* object, const mscclpp_device_memory* memory, uint64_t offset, uint64_t place, uint64_t bytes);
  // Takes a range out again: one that was bound, as it was bound.
  mscclpp_device_status (*multicast_unbind)(mscclpp_device* device, const mscclpp_device_multicast* object, uint64_t place, uint64_t bytes);
  // [waits] Gives the window an address. It may wait until all members are added.
  mscclpp_device_status (*multicast_map)(mscclpp_device* device, mscclpp_device_multicast* object);
  mscclpp_device_status (*multicast_unmap)(mscclpp_device* device, const mscclpp_device_multicast* object);
  mscclpp_device_status (*multicast_close)(mscclpp_device* device, const mscclpp_device_multicast* object);

  // HAS_DATA. [slow] Is alloc for data: no kernel polls it, and what peers write is read by kernels that begin later. So caches
  // may keep it. A device has this entry if memory of alloc is not cached; without it, alloc serves for data, too.
  mscclpp_device_status (*alloc_data)(mscclpp_device* device, uint64_t bytes, mscclpp_device_memory* memory);

  // HAS_GRAPH_TIMES. [recorded] For a stream that is captured: an operation of the graph, so that each launch marks the event anew. The
  // event does not join streams. Before the first launch event_elapsed fails.
  mscclpp_device_status (*event_record_each)(mscclpp_device* device, mscclpp_device_handle event, mscclpp_device_handle stream);

  // HAS_PARTS: how many processors kernels on a stream have; 0: those of the device, or it is not known.
  // It does not disturb a capture.
  uint32_t (*stream_processors)(mscclpp_device* device, mscclpp_device_handle stream);

  // HAS_LINKS: describes the links to one other device: index counts from 0, and NOT_FOUND is the end. Each device to which links
  // lead is there once, whether this process sees it or not; kernels can address its memory. A device that is not there is reached
  // over the bus alone. The list does not change while the device is open, and info has the device's own address, or its uuid.
  // UNSUPPORTED: links are not known on this machine, as without HAS_LINKS.
  mscclpp_device_status (*link)(mscclpp_device* device, uint32_t index, mscclpp_device_link* link);
} mscclpp_device_backend;

#ifdef __cplusplus
}
#endif

#endif  // MSCCLPP_DEVICE_BACKEND_H_
