/* A kernel of the program, on the host and on a GPU: what is refused, and that none is launched after a failure. IMAGE names the image. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "../example/exchange.h"
#include "client.h"

static mscclpp_comm_t comm;
static void *driver; /* NULL: the host */

#define CALL(name, types, ...) TRUE(((int(*) types)dlsym(driver, #name))(__VA_ARGS__) == 0)

static size_t contents(const char *name, unsigned char *all, size_t room) {
  FILE *f = fopen(name, "rb");
  size_t n;
  TRUE(f != NULL);
  n = fread(all, 1, room, f);
  fclose(f);
  return n;
}

static void refusals(const unsigned char *image, size_t bytes, mscclpp_module_t module, mscclpp_kernel_t kernel, mscclpp_launch_options_t o) {
  struct exchange args = {{0}, 0, 0, 0};
  mscclpp_module_t other;
  mscclpp_kernel_t none = kernel;
  REFUSES(mscclpp_module_load(comm, NULL, bytes, &other), MSCCLPP_INVALID, "expected an image");
  REFUSES(mscclpp_module_load(comm, image, 0, &other), MSCCLPP_INVALID, "expected an image");
  REFUSES(mscclpp_module_load(comm, "nothing", 8, &other), MSCCLPP_INVALID, "load");
  REFUSES(mscclpp_module_load(comm, image, bytes / 2, &other), MSCCLPP_INVALID, "load");
  TRUE(other == NULL);
  REFUSES(mscclpp_module_kernel(module, "no_such_kernel", &none), MSCCLPP_INVALID, "no_such_kernel");
  TRUE(none == NULL);
  REFUSES(mscclpp_module_kernel(module, NULL, &none), MSCCLPP_INVALID, "the symbol is NULL");
  REFUSES(mscclpp_kernel_launch((mscclpp_kernel_t)module, &o, &args, sizeof args), MSCCLPP_INVALID, "is a module: expected a kernel");
  REFUSES(mscclpp_kernel_launch(kernel, &o, NULL, sizeof args), MSCCLPP_INVALID, "bytes of arguments");
  REFUSES(mscclpp_kernel_launch(kernel, &o, &args, 4097), MSCCLPP_INVALID, "expected 1 to 4096");
  o.grid = 0;
  REFUSES(mscclpp_kernel_launch(kernel, &o, &args, sizeof args), MSCCLPP_INVALID, "a grid of 0 blocks");
  o.grid = o.reserved = 1;
  REFUSES(mscclpp_kernel_launch(kernel, &o, &args, sizeof args), MSCCLPP_INVALID, "reserved");
  OK(mscclpp_module_free(NULL));
}

/* received checks what the peer has stored here. */
static void received(const void *at, int32_t rank, void *stream) {
  static uint32_t all[2 * EXCHANGE_COUNT];
  int i;
  if (driver == NULL)
    memcpy(all, at, sizeof all);
  else {
    CALL(cuMemcpyDtoHAsync_v2, (void *, uint64_t, size_t, void *), all, (uint64_t)(uintptr_t)at, sizeof all, stream);
    CALL(cuStreamSynchronize, (void *), stream);
  }
  for (i = 0; i < EXCHANGE_COUNT; i++) TRUE(all[EXCHANGE_COUNT + i] == 1000000u * (uint32_t)(2 - rank) + (uint32_t)i);
}

void kernels(void) {
  static unsigned char image[1 << 20];
  mscclpp_comm_options_t options = MSCCLPP_COMM_OPTIONS_INIT;
  mscclpp_launch_options_t launch = MSCCLPP_LAUNCH_OPTIONS_INIT;
  mscclpp_memory_t memory;
  mscclpp_channel_t channel;
  mscclpp_module_t module, left;
  mscclpp_kernel_t kernel, gone;
  struct exchange args = {{0}, 0, 0, 0};
  size_t bytes = contents(getenv("IMAGE"), image, sizeof image), size = sizeof args.channel;
  int32_t rank;
  void *at, *context;

  if (getenv("MSCCLPP_CUDA_LIBRARY") != NULL) {
    TRUE((driver = dlopen(getenv("MSCCLPP_CUDA_LIBRARY"), RTLD_NOW)) != NULL);
    CALL(cuInit, (unsigned), 0);
    CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, atoi(getenv("LOCAL_RANK")));
    CALL(cuCtxSetCurrent, (void *), context);
    CALL(cuStreamCreateWithPriority, (void **, unsigned, int), &launch.stream, 1, 0);
    options.device = "cuda";
  }
  launch.block = 64;
  TRUE(mscclpp_supports("kernels") == 1);
  OK(mscclpp_comm_create(&options, &comm));
  REFUSES(mscclpp_module_load(comm, image, bytes, &module), MSCCLPP_INVALID, "was not joined");
  OK(mscclpp_comm_join(comm));
  OK(mscclpp_comm_rank(comm, &rank));
  OK(mscclpp_memory_alloc(comm, 2 * EXCHANGE_COUNT * sizeof(uint32_t), &memory));
  OK(mscclpp_memory_range(memory, &at, &bytes));
  OK(mscclpp_memory_channel(comm, 1 - rank, memory, &channel));
  OK(mscclpp_channel_handle(channel, args.channel, &size));
  bytes = contents(getenv("IMAGE"), image, sizeof image);
  OK(mscclpp_module_load(comm, image, bytes, &module));
  OK(mscclpp_module_load(comm, image, bytes, &left));
  OK(mscclpp_module_kernel(left, "exchange", &gone));
  OK(mscclpp_module_free(left));
  REFUSES(mscclpp_kernel_launch(gone, &launch, &args, sizeof args), MSCCLPP_INVALID, "a kernel that was destroyed");
  OK(mscclpp_module_kernel(module, "exchange", &kernel));
  refusals(image, bytes, module, kernel, launch);

  args.memory = (uint64_t)(uintptr_t)at;
  args.rank = (uint32_t)rank;
  OK(mscclpp_kernel_launch(kernel, &launch, &args, sizeof args));
  received(at, rank, launch.stream);

  if (rank == 0) {
    OK(mscclpp_comm_abort(comm, "enough"));
  } else {
    while (mscclpp_comm_status(comm) == MSCCLPP_SUCCESS) continue;
    REFUSES(mscclpp_kernel_launch(kernel, &launch, &args, sizeof args), MSCCLPP_PEER, "enough");
    OK(mscclpp_comm_destroy(comm));
    REFUSES(mscclpp_kernel_launch(kernel, &launch, &args, sizeof args), MSCCLPP_INVALID, "a kernel that was destroyed");
    REFUSES(mscclpp_module_free(module), MSCCLPP_INVALID, "a module that was destroyed");
  }
}
