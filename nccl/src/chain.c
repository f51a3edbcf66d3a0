#include "chain.h"

#include <pthread.h>

#include "cuda.h"

enum { DEVICES = 64 };

/* The last calls on each device, by events that stay until the process ends. A driver whose queue is full blocks its caller
 * until the device goes on, which may need the call of another device's thread: each device has a lock of its own. */
static struct {
  pthread_mutex_t lock;
  void *last, *before; /* behind the last call and all earlier ones; behind those before the last communicator's. NULL: there is none */
  uint64_t id;         /* of the last one's communicator: ranks of one that share a device run side by side */
  uint64_t records;    /* of last, ever */
} devices[DEVICES];

static void make_locks(void) {
  for (int i = 0; i < DEVICES; i++) pthread_mutex_init(&devices[i].lock, NULL);
}

ncclResult_t chain_begin(ncclComm_t comm, cudaStream_t stream, uint64_t* behind) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  int d = comm->device;
  if (d >= DEVICES) return ncclSuccess;
  pthread_once(&once, make_locks);
  pthread_mutex_lock(&devices[d].lock);
  int same = devices[d].id == comm->id;
  void* event = same ? devices[d].before : devices[d].last;
  *behind = same ? 0 : devices[d].records;
  ncclResult_t r = event ? cuda_event_wait(event, d, stream) : ncclSuccess;
  pthread_mutex_unlock(&devices[d].lock);
  return r;
}

ncclResult_t chain_end(ncclComm_t comm, cudaStream_t stream, uint64_t behind) {
  int d = comm->device, recorded = 0;
  if (d >= DEVICES) return ncclSuccess;
  pthread_mutex_lock(&devices[d].lock);
  int same = devices[d].last && devices[d].id == comm->id;
  void* mark = same ? devices[d].last : devices[d].before;
  ncclResult_t r = ncclSuccess;
  /* Those that call at the same time, or as other ranks of this communicator, are behind the mark, too. */
  if (devices[d].records > behind) r = cuda_event_wait(devices[d].last, d, stream);
  if (r == ncclSuccess && mark == NULL) r = cuda_event_new(&mark, d);
  if (r == ncclSuccess) r = cuda_event_record(mark, d, stream, &recorded);
  if (recorded) {
    if (!same) devices[d].before = devices[d].last;
    devices[d].last = mark;
    devices[d].id = comm->id;
    devices[d].records++;
  } else if (mark && mark != devices[d].last) {
    devices[d].before = mark;
  }
  pthread_mutex_unlock(&devices[d].lock);
  return r;
}
