/* The functions of cuda.h over HIP's runtime. It has no contexts: a device is current on a thread. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "../bus.h"
#include "../cuda.h"
#include "../door.h"
#include "../env.h"
#include "../log.h"

static struct {
  int (*hipInit)(unsigned);
  int (*hipGetDeviceCount)(int*);
  int (*hipGetDevice)(int*);
  int (*hipSetDevice)(int);
  int (*hipDeviceCanAccessPeer)(int*, int, int);
  int (*hipDeviceEnablePeerAccess)(int, unsigned);
  int (*hipDeviceSynchronize)(void);
  int (*hipPointerGetAttribute)(void*, int, void*);
  int (*hipExtMallocWithFlags)(void**, size_t, unsigned);
  int (*hipFree)(void*);
  int (*hipEventCreateWithFlags)(void**, unsigned);
  int (*hipEventDestroy)(void*);
  int (*hipEventRecord)(void*, cudaStream_t);
  int (*hipStreamWaitEvent)(cudaStream_t, void*, unsigned);
  int (*hipStreamIsCapturing)(cudaStream_t, int*);
  int (*hipEventQuery)(void*);
  int (*hipDeviceGetPCIBusId)(char*, int, int);
  int (*hipEventElapsedTime)(float*, void*, void*);
  int (*hipThreadExchangeStreamCaptureMode)(int*);
  int found;
} hip;
static pthread_once_t once = PTHREAD_ONCE_INIT;

enum { UNCACHED = 3, ORDINAL = 9, WITHOUT_TIMES = 2, FRAGMENT = 2 << 20 };

static void* open_library(void) {
  static const char* const usual[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so", "/opt/rocm/lib/libamdhip64.so"};
  const char* path = setting("MSCCLPP_HIP_LIBRARY");
  if (path && *path) return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  void* lib = NULL;
  for (size_t i = 0; i < sizeof usual / sizeof *usual && lib == NULL; i++) lib = dlopen(usual[i], RTLD_NOW | RTLD_GLOBAL);
  return lib;
}

static void open_hip(void) {
  void* lib = on_host() ? NULL : open_library(); /* communicators are on the host: so is memory */
  if (lib == NULL) return;
  hip.found = 1;
#define FIND(name) hip.found &= (*(void**)&hip.name = dlsym(lib, #name)) != NULL
  FIND(hipInit), FIND(hipGetDeviceCount), FIND(hipGetDevice), FIND(hipSetDevice), FIND(hipDeviceCanAccessPeer), FIND(hipDeviceEnablePeerAccess);
  FIND(hipDeviceSynchronize), FIND(hipPointerGetAttribute), FIND(hipExtMallocWithFlags), FIND(hipFree), FIND(hipEventCreateWithFlags);
  FIND(hipEventDestroy), FIND(hipEventRecord), FIND(hipStreamWaitEvent), FIND(hipStreamIsCapturing), FIND(hipEventQuery), FIND(hipEventElapsedTime);
  FIND(hipThreadExchangeStreamCaptureMode), FIND(hipDeviceGetPCIBusId);
#undef FIND
  if (hip.found && hip.hipInit(0) != 0) hip.found = 0;
}

int cuda_count(void) {
  pthread_once(&once, open_hip);
  int n = 0;
  return hip.found && hip.hipGetDeviceCount(&n) == 0 ? n : 0;
}

int cuda_current(void) {
  int device = 0;
  if (cuda_count() == 0) return -1;
  return hip.hipGetDevice(&device) == 0 ? device : 0;
}

/* The devices that were current before cuda_enter: calls of it nest, as in fallback.c. */
enum { NESTING = 8 };
static _Thread_local int before[NESTING], nested;

static int enter(int device) {
  int found = 0, err = hip.hipGetDevice(&found);
  if (err == 0 && found != device) err = hip.hipSetDevice(device);
  if (err == 0 && nested < NESTING) before[nested++] = found;
  return err;
}

static void leave(void) {
  if (nested > 0) hip.hipSetDevice(before[--nested]);
}

ncclResult_t cuda_enter(int device) {
  int err = device < 0 ? 0 : enter(device);
  return err ? fail(ncclUnhandledCudaError, "device %d: making it current: HIP error %d", device, err) : ncclSuccess;
}

void cuda_leave(int device) {
  if (device >= 0) leave();
}

/* Memory that cuda_alloc has made. */
struct made {
  struct made* next;
  void* at;
  size_t size;
  int device;
};
static struct made* made;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* grant lets the peers of a device reach its memory. */
static void grant(int device) {
  for (int d = 0, all = cuda_count(); d < all; d++) {
    int can = 0;
    if (d == device || hip.hipDeviceCanAccessPeer(&can, d, device) != 0 || !can || enter(d) != 0) continue;
    (void)hip.hipDeviceEnablePeerAccess(device, 0); /* it may be on; where it fails, the copy says so */
    leave();
  }
}

/* Peers write this memory and kernels poll it, so caches keep none of it. Small allocations would share a fragment, and a handle
 * of one would share the whole. */
ncclResult_t cuda_alloc(int device, size_t bytes, void** out) {
  size_t size = (bytes + FRAGMENT - 1) / FRAGMENT * FRAGMENT;
  struct made* m = malloc(sizeof *m);
  if (m == NULL || size < bytes) {
    free(m);
    return fail(ncclSystemError, "ncclMemAlloc : out of memory for %zu bytes", bytes);
  }
  int err = enter(device);
  if (err == 0) {
    err = hip.hipExtMallocWithFlags(out, size, UNCACHED);
    leave();
  }
  if (err) {
    free(m);
    return fail(ncclUnhandledCudaError, "ncclMemAlloc : %zu bytes on device %d: HIP error %d", bytes, device, err);
  }
  grant(device);
  pthread_mutex_lock(&lock);
  *m = (struct made){made, *out, size, device};
  made = m;
  pthread_mutex_unlock(&lock);
  return ncclSuccess;
}

/* look returns the size of memory that cuda_alloc has made, and its device. */
static size_t look(const void* p, int* device) {
  size_t size = 0;
  pthread_mutex_lock(&lock);
  for (struct made* m = made; m && size == 0; m = m->next)
    if (m->at == p) {
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
    return fail(ncclUnhandledCudaError, "ncclMemFree : %p: a stream of its device is being captured (HIP error %d): the memory is as before: expected a call when no capture is open", p, err);
  return fail(ncclInvalidArgument, "ncclMemFree : %p: HIP error %d: expected memory that the runtime has allocated", p, err);
}

/* quiet waits for the device by freeing memory, which spoils no capture on a relaxed thread. */
static int quiet(void) {
  void* any;
  int err = hip.hipExtMallocWithFlags(&any, 1, UNCACHED);
  return err == 0 ? hip.hipFree(any) : hip.hipDeviceSynchronize();
}

ncclResult_t cuda_quiet(const void* p) {
  int device;
  if (look(p, &device) == 0 || enter(device) != 0) return ncclSuccess;
  int err = quiet();
  leave();
  return err >= 900 && err <= 908 ? not_freed(p, err) : ncclSuccess; /* another error is one of the program's work */
}

ncclResult_t cuda_free(void* p) {
  pthread_mutex_lock(&lock); /* until it is freed: another thread may be given the same address then */
  int err = hip.hipFree(p);
  for (struct made** m = &made; err == 0 && *m; m = &(*m)->next)
    if ((*m)->at == p) {
      struct made* found = *m;
      *m = found->next;
      free(found);
      break;
    }
  pthread_mutex_unlock(&lock);
  return err ? not_freed(p, err) : ncclSuccess;
}

/* ON_DEVICE calls a function of the runtime with the device current, which the default streams need. */
#define ON_DEVICE(device, what, call)                                                                        \
  do {                                                                                                       \
    ncclResult_t r_ = cuda_enter(device);                                                                    \
    if (r_ != ncclSuccess) return r_;                                                                        \
    int err_ = (call);                                                                                       \
    cuda_leave(device);                                                                                      \
    return err_ ? fail(ncclUnhandledCudaError, "device %d: %s: HIP error %d", device, what, err_) : ncclSuccess; \
  } while (0)

ncclResult_t cuda_settle(int device) { ON_DEVICE(device, "waiting for its work", hip.hipDeviceSynchronize()); }

ncclResult_t cuda_check_pointer(int device, const void* p, const char* function, const char* name) {
  int of = 0, err = hip.hipPointerGetAttribute(&of, ORDINAL, (void*)(uintptr_t)p);
  if (err) return fail(ncclInvalidArgument, "%s : %s %p is not a valid pointer: the runtime knows no memory there (HIP error %d)", function, name, p, err);
  if (of != device) return fail(ncclInvalidArgument, "%s : %s %p is of device %d: expected memory of device %d", function, name, p, of, device);
  return ncclSuccess;
}

ncclResult_t cuda_event_new(void** event, int device) {
  *event = NULL;
  if (device < 0) return ncclSuccess;
  ON_DEVICE(device, "making an event", hip.hipEventCreateWithFlags(event, WITHOUT_TIMES));
}

void cuda_event_free(void* event, int device) {
  if (event == NULL || cuda_enter(device) != ncclSuccess) return;
  hip.hipEventDestroy(event);
  cuda_leave(device);
}

/* record and wait_for leave streams alone that are being captured. */
static int record(void* event, cudaStream_t stream, int* recorded) {
  int captured = 0, err = hip.hipStreamIsCapturing(stream, &captured);
  if (err == 0 && !captured && (err = hip.hipEventRecord(event, stream)) == 0) *recorded = 1;
  return err;
}

static int wait_for(void* event, cudaStream_t stream) {
  int captured = 0, err = hip.hipStreamIsCapturing(stream, &captured);
  return err == 0 && !captured ? hip.hipStreamWaitEvent(stream, event, 0) : err;
}

ncclResult_t cuda_event_record(void* event, int device, cudaStream_t stream, int* recorded) {
  ON_DEVICE(device, "recording an event", record(event, stream, recorded));
}

ncclResult_t cuda_event_wait(void* event, int device, cudaStream_t stream) {
  ON_DEVICE(device, "waiting for an event", wait_for(event, stream));
}

int cuda_capturing(int device, cudaStream_t stream) {
  int capturing = 0;
  if (enter(device) != 0) return 0;
  if (hip.hipStreamIsCapturing(stream, &capturing) != 0) capturing = 0;
  leave();
  return capturing != 0;
}

/* follow has a stream wait for what is on another one. */
static int follow(cudaStream_t stream, cudaStream_t for_stream) {
  void* event = NULL;
  int err = hip.hipEventCreateWithFlags(&event, WITHOUT_TIMES);
  if (err == 0) err = hip.hipEventRecord(event, for_stream);
  if (err == 0) err = hip.hipStreamWaitEvent(stream, event, 0);
  if (event) hip.hipEventDestroy(event); /* once it has happened */
  return err;
}

ncclResult_t cuda_wait(int device, cudaStream_t stream, cudaStream_t for_stream) {
  ON_DEVICE(device, "a group: a stream waits for another one", follow(stream, for_stream));
}

int cuda_relax(void) {
  int mode = 2; /* relaxed */
  return cuda_count() > 0 && hip.hipThreadExchangeStreamCaptureMode(&mode) == 0 ? mode : -1;
}

void cuda_restore(int mode) {
  if (mode >= 0) (void)hip.hipThreadExchangeStreamCaptureMode(&mode);
}

int cuda_mark(int device, cudaStream_t stream, void** event) {
  int recorded = 0;
  *event = NULL;
  if (enter(device) != 0) return 0;
  if (hip.hipEventCreateWithFlags(event, 0) != 0) *event = NULL;
  if (*event && (record(*event, stream, &recorded) != 0 || !recorded)) {
    hip.hipEventDestroy(*event);
    *event = NULL;
  }
  leave();
  return *event != NULL;
}

int cuda_marks_apart(int device, void* from, void* to, float* milliseconds) {
  enum { NOT_READY = 600 };
  if (enter(device) != 0) return -1;
  int err = hip.hipEventQuery(to);
  if (err == 0) err = hip.hipEventElapsedTime(milliseconds, from, to);
  leave();
  return err == 0 ? 1 : err == NOT_READY ? 0 : -1;
}

uint64_t cuda_bus(int device) {
  char text[32] = "";
  return device >= 0 && cuda_count() > 0 && hip.hipDeviceGetPCIBusId(text, sizeof text, device) == 0 ? bus_number(text) : 0;
}
