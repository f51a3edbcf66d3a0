#include "chain.h"

#include <pthread.h>

#include "cuda.h"
#include "env.h"

enum { DEVICES = 64 };

/* The last call on each device. */
static struct {
  void* mark; /* an event behind it; it stays until the process ends */
  int marked;
  uint64_t id; /* of its communicator: ranks of one that share a device run side by side */
} last[DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int chain_wanted(int device) { return device >= 0 && device < DEVICES && setting_number("NCCL_LAUNCH_ORDER_IMPLICIT", 0) == 1; }

ncclResult_t chain_begin(ncclComm_t comm, cudaStream_t stream) {
  int d = comm->device;
  ncclResult_t r = ncclSuccess;
  pthread_mutex_lock(&lock);
  if (last[d].marked && last[d].id != comm->id) r = cuda_event_wait(last[d].mark, d, stream);
  pthread_mutex_unlock(&lock);
  return r;
}

ncclResult_t chain_end(ncclComm_t comm, cudaStream_t stream) {
  int d = comm->device, recorded = 0;
  pthread_mutex_lock(&lock);
  ncclResult_t r = last[d].mark ? ncclSuccess : cuda_event_new(&last[d].mark, d);
  if (r == ncclSuccess) r = cuda_event_record(last[d].mark, d, stream, &recorded);
  if (recorded) {
    last[d].marked = 1;
    last[d].id = comm->id;
  }
  pthread_mutex_unlock(&lock);
  return r;
}
