/* What the tests of windows share: NCCL's device interface as its headers declare it, and kernels of the emulated GPU. */
#pragma once

#include "device.h"

struct lsa_barrier {
  uint32_t buffer;
  int count;
};
struct resource {
  struct resource* next;
  size_t size, align;
  uint32_t* handle;
  int signals, counters;
  uint32_t *first_signal, *first_counter;
};
struct team {
  int ranks, rank, stride;
};
struct team_wish {
  struct team_wish* next;
  struct team team;
  _Bool multicast;
  void** handle;
};
struct wishes {
  struct resource* resources;
  struct team_wish* teams;
  _Bool multicast;
  int barriers, lsa_barriers, rail_barriers, blocks, slots;
  _Bool gin;
  int contexts, signals, counters;
};
struct newer_wishes {
  size_t size;
  unsigned magic, version;
  struct wishes wishes;
  int more[8];
};
ncclResult_t ncclDevCommCreate(ncclComm_t, const void* wishes, void* out);
ncclResult_t ncclDevCommDestroy(ncclComm_t, const void*);
ncclResult_t ncclWinGetUserPtr(ncclComm_t, ncclWindow_t, void** out);
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t, size_t, int, void** out);
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t, size_t, int, void** out);
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t, size_t, void** out);
ncclResult_t ncclLsaBarrierCreateRequirement(struct team, int, struct lsa_barrier*, struct resource*);
ncclResult_t ncclLLA2ACreateRequirement(int, int, struct lsa_barrier*, struct resource*);
int ncclLLA2ACalcSlots(int, int);
struct team ncclTeamWorld(ncclComm_t);
struct team ncclTeamLsa(ncclComm_t);
struct team ncclTeamRail(ncclComm_t);
int ncclTeamRankToWorld(ncclComm_t, struct team, int);
int ncclTeamRankToLsa(ncclComm_t, struct team, int);

enum { DEVCOMM = 256, KIB = 1024, MIB = 1024 * KIB };

/* Arguments of window_exchange and window_find. */
struct exchange {
  const void *window, *head;
  uint64_t offset;
  int barrier;
  uint64_t* result;
};
struct search {
  const void* head;
  uintptr_t at;
  void** result;
};

/* kernel_of loads a kernel for the device that is current. */
static inline void* kernel_of(const char* name) {
  static char image[1 << 20];
  void *module, *function;
  FILE* f = fopen(getenv("TEST_KERNEL"), "rb");
  EXPECT(f != NULL && fread(image, 1, sizeof image, f) > 0);
  fclose(f);
  CUDA(cuModuleLoadDataEx, (void**, const void*, unsigned, int*, void**), &module, image, 0, NULL, NULL);
  CUDA(cuModuleGetFunction, (void**, void*, const char*), &function, module, name);
  return function;
}

/* launch starts a kernel of one block of one thread with one argument, as CUlaunchConfig says it. */
static inline void launch(void* kernel, void* stream, void* argument) {
  struct {
    unsigned grid[3], block[3], shared;
    void* stream;
    void* attributes;
    unsigned count;
  } config = {{1, 1, 1}, {1, 1, 1}, 0, stream, NULL, 0};
  CUDA(cuLaunchKernelEx, (const void*, void*, void**, void**), &config, kernel, &argument, NULL);
}

static inline void* memory_new(size_t size) {
  void* p;
  NCCL(ncclMemAlloc(&p, size));
  memset(p, 0, size);
  return p;
}

static inline ncclWindow_t window_new(ncclComm_t comm, void* p, size_t size) {
  ncclWindow_t w;
  NCCL(ncclCommWindowRegister(comm, p, size, &w, NCCL_WIN_COLL_SYMMETRIC));
  return w;
}

static inline size_t free_memory(void) {
  size_t available, total;
  CUDA(cuMemGetInfo_v2, (size_t*, size_t*), &available, &total);
  return available;
}
