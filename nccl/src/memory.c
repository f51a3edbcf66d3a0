/* Memory: allocation, registration, windows. */
#include <stdlib.h>

#include "comm.h"
#include "cuda.h"
#include "export.h"
#include "fork.h"
#include "log.h"

EXPORT(ncclResult_t, MemAlloc, void** ptr, size_t size) {
  if (ptr == NULL) return fail(ncclInvalidArgument, "ncclMemAlloc : ptr argument is NULL");
  *ptr = NULL;
  if (after_fork()) return fork_refusal("ncclMemAlloc");
  if (size == 0) return ncclSuccess;
  return cuda_alloc(cuda_current(), size, ptr);
}

EXPORT(ncclResult_t, MemFree, void* ptr) {
  if (ptr == NULL || after_fork()) return ncclSuccess;
  return cuda_free(ptr);
}

/* A registration is a promise of the program, not of its peers: it is noted, and selects nothing.
 * The handle is one of these, so that a wrong one is found. */
struct registration {
  unsigned magic;
  ncclComm_t comm;
};
enum { REGISTERED = 0x72656731 };

EXPORT(ncclResult_t, CommRegister, const ncclComm_t comm, void* buff, size_t size, void** handle) {
  ncclResult_t r = comm_enter(comm, "ncclCommRegister", NEED_READY);
  if (r != ncclSuccess) return r;
  struct registration* h = NULL;
  if (handle == NULL || buff == NULL)
    r = fail(ncclInvalidArgument, "ncclCommRegister : %s argument is NULL", handle ? "buff" : "handle");
  else if (size == 0)
    r = fail(ncclInvalidArgument, "ncclCommRegister : size argument is 0");
  else if ((h = malloc(sizeof *h)) == NULL)
    r = fail(ncclSystemError, "ncclCommRegister : out of memory");
  if (r == ncclSuccess) {
    *h = (struct registration){REGISTERED, comm};
    *handle = h;
  }
  comm_leave(comm);
  return r;
}

EXPORT(ncclResult_t, CommDeregister, const ncclComm_t comm, void* handle) {
  if (handle == NULL || after_fork()) return ncclSuccess;
  ncclResult_t r = comm_enter(comm, "ncclCommDeregister", NEED_ALIVE);
  if (r != ncclSuccess) return r;
  struct registration* h = handle;
  if (h->magic != REGISTERED || h->comm != comm) {
    r = fail(ncclInvalidUsage, "ncclCommDeregister : handle %p is none of this communicator", handle);
  } else {
    h->magic = 0;
    free(h);
  }
  comm_leave(comm);
  return r;
}

/* Windows that other ranks' kernels read are not provided: Success and a NULL window is how NCCL
 * says so, and what its clients understand. */
EXPORT(ncclResult_t, CommWindowRegister, ncclComm_t comm, void* buff, size_t size, ncclWindow_t* window, int flags) {
  ncclResult_t r = comm_enter(comm, "ncclCommWindowRegister", NEED_READY);
  if (r != ncclSuccess) return r;
  if (window == NULL || buff == NULL || size == 0)
    r = fail(ncclInvalidArgument, "ncclCommWindowRegister : %s", window ? "expected a buffer and a size" : "win argument is NULL");
  else if (flags & ~3)
    r = fail(ncclInvalidArgument, "ncclCommWindowRegister : flags 0x%x: expected NCCL_WIN_DEFAULT or NCCL_WIN_COLL_SYMMETRIC", flags);
  if (r == ncclSuccess) {
    *window = NULL;
    log_info(SUB_REG, comm->device, "ncclCommWindowRegister: windows are not supported by this library: the window is NULL, which clients take for that");
  }
  comm_leave(comm);
  return r;
}

EXPORT(ncclResult_t, CommWindowDeregister, ncclComm_t comm, ncclWindow_t window) {
  if (window == NULL || after_fork()) return ncclSuccess;
  ncclResult_t r = comm_enter(comm, "ncclCommWindowDeregister", NEED_ALIVE);
  if (r != ncclSuccess) return r;
  comm_leave(comm);
  return fail(ncclInvalidUsage, "ncclCommWindowDeregister : window %p is none of this library", (void*)window);
}
