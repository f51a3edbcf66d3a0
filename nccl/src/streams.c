#include "streams.h"

#include "cuda.h"
#include "log.h"

static int has(const cudaStream_t* list, size_t n, cudaStream_t s) {
  for (size_t i = 0; i < n; i++)
    if (list[i] == s) return 1;
  return 0;
}

ncclResult_t streams_check(int device, const struct door_call* calls, size_t n, int* captured) {
  for (size_t i = 0; i < n; i++) {
    if (i > 0 && calls[i].stream == calls[i - 1].stream) continue;
    int is = cuda_capturing(device, calls[i].stream);
    if (*captured < 0) *captured = is;
    if (is != *captured)
      return fail(ncclInvalidUsage, "a group has calls on streams that are captured and on others: expected one kind, as stream %p is %scaptured", (void*)calls[i].stream, is ? "" : "not ");
  }
  return ncclSuccess;
}

ncclResult_t streams_join(int device, struct door_call* calls, size_t n, cudaStream_t* others, size_t* count) {
  cudaStream_t all = calls[0].stream;
  ncclResult_t r = ncclSuccess;
  *count = 0;
  for (size_t i = 1; i < n && r == ncclSuccess; i++) {
    cudaStream_t own = calls[i].stream;
    calls[i].stream = all;
    if (own == all || has(others, *count, own)) continue;
    others[(*count)++] = own;
    r = cuda_wait(device, all, own);
  }
  return r;
}

ncclResult_t streams_part(int device, const struct door_call* calls, const cudaStream_t* others, size_t count) {
  ncclResult_t r = ncclSuccess;
  for (size_t i = 0; i < count && r == ncclSuccess; i++) r = cuda_wait(device, others[i], calls[0].stream);
  return r;
}
