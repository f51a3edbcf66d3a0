/* A communicator whose other rank never comes is destroyed, beside a thread whose calls fail all the time. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "client.h"

static atomic_int ended;

static void* fails(void* unused) {
  int n;
  while (!atomic_load(&ended)) {
    EXPECT(ncclCommCount(NULL, &n) == ncclInvalidArgument);
    usleep(20);
  }
  return unused;
}

int main(void) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm;
  pthread_t thread;
  config.blocking = 0;
  NCCL(ncclGetUniqueId(&id));
  EXPECT(ncclCommInitRankConfig(&comm, 2, id, 0, &config) == ncclInProgress);
  pthread_create(&thread, NULL, fails, NULL);
  EXPECT(ncclCommDestroy(comm) == ncclRemoteError);
  atomic_store(&ended, 1);
  pthread_join(thread, NULL);
  printf("ok\n");
  return 0;
}
