/* Host time of an eager ncclAllReduce of 1 KiB, beside that of launching an empty kernel, in one process per rank:
 *
 *     cc -O2 hosttime.c -I FOLDER_OF_NCCL_H -lnccl -ldl -o hosttime
 *     RANK=0 WORLD_SIZE=2 ID_FILE=/tmp/id ./hosttime & RANK=1 WORLD_SIZE=2 ID_FILE=/tmp/id ./hosttime
 *
 * Calls are made in runs that the stream can hold, so the host never waits for the device; the stream is empty before each run. The
 * least and the median of many runs are printed, in nanoseconds a call. The driver is opened by this program, and the
 * empty kernel is PTX with as many bytes of parameters as a call of a library passes: 256. Launching it has one attribute,
 * programmatic stream serialization, or none: the cheaper counts.
 *
 * On the emulated driver with NO_KERNEL=1 and nolaunch.c around it launches take nothing, so what is measured is the library's
 * own time: that of the thread, since such a machine has other work.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MSCCLPP_NCCL_NO_CUDA
#include "nccl.h"

enum { CALLS = 200, RUNS = 101, COUNT = 256, PARAMETERS = 256 };

static void* driver;

static void check(int r, const char* what) {
  if (r == 0) return;
  fprintf(stderr, "hosttime: %s: %d %s\n", what, r, strncmp(what, "nccl", 4) ? "" : ncclGetLastError(NULL));
  exit(1);
}
#define CUDA(name, types, ...) check(((int(*) types)dlsym(driver, #name))(__VA_ARGS__), #name)
#define NCCL(call) check((int)(call), #call)

static clockid_t clock_used = CLOCK_MONOTONIC;

static double now(void) {
  struct timespec t;
  clock_gettime(clock_used, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int compare(const void* a, const void* b) {
  double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/* CUlaunchConfig and CUlaunchAttribute of cuda.h. */
struct attribute {
  int id, pad;
  union {
    int on;
    char bytes[64];
  } value;
};
struct config {
  unsigned grid[3], block[3], shared;
  void* stream;
  struct attribute* attributes;
  unsigned count;
};

static const char ptx[] =
    ".version 7.8\n.target sm_80\n.address_size 64\n"
    ".visible .entry empty(.param .align 8 .b8 p[256])\n{\n\tret;\n}\n";

static void *kernel, *stream, *buffer;
static ncclComm_t comm;
static struct attribute serialization = {.id = 6, .value = {.on = 1}};
static char parameters[PARAMETERS];

static void launch_empty(unsigned attributes) {
  static int (*launch)(const struct config*, void*, void**, void**);
  if (launch == NULL) *(void**)&launch = dlsym(driver, "cuLaunchKernelEx");
  struct config c = {{1, 1, 1}, {64, 1, 1}, 0, stream, &serialization, attributes};
  void* at[] = {parameters};
  check(launch(&c, kernel, at, NULL), "cuLaunchKernelEx");
}

static void one_plain(void) { launch_empty(0); }
static void one_serialized(void) { launch_empty(1); }
static void one_reduction(void) { NCCL(ncclAllReduce(buffer, buffer, COUNT, ncclFloat32, ncclSum, comm, stream)); }

static double measure(const char* what, void (*call)(void), double* least) {
  static double runs[RUNS];
  for (int i = 0; i < CALLS; i++) call();
  CUDA(cuStreamSynchronize, (void*), stream);
  for (int r = 0; r < RUNS; r++) {
    double begin = now();
    for (int i = 0; i < CALLS; i++) call();
    runs[r] = (now() - begin) / CALLS;
    CUDA(cuStreamSynchronize, (void*), stream);
  }
  qsort(runs, RUNS, sizeof *runs, compare);
  *least = runs[0];
  fprintf(stderr, "%s: least %.0f median %.0f ns\n", what, runs[0], runs[RUNS / 2]);
  return runs[RUNS / 2];
}

int main(void) {
  int rank = atoi(getenv("RANK")), size = atoi(getenv("WORLD_SIZE"));
  const char *path = getenv("ID_FILE"), *named = getenv("MSCCLPP_CUDA_LIBRARY");
  char part[4096];
  void *context, *module;
  ncclUniqueId id;
  snprintf(part, sizeof part, "%s.part", path);
  if (rank == 0) {
    NCCL(ncclGetUniqueId(&id));
    FILE* f = fopen(part, "wb");
    if (f == NULL || fwrite(&id, sizeof id, 1, f) != 1 || fclose(f) != 0 || rename(part, path) != 0) check(1, "writing the id");
  } else {
    FILE* f;
    for (int tries = 0; (f = fopen(path, "rb")) == NULL; tries++) {
      if (tries == 3000) check(1, "waiting for the id");
      usleep(10000);
    }
    if (fread(&id, sizeof id, 1, f) != 1) check(1, "reading the id");
    fclose(f);
  }
  if ((driver = dlopen(named ? named : "libcuda.so.1", RTLD_NOW)) == NULL) check(1, dlerror());
  CUDA(cuInit, (unsigned), 0);
  CUDA(cuDevicePrimaryCtxRetain, (void**, int), &context, rank);
  CUDA(cuCtxSetCurrent, (void*), context);
  CUDA(cuStreamCreateWithPriority, (void**, unsigned, int), &stream, 1, 0);
  CUDA(cuMemAlloc_v2, (void**, size_t), &buffer, 4 * COUNT);
  NCCL(ncclCommInitRank(&comm, size, id, rank));
  int version;
  NCCL(ncclGetVersion(&version));
  one_reduction();
  CUDA(cuStreamSynchronize, (void*), stream);
  void (*launch_nothing)(int);
  *(void**)&launch_nothing = dlsym(driver, "launch_nothing");
  if (launch_nothing) {
    launch_nothing(1);
    clock_used = CLOCK_THREAD_CPUTIME_ID;
  }
  double least, reduction, plain = 0, serialized = 0, plain_least = 0, serialized_least = 0;
  reduction = measure("ncclAllReduce of 1 KiB", one_reduction, &least);
  if (getenv("NO_KERNEL") == NULL) { /* an emulated driver has none */
    CUDA(cuModuleLoadData, (void**, const void*), &module, ptx);
    CUDA(cuModuleGetFunction, (void**, void*, const char*), &kernel, module, "empty");
    plain = measure("empty kernel, no attribute", one_plain, &plain_least);
    serialized = measure("empty kernel, programmatic serialization", one_serialized, &serialized_least);
  }
  if (rank == 0) {
    char which[256] = "nccl";
    Dl_info info;
    if (dlsym(RTLD_DEFAULT, "ncclAllReduce") && dladdr(dlsym(RTLD_DEFAULT, "ncclAllReduce"), &info)) snprintf(which, sizeof which, "%s", info.dli_fname);
    printf("ROW {\"file\": \"%s\", \"version\": %d, \"all_reduce_ns\": %.0f, \"least_ns\": %.0f, \"empty_ns\": %.0f, \"empty_least_ns\": %.0f, \"empty_serialized_ns\": %.0f, \"empty_serialized_least_ns\": %.0f}\n",
           which, version, reduction, least, plain, plain_least, serialized, serialized_least);
    printf("CLIENT host time [%s]: all_reduce of 1 KiB %.0f ns, empty kernel %.0f or %.0f\n", which, reduction, plain, serialized);
  }
  NCCL(ncclCommDestroy(comm));
  return 0;
}
