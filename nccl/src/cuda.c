#include "cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bus.h"
#include "door.h"
#include "env.h"
#include "log.h"

/* Names as the driver exports them. The numbers are those of cuda.h. */
static struct {
  int (*init)(unsigned);
  int (*count)(int*);
  int (*ctx_device)(int*);
  int (*granularity)(size_t*, const void*, int);
  int (*create)(uint64_t*, size_t, const void*, uint64_t);
  int (*release)(uint64_t);
  int (*reserve)(uintptr_t*, size_t, size_t, uintptr_t, uint64_t);
  int (*unreserve)(uintptr_t, size_t);
  int (*map)(uintptr_t, size_t, size_t, uint64_t, uint64_t);
  int (*unmap)(uintptr_t, size_t);
  int (*access)(uintptr_t, size_t, const void*, size_t);
  int (*peer)(int*, int, int);
  int (*attribute)(void*, int, uintptr_t);
  int (*retain)(void**, int);
  int (*release_context)(int);
  int (*sync)(void);
  int (*push)(void*);
  int (*pop)(void**);
  int (*alloc)(uintptr_t*, size_t);
  int (*free)(uintptr_t);
  int (*event_new)(void**, unsigned);
  int (*event_free)(void*);
  int (*event_record)(void*, cudaStream_t);
  int (*event_wait)(cudaStream_t, void*, unsigned);
  int (*is_captured)(cudaStream_t, int*);
  int (*bus)(char*, int, int);
  int (*event_done)(void*);
  int (*event_apart)(float*, void*, void*);
  int (*capture_mode)(int*);
  int found;
} driver;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* symbol looks up a function. Those for memory may be missing from old drivers. */
static void* symbol(void* lib, const char* name) {
  void* p = dlsym(lib, name);
  if (p == NULL && strncmp(name, "cuMem", 5) != 0) driver.found = 0;
  return p;
}

static void open_driver(void) {
  if (on_host()) return; /* communicators are there: so is memory */
  const char* path = setting("MSCCLPP_CUDA_LIBRARY");
  void* lib = dlopen(path && *path ? path : "libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (lib == NULL) return;
  driver.found = 1;
  *(void**)&driver.init = symbol(lib, "cuInit");
  *(void**)&driver.count = symbol(lib, "cuDeviceGetCount");
  *(void**)&driver.ctx_device = symbol(lib, "cuCtxGetDevice");
  *(void**)&driver.granularity = symbol(lib, "cuMemGetAllocationGranularity");
  *(void**)&driver.create = symbol(lib, "cuMemCreate");
  *(void**)&driver.release = symbol(lib, "cuMemRelease");
  *(void**)&driver.reserve = symbol(lib, "cuMemAddressReserve");
  *(void**)&driver.unreserve = symbol(lib, "cuMemAddressFree");
  *(void**)&driver.map = symbol(lib, "cuMemMap");
  *(void**)&driver.unmap = symbol(lib, "cuMemUnmap");
  *(void**)&driver.access = symbol(lib, "cuMemSetAccess");
  *(void**)&driver.peer = symbol(lib, "cuDeviceCanAccessPeer");
  *(void**)&driver.attribute = symbol(lib, "cuPointerGetAttribute");
  *(void**)&driver.retain = symbol(lib, "cuDevicePrimaryCtxRetain");
  *(void**)&driver.release_context = symbol(lib, "cuDevicePrimaryCtxRelease_v2");
  *(void**)&driver.sync = symbol(lib, "cuCtxSynchronize");
  *(void**)&driver.push = symbol(lib, "cuCtxPushCurrent_v2");
  *(void**)&driver.pop = symbol(lib, "cuCtxPopCurrent_v2");
  *(void**)&driver.alloc = symbol(lib, "cuMemAlloc_v2");
  *(void**)&driver.free = symbol(lib, "cuMemFree_v2");
  *(void**)&driver.event_new = symbol(lib, "cuEventCreate");
  *(void**)&driver.event_free = symbol(lib, "cuEventDestroy_v2");
  *(void**)&driver.event_record = symbol(lib, "cuEventRecord");
  *(void**)&driver.event_wait = symbol(lib, "cuStreamWaitEvent");
  *(void**)&driver.is_captured = symbol(lib, "cuStreamIsCapturing");
  *(void**)&driver.bus = symbol(lib, "cuDeviceGetPCIBusId");
  *(void**)&driver.event_done = symbol(lib, "cuEventQuery");
  *(void**)&driver.event_apart = symbol(lib, "cuEventElapsedTime");
  *(void**)&driver.capture_mode = symbol(lib, "cuThreadExchangeStreamCaptureMode");
  if (driver.found && driver.init(0) != 0) driver.found = 0;
}

int cuda_count(void) {
  pthread_once(&once, open_driver);
  int n = 0;
  return driver.found && driver.count(&n) == 0 ? n : 0;
}

int cuda_current(void) {
  int device;
  if (cuda_count() == 0) return -1;
  return driver.ctx_device(&device) == 0 ? device : 0;
}

/* enter_device makes the primary context of a device current until leave_device. */
static int enter_device(int device, void** context) {
  int err = driver.retain(context, device);
  if (err == 0 && (err = driver.push(*context)) != 0) driver.release_context(device);
  return err;
}

static void leave_device(int device) {
  void* context;
  driver.pop(&context);
  driver.release_context(device);
}

/* Structures of cuda.h. */
struct location {
  int type, id; /* 1: device */
};
struct allocation {
  int type, handles; /* pinned, file descriptor */
  struct location location;
  void* unused;
  struct {
    unsigned char compression, rdma;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
};
struct grant {
  struct location location;
  int flags; /* 3: read and write */
};

enum { DEVICES = 64 };

/* What cuda_alloc has mapped, so that cuda_free knows how large it is. */
struct mapped {
  struct mapped* next;
  uintptr_t at;
  size_t size;
  int device;
};
static struct mapped* mapped;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void note(struct mapped* m) {
  pthread_mutex_lock(&lock);
  m->next = mapped;
  mapped = m;
  pthread_mutex_unlock(&lock);
}

/* forget takes out what cuda_alloc has mapped at p; NULL if that is nothing. */
static struct mapped* forget(const void* p) {
  pthread_mutex_lock(&lock);
  struct mapped** at = &mapped;
  while (*at && (*at)->at != (uintptr_t)p) at = &(*at)->next;
  struct mapped* found = *at;
  if (found) *at = found->next;
  pthread_mutex_unlock(&lock);
  return found;
}

/* map_everywhere makes memory of a handle accessible to the device and to its peers. */
static int map_everywhere(int device, uintptr_t at, size_t size, uint64_t handle) {
  struct grant grants[DEVICES];
  int n = 0, all = cuda_count();
  for (int d = 0; d < all && n < DEVICES; d++) {
    int can = d == device;
    if (!can && driver.peer(&can, d, device) != 0) can = 0;
    if (can) grants[n++] = (struct grant){{1, d}, 3};
  }
  int err = driver.map(at, size, 0, handle, 0);
  if (err) return err;
  err = driver.access(at, size, grants, (size_t)n);
  if (err) driver.unmap(at, size);
  return err;
}

ncclResult_t cuda_alloc(int device, size_t bytes, void** out) {
  struct allocation a = {.type = 1, .handles = 1, .location = {1, device}, .flags = {.rdma = 1}};
  size_t unit = 0;
  uint64_t handle = 0;
  uintptr_t at = 0;
  int err = driver.create && driver.reserve ? driver.granularity(&unit, &a, 1) : 801;
  size_t size = unit ? (bytes + unit - 1) / unit * unit : 0;
  if (err == 0) {
    err = driver.create(&handle, size, &a, 0);
    if (err != 0 && err != 2) { /* 2: out of memory */
      a.flags.rdma = 0;
      err = driver.create(&handle, size, &a, 0);
    }
  }
  if (err == 0) {
    err = driver.reserve(&at, size, unit, 0, 0);
    if (err == 0 && (err = map_everywhere(device, at, size, handle)) != 0) driver.unreserve(at, size);
    driver.release(handle); /* the mapping keeps it */
  }
  if (err == 0) {
    struct mapped* m = malloc(sizeof *m);
    if (m == NULL) {
      driver.unmap(at, size);
      driver.unreserve(at, size);
      return fail(ncclSystemError, "ncclMemAlloc : out of memory");
    }
    *m = (struct mapped){NULL, at, size, device};
    note(m);
  }
  if (err != 0 && err != 2) err = driver.alloc(&at, bytes); /* a driver without virtual memory */
  if (err) return fail(ncclUnhandledCudaError, "ncclMemAlloc : %zu bytes on device %d: CUDA error %d", bytes, device, err);
  *out = (void*)at;
  return ncclSuccess;
}

/* look returns the size of memory that cuda_alloc has mapped at p, and its device. */
static size_t look(const void* p, int* device) {
  size_t size = 0;
  pthread_mutex_lock(&lock);
  for (struct mapped* m = mapped; m && size == 0; m = m->next)
    if (m->at == (uintptr_t)p) {
      size = m->size;
      *device = m->device;
    }
  pthread_mutex_unlock(&lock);
  return size;
}

size_t cuda_size(const void* p) {
  int device;
  return look(p, &device);
}

/* not_freed says why: short of memory, there is a wait that no capture survives. */
static ncclResult_t not_freed(const void* p, int err) {
  if (err >= 900 && err <= 908)
    return fail(ncclUnhandledCudaError, "ncclMemFree : %p: a stream of its device is being captured (CUDA error %d): the memory is as before: expected a call when no capture is open", p, err);
  return fail(ncclInvalidArgument, "ncclMemFree : %p: CUDA error %d: expected memory that the driver has allocated", p, err);
}

/* quiet waits for the device. Waiting for a context spoils each capture there is, in every mode, and so does an event behind all that a
 * context has; freeing memory waits as well, and on a relaxed thread spoils none. */
static int quiet(void) {
  uintptr_t any;
  int err = driver.alloc(&any, 1);
  return err == 0 ? driver.free(any) : driver.sync();
}

ncclResult_t cuda_quiet(const void* p) {
  int device;
  void* context;
  if (look(p, &device) == 0 || enter_device(device, &context) != 0) return ncclSuccess;
  int err = quiet();
  leave_device(device);
  return err >= 900 && err <= 908 ? not_freed(p, err) : ncclSuccess; /* another error is one of the program's work */
}

ncclResult_t cuda_free(void* p) {
  uintptr_t at = (uintptr_t)p;
  struct mapped* m = forget(p);
  int err;
  if (m) {
    err = driver.unmap(at, m->size);
    if (err == 0) {
      err = driver.unreserve(at, m->size);
      free(m);
    } else {
      note(m);
    }
  } else { /* memory of cudaMalloc, as of any other allocator; its context need not be current here */
    void *context, *none;
    int device = 0;
    err = enter_device(0, &none); /* any context will do for the question */
    if (err == 0) {
      err = driver.attribute(&device, 9, at); /* 9: ordinal of the device */
      leave_device(0);
    }
    if (err == 0 && (err = enter_device(device, &context)) == 0) {
      err = driver.free(at);
      leave_device(device);
    }
  }
  return err ? not_freed(p, err) : ncclSuccess;
}

ncclResult_t cuda_settle(int device) {
  void* context;
  int err = enter_device(device, &context);
  if (err == 0) {
    err = driver.sync();
    leave_device(device);
  }
  return err ? fail(ncclUnhandledCudaError, "device %d: waiting for its work: CUDA error %d", device, err) : ncclSuccess;
}

ncclResult_t cuda_check_pointer(int device, const void* p, const char* function, const char* name) {
  void* context;
  int of = 0, err = enter_device(device, &context);
  if (err == 0) {
    err = driver.attribute(&of, 9, (uintptr_t)p); /* 9: ordinal of the device */
    leave_device(device);
  }
  if (err) return fail(ncclInvalidArgument, "%s : %s %p is not a valid pointer: the driver knows no memory there (CUDA error %d)", function, name, p, err);
  if (of != device) return fail(ncclInvalidArgument, "%s : %s %p is of device %d: expected memory of device %d", function, name, p, of, device);
  return ncclSuccess;
}

ncclResult_t cuda_enter(int device) {
  void* context;
  int err = device < 0 ? 0 : enter_device(device, &context);
  return err ? fail(ncclUnhandledCudaError, "device %d: making it current: CUDA error %d", device, err) : ncclSuccess;
}

void cuda_leave(int device) {
  if (device >= 0) leave_device(device);
}

/* ON_DEVICE calls a function of the driver with the device's context current, which the default streams need. */
#define ON_DEVICE(device, what, call)                                                                       \
  do {                                                                                                      \
    ncclResult_t r_ = cuda_enter(device);                                                                   \
    if (r_ != ncclSuccess) return r_;                                                                       \
    int err_ = (call);                                                                                      \
    cuda_leave(device);                                                                                     \
    return err_ ? fail(ncclUnhandledCudaError, "device %d: %s: CUDA error %d", device, what, err_) : ncclSuccess; \
  } while (0)

ncclResult_t cuda_event_new(void** event, int device) {
  *event = NULL;
  if (device < 0) return ncclSuccess;
  ON_DEVICE(device, "making an event", driver.event_new(event, 2)); /* 2: without timing */
}

void cuda_event_free(void* event, int device) {
  if (event == NULL || cuda_enter(device) != ncclSuccess) return;
  driver.event_free(event);
  cuda_leave(device);
}

/* record and wait_for leave streams alone that are being captured. */
static int record(void* event, cudaStream_t stream, int* recorded) {
  int captured = 0, err = driver.is_captured(stream, &captured);
  if (err == 0 && !captured && (err = driver.event_record(event, stream)) == 0) *recorded = 1;
  return err;
}

static int wait_for(void* event, cudaStream_t stream) {
  int captured = 0, err = driver.is_captured(stream, &captured);
  return err == 0 && !captured ? driver.event_wait(stream, event, 0) : err;
}

ncclResult_t cuda_event_record(void* event, int device, cudaStream_t stream, int* recorded) {
  ON_DEVICE(device, "recording an event", record(event, stream, recorded));
}

ncclResult_t cuda_event_wait(void* event, int device, cudaStream_t stream) {
  ON_DEVICE(device, "waiting for an event", wait_for(event, stream));
}

int cuda_capturing(int device, cudaStream_t stream) {
  void* context;
  int capturing = 0;
  if (enter_device(device, &context) != 0) return 0;
  /* The driver does not answer for the default stream while another one is captured: it is not, itself. */
  if (driver.is_captured(stream, &capturing) != 0) capturing = 0;
  leave_device(device);
  return capturing != 0;
}

ncclResult_t cuda_wait(int device, cudaStream_t stream, cudaStream_t for_stream) {
  void *context, *event = NULL;
  int err = enter_device(device, &context);
  if (err == 0) {
    err = driver.event_new(&event, 2); /* 2: without times */
    if (err == 0) err = driver.event_record(event, for_stream);
    if (err == 0) err = driver.event_wait(stream, event, 0);
    if (event) driver.event_free(event); /* once it has happened */
    leave_device(device);
  }
  return err ? fail(ncclUnhandledCudaError, "a group: stream %p cannot wait for stream %p: CUDA error %d", (void*)stream, (void*)for_stream, err) : ncclSuccess;
}

int cuda_relax(void) {
  int mode = 2; /* relaxed */
  return cuda_count() > 0 && driver.capture_mode(&mode) == 0 ? mode : -1;
}

void cuda_restore(int mode) {
  if (mode >= 0) (void)driver.capture_mode(&mode);
}

int cuda_mark(int device, cudaStream_t stream, void** event) {
  void* context;
  int recorded = 0;
  *event = NULL;
  if (enter_device(device, &context) != 0) return 0;
  if (driver.event_new(event, 0) != 0) *event = NULL;
  if (*event && (record(*event, stream, &recorded) != 0 || !recorded)) {
    driver.event_free(*event);
    *event = NULL;
  }
  leave_device(device);
  return *event != NULL;
}

int cuda_marks_apart(int device, void* from, void* to, float* milliseconds) {
  enum { NOT_READY = 600 };
  void* context;
  if (enter_device(device, &context) != 0) return -1;
  int err = driver.event_done(to);
  if (err == 0) err = driver.event_apart(milliseconds, from, to);
  leave_device(device);
  return err == 0 ? 1 : err == NOT_READY ? 0 : -1;
}

uint64_t cuda_bus(int device) {
  char text[32] = "";
  return device >= 0 && cuda_count() > 0 && driver.bus(text, sizeof text, device) == 0 ? bus_number(text) : 0;
}
