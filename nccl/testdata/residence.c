/* One rank beside an emulated GPU: where memory and communicators are, as the configuration says. */
#include "device.h"

int main(void) {
  const char* where = getenv("TEST_WHERE");
  ncclUniqueId own;
  ncclComm_t comm = NULL;
  void *memory, *window = NULL;
  int device = -1, of_driver;
  place();
  device_open(0);
  NCCL(ncclMemAlloc(&memory, 4096)); /* before there is a communicator */
  of_driver = DRIVER(cuPointerGetAttribute, (void*, int, uintptr_t), &device, 9, (uintptr_t)memory) == 0;
  EXPECT(of_driver == (strcmp(where, "host") != 0));
  NCCL(ncclGetUniqueId(&own));
  if (strcmp(where, "mistake") == 0) {
    FAILS(ncclCommInitRank(&comm, 1, own, 0), ncclInvalidArgument, getenv("MSCCLPP_CONFIG"));
    EXPECT(comm == NULL);
    NCCL(ncclMemFree(memory));
    return 0;
  }
  NCCL(ncclCommInitRank(&comm, 1, own, 0));
  NCCL(ncclCommCuDevice(comm, &device));
  EXPECT(device == 0);
  NCCL(ncclCommWindowRegister(comm, memory, 4096, (ncclWindow_t*)&window, 0)); /* of memory on the device of the communicator */
  EXPECT((window != NULL) == of_driver);
  NCCL(ncclCommDestroy(comm));
  NCCL(ncclMemFree(memory));
  return 0;
}
