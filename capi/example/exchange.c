/* A program with a kernel of its own: two ranks exchange numbers through a memory channel, in memory of the host.
 *
 *   c++ -std=c++17 -O2 -shared -fPIC $(pkg-config --cflags mscclpp) exchange.cc -o exchange.so
 *   cc exchange.c $(pkg-config --cflags --libs mscclpp) -o exchange
 *   mscclpp-run -n 2 ./exchange exchange.so
 *
 * For GPUs the kernel is compiled to PTX (docs/c-api.md), and the communicator's options name the device. */
#include <mscclpp.h>
#include <stdio.h>
#include <stdlib.h>

#include "exchange.h"

static mscclpp_comm_t comm;

/* check ends the program, and with it the job, if a call has failed. */
static void check(const char *call, mscclpp_result_t result) {
  if (result == MSCCLPP_SUCCESS) return;
  fprintf(stderr, "%s: %s: %s\n", call, mscclpp_result_name(result), mscclpp_last_error());
  mscclpp_comm_abort(comm, call);
  exit(EXIT_FAILURE);
}

/* contents reads a file. */
static void *contents(const char *name, size_t *bytes) {
  void *all = malloc(1 << 20);
  FILE *f = fopen(name, "rb");
  if (f == NULL || all == NULL) {
    perror(name);
    exit(EXIT_FAILURE);
  }
  *bytes = fread(all, 1, 1 << 20, f);
  fclose(f);
  return all;
}

int main(int argc, char **argv) {
  mscclpp_launch_options_t launch = MSCCLPP_LAUNCH_OPTIONS_INIT;
  mscclpp_memory_t memory;
  mscclpp_channel_t channel;
  mscclpp_module_t module;
  mscclpp_kernel_t kernel;
  struct exchange args = {{0}, 0, 0, 0};
  size_t bytes, size = sizeof args.channel;
  int32_t rank, i;
  void *image, *at;

  if (argc != 2) {
    fprintf(stderr, "usage: %s IMAGE\n", argv[0]);
    return EXIT_FAILURE;
  }
  check("create", mscclpp_comm_create(NULL, &comm));
  check("join", mscclpp_comm_join(comm));
  check("rank", mscclpp_comm_rank(comm, &rank));
  check("alloc", mscclpp_memory_alloc(comm, 2 * EXCHANGE_COUNT * sizeof(uint32_t), &memory));
  check("range", mscclpp_memory_range(memory, &at, &bytes));
  check("channel", mscclpp_memory_channel(comm, 1 - rank, memory, &channel));
  check("handle", mscclpp_channel_handle(channel, args.channel, &size));

  image = contents(argv[1], &bytes);
  check("load", mscclpp_module_load(comm, image, bytes, &module));
  free(image);
  check("kernel", mscclpp_module_kernel(module, "exchange", &kernel));
  args.memory = (uint64_t)(uintptr_t)at;
  args.rank = (uint32_t)rank;
  launch.block = 256;
  check("launch", mscclpp_kernel_launch(kernel, &launch, &args, sizeof args));

  for (i = 0; i < EXCHANGE_COUNT; i++) {
    uint32_t want = 1000000u * (uint32_t)(2 - rank) + (uint32_t)i, got = ((uint32_t *)at)[EXCHANGE_COUNT + i];
    if (got != want) {
      fprintf(stderr, "rank %d: number %d is %u: expected %u\n", (int)rank, (int)i, (unsigned)got, (unsigned)want);
      return EXIT_FAILURE;
    }
  }
  printf("rank %d: %d numbers of the peer are right\n", (int)rank, EXCHANGE_COUNT);
  check("destroy", mscclpp_comm_destroy(comm));
  return EXIT_SUCCESS;
}
