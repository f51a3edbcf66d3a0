/* Collectives on GPUs, with streams and ordinary memory of the program, eagerly and in a graph. The driver is that
 * of MSCCLPP_CUDA_LIBRARY, which tests set to an emulated one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

#include "client.h"

enum { COUNT = 1000 };

static void *driver;

/* CALL calls a function of the driver, whose types are those of the arguments. */
#define CALL(name, types, ...) demand(__FILE__, __LINE__, #name, ((int(*) types)function(#name))(__VA_ARGS__) == 0)

static void *function(const char *name) {
  void *f = dlsym(driver, name);
  if (f == NULL) fprintf(stderr, "the driver has no %s\n", name);
  TRUE(f != NULL);
  return f;
}

static void put(uint64_t at, const float *x, void *stream) {
  CALL(cuMemcpyHtoDAsync_v2, (uint64_t, const void *, size_t, void *), at, x, COUNT * sizeof *x, stream);
}

static void get(float *x, uint64_t at, void *stream) {
  CALL(cuMemcpyDtoHAsync_v2, (void *, uint64_t, size_t, void *), x, at, COUNT * sizeof *x, stream);
  CALL(cuStreamSynchronize, (void *), stream);
}

/* unchanged demands that a call has left the current context of this thread alone. */
static void unchanged(int line, void *context) {
  void *current;
  CALL(cuCtxGetCurrent, (void **), &current);
  if (current != context) fprintf(stderr, "line %d: the current context is %p: expected %p\n", line, current, context);
  TRUE(current == context);
}

/* open_driver opens the driver, and makes the GPU of this rank current. */
static void *open_driver(void) {
  void *context;
  TRUE((driver = dlopen(getenv("MSCCLPP_CUDA_LIBRARY"), RTLD_NOW)) != NULL);
  CALL(cuInit, (unsigned), 0);
  CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, atoi(getenv("LOCAL_RANK")));
  CALL(cuCtxSetCurrent, (void *), context);
  return context;
}

/* A kernel waits for a rank that never makes the call: abort ends it, its stream drains, and the other rank learns why. */
void spinning(void) {
  mscclpp_comm_options_t options = MSCCLPP_COMM_OPTIONS_INIT;
  mscclpp_call_options_t call = MSCCLPP_CALL_OPTIONS_INIT;
  mscclpp_comm_t comm;
  void *stream, *buffer;
  uint64_t at;
  int32_t rank;

  open_driver();
  CALL(cuStreamCreateWithPriority, (void **, unsigned, int), &stream, 1, 0);
  CALL(cuMemAlloc_v2, (uint64_t *, size_t), &at, 1 << 20);
  buffer = (void *)(uintptr_t)at;
  options.device = "cuda";
  OK(mscclpp_comm_create(&options, &comm));
  OK(mscclpp_comm_join(comm));
  OK(mscclpp_comm_rank(comm, &rank));
  call.stream = stream;
  OK(mscclpp_all_reduce(comm, buffer, buffer, COUNT, MSCCLPP_FLOAT32, MSCCLPP_SUM, &call));
  CALL(cuStreamSynchronize, (void *), stream);
  if (rank == 0) {
    OK(mscclpp_all_reduce(comm, buffer, buffer, COUNT, MSCCLPP_FLOAT32, MSCCLPP_SUM, &call));
    OK(mscclpp_comm_abort(comm, "enough"));
    CALL(cuStreamSynchronize, (void *), stream);
  } else {
    while (mscclpp_comm_status(comm) == MSCCLPP_SUCCESS) nanosleep(&(struct timespec){0, 1000000}, NULL);
    REFUSES(mscclpp_comm_status(comm), MSCCLPP_PEER, "enough");
    TRUE(mscclpp_last_error_rank() == 0);
    OK(mscclpp_comm_destroy(comm));
  }
}

/* windows of memory side by side, of which collectives use what all ranks have in place. */
static void arranged(mscclpp_comm_t comm, int rank, int ranks, mscclpp_call_options_t *call) {
  mscclpp_memory_t memory;
  mscclpp_window_t window;
  char *base, *peer, *own;
  size_t stride, size;
  float value, got;
  int i;

  REFUSES(mscclpp_window_arrange(comm, NULL, 4, &window), MSCCLPP_INVALID, "MSCCLPP_WINDOW_PRIVATE");
  OK(mscclpp_memory_alloc(comm, (size_t)(rank + 1) << 16, &memory));
  REFUSES(mscclpp_window_arrange(comm, rank == 0 ? NULL : memory, 0, &window), MSCCLPP_UNSUPPORTED, "no memory was given");
  TRUE(window == NULL);
  OK(mscclpp_window_arrange(comm, memory, 0, &window));
  OK(mscclpp_window_flat(window, (void **)&base, &stride));
  TRUE(stride > 0 && stride % ((size_t)4 << 30) == 0);
  OK(mscclpp_memory_range(memory, (void **)&own, NULL));
  for (i = 0; i < ranks; i++) {
    OK(mscclpp_window_peer(window, i, (void **)&peer, &size));
    TRUE(size == (size_t)(i + 1) << 16 && peer == (i == rank ? own : base + (size_t)i * stride));
  }
  value = (float)(rank + 1);
  OK(mscclpp_memory_write(memory, 64, &value, sizeof value));
  OK(mscclpp_all_reduce(comm, own + 64, own + 64, 1, MSCCLPP_FLOAT32, MSCCLPP_SUM, call));
  CALL(cuStreamSynchronize, (void *), call->stream);
  OK(mscclpp_memory_read(memory, 64, &got, sizeof got));
  TRUE(got == (float)(ranks * (ranks + 1) / 2));
  REFUSES(mscclpp_memory_write(memory, ((size_t)(rank + 1) << 16) - 3, &value, sizeof value), MSCCLPP_INVALID, "4 bytes at");
  REFUSES(mscclpp_memory_read(memory, 0, NULL, 1), MSCCLPP_INVALID, "to NULL");
  OK(mscclpp_barrier(comm, call));
  OK(mscclpp_comm_settle(comm, &call->stream, 1, 0));
  OK(mscclpp_window_free(window));
  REFUSES(mscclpp_window_flat(window, NULL, NULL), MSCCLPP_INVALID, "a window that was destroyed");
  OK(mscclpp_memory_free(memory));
}

void device(void) {
  mscclpp_comm_options_t options = MSCCLPP_COMM_OPTIONS_INIT;
  mscclpp_call_options_t call = MSCCLPP_CALL_OPTIONS_INIT;
  mscclpp_comm_t comm;
  mscclpp_memory_t registered, lasting;
  mscclpp_kept_t kept;
  mscclpp_window_t window;
  static float x[COUNT], y[COUNT];
  char text[64];
  size_t size = sizeof text;
  void *context, *stream, *graph, *exec, *address;
  uint64_t in, out;
  int32_t rank, ranks;
  int i, launches, gpu = atoi(getenv("LOCAL_RANK"));

  context = open_driver();
  CALL(cuStreamCreateWithPriority, (void **, unsigned, int), &stream, 1, 0);
  CALL(cuMemAlloc_v2, (uint64_t *, size_t), &in, 1 << 20);
  CALL(cuMemAlloc_v2, (uint64_t *, size_t), &out, 1 << 20);

  options.device = "cuda";
  OK(mscclpp_comm_create(&options, &comm));
  OK(mscclpp_comm_join(comm));
  unchanged(__LINE__, context);
  OK(mscclpp_comm_rank(comm, &rank));
  OK(mscclpp_comm_size(comm, &ranks));
  OK(mscclpp_comm_query(comm, "device", text, &size));
  TRUE(strncmp(text, "cuda:", 5) == 0 && atoi(text + 5) == gpu);

  /* Eagerly, from memory that nobody has registered. */
  for (i = 0; i < COUNT; i++) x[i] = (float)(rank + i);
  call.stream = stream;
  put(in, x, stream);
  OK(mscclpp_all_reduce(comm, (void *)(uintptr_t)in, (void *)(uintptr_t)out, COUNT, MSCCLPP_FLOAT32, MSCCLPP_SUM, &call));
  get(y, out, stream);
  unchanged(__LINE__, context);
  for (i = 0; i < COUNT; i++) TRUE(y[i] == (float)(ranks * i + ranks * (ranks - 1) / 2));

  /* In a graph, in place: each launch multiplies by the number of ranks. */
  CALL(cuStreamBeginCapture_v2, (void *, int), stream, 0);
  OK(mscclpp_all_reduce(comm, (void *)(uintptr_t)out, (void *)(uintptr_t)out, COUNT, MSCCLPP_FLOAT32, MSCCLPP_SUM, &call));
  CALL(cuStreamEndCapture, (void *, void **), stream, &graph);
  CALL(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long), &exec, graph, 0);
  for (launches = 0; launches < 3; launches++) CALL(cuGraphLaunch, (void *, void *), exec, stream);
  get(x, out, stream);
  for (i = 0; i < COUNT; i++) TRUE(x[i] == y[i] * (float)(ranks * ranks * ranks));
  CALL(cuGraphExecDestroy, (void *), exec);
  CALL(cuGraphDestroy, (void *), graph);

  /* In place from memory of the program that was registered. */
  OK(mscclpp_memory_register(comm, (void *)(uintptr_t)out, 1 << 20, &registered));
  OK(mscclpp_memory_range(registered, &address, NULL));
  TRUE((uintptr_t)address == out);
  OK(mscclpp_window_create(comm, registered, &window));
  REFUSES(mscclpp_window_flat(window, NULL, NULL), MSCCLPP_INVALID, "mscclpp_window_arrange");
  unchanged(__LINE__, context);
  put(out, y, stream);
  OK(mscclpp_all_reduce(comm, address, address, COUNT, MSCCLPP_FLOAT32, MSCCLPP_SUM, &call));
  get(x, out, stream);
  for (i = 0; i < COUNT; i++) TRUE(x[i] == y[i] * (float)ranks);

  OK(mscclpp_comm_settle(comm, &stream, 1, 0));
  OK(mscclpp_comm_check(comm));
  unchanged(__LINE__, context);
  arranged(comm, rank, ranks, &call);
  unchanged(__LINE__, context);
  OK(mscclpp_memory_free(registered));
  unchanged(__LINE__, context);

  /* Memory that is kept outlives mscclpp_memory_free and the communicator: other owners of its address still use it. */
  OK(mscclpp_memory_alloc(comm, sizeof x, &lasting));
  OK(mscclpp_memory_range(lasting, &address, NULL));
  OK(mscclpp_memory_keep(lasting, &kept));
  OK(mscclpp_memory_free(lasting));
  put((uintptr_t)address, y, stream);
  OK(mscclpp_comm_destroy(comm));
  unchanged(__LINE__, context);
  get(x, (uintptr_t)address, stream);
  TRUE(memcmp(x, y, sizeof x) == 0);
  OK(mscclpp_memory_release(kept));
  unchanged(__LINE__, context);
  TRUE(((int (*)(void *, uint64_t, size_t))dlsym(driver, "cuMemcpyDtoH_v2"))(x, (uintptr_t)address, sizeof x) != 0);
  CALL(cuMemFree_v2, (uint64_t), in);
  CALL(cuMemFree_v2, (uint64_t), out);
  CALL(cuStreamDestroy_v2, (void *), stream);
}
