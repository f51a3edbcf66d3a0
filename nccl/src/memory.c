/* Memory: allocation and registration. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "comm.h"
#include "cuda.h"
#include "env.h"
#include "export.h"
#include "fallback.h"
#include "fork.h"
#include "log.h"
#include "windows.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Memory of the host: it is looked up here when it is freed, as a wrong address would end the process. */
static struct hosted {
  struct hosted* next;
  void* at;
}* hosted;

static ncclResult_t host_alloc(size_t size, void** out) {
  struct hosted* h = malloc(sizeof *h);
  void* at = h ? aligned_alloc(4096, (size + 4095) & ~(size_t)4095) : NULL;
  if (at == NULL) {
    free(h);
    return fail(ncclSystemError, "ncclMemAlloc : out of memory for %zu bytes", size);
  }
  pthread_mutex_lock(&lock);
  *h = (struct hosted){hosted, at};
  hosted = h;
  pthread_mutex_unlock(&lock);
  *out = at;
  return ncclSuccess;
}

/* host_free reports whether p was such memory. */
static int host_free(void* p) {
  pthread_mutex_lock(&lock);
  struct hosted** at = &hosted;
  while (*at && (*at)->at != p) at = &(*at)->next;
  struct hosted* found = *at;
  if (found) *at = found->next;
  pthread_mutex_unlock(&lock);
  if (found) free(p);
  free(found);
  return found != NULL;
}

EXPORT(ncclResult_t, MemAlloc, void** ptr, size_t size) {
  if (ptr == NULL) return fail(ncclInvalidArgument, "ncclMemAlloc : ptr argument is NULL");
  *ptr = NULL;
  if (after_fork()) return fork_refusal("ncclMemAlloc");
  if (size == 0) return ncclSuccess;
  if (size > PTRDIFF_MAX) return fail(ncclSystemError, "ncclMemAlloc : out of memory for %zu bytes: expected less than the address space has", size); /* rounded up it would be none */
  int device = cuda_current();
  if (device < 0) return host_alloc(size, ptr);
  int mode = cuda_relax(); /* new memory is no work of a stream, and spoils no capture */
  ncclResult_t r = cuda_alloc(device, size, ptr);
  cuda_restore(mode);
  return r;
}

EXPORT(ncclResult_t, MemFree, void* ptr) {
  if (ptr == NULL || after_fork() || host_free(ptr)) return ncclSuccess;
  if (cuda_count() == 0) return fail(ncclInvalidArgument, "ncclMemFree : %p: expected memory that ncclMemAlloc has given", ptr);
  int mode = cuda_relax(); /* nor is memory that is freed part of a capture */
  ncclResult_t r = cuda_quiet(ptr);
  if (r == ncclSuccess) {
    windows_of_memory(ptr, cuda_size(ptr));
    r = cuda_free(ptr);
  }
  cuda_restore(mode);
  return r;
}

/* A registration is a promise of the program, not of its peers: it is noted, and selects nothing. With MSCCLPP_NCCL_REGISTER=symmetric the
 * program promises it for all ranks, and each is a window. Handles are looked up in the list of their communicator, so that a wrong one
 * is found, whatever it points to. */
struct registration {
  struct registration* next;
  void* buff;
  size_t size;
  unsigned long uses;
  void* shadow; /* the handle of the other library, if operations fall back to one */
  ncclWindow_t window;
};

static struct registration* note(ncclComm_t comm, void* buff, size_t size) {
  pthread_mutex_lock(&lock);
  struct registration* h = comm->registrations;
  while (h && (h->buff != buff || h->size != size)) h = h->next;
  if (h) {
    h->uses++;
  } else if ((h = malloc(sizeof *h)) != NULL) {
    *h = (struct registration){.next = comm->registrations, .buff = buff, .size = size, .uses = 1};
    comm->registrations = h;
  }
  pthread_mutex_unlock(&lock);
  return h;
}

/* drop gives one use of a registration back; 0 for a handle that is none. With the last use *last is what it was. */
static int drop(ncclComm_t comm, const void* handle, struct registration* last) {
  *last = (struct registration){0};
  pthread_mutex_lock(&lock);
  struct registration** at = &comm->registrations;
  while (*at && *at != handle) at = &(*at)->next;
  struct registration* found = *at;
  if (found && --found->uses == 0) {
    *at = found->next;
    *last = *found;
    free(found);
  }
  pthread_mutex_unlock(&lock);
  return found != NULL;
}

void registrations_free(ncclComm_t comm) {
  struct registration* h = comm->registrations;
  comm->registrations = NULL;
  for (struct registration* next; h; h = next) {
    next = h->next;
    free(h);
  }
}

static int symmetric;
static pthread_once_t symmetric_once = PTHREAD_ONCE_INIT;

static void read_symmetric(void) {
  const char* v = setting("MSCCLPP_NCCL_REGISTER");
  symmetric = v && strcmp(v, "symmetric") == 0;
  if (v && *v && !symmetric && strcmp(v, "local") != 0) log_warning("MSCCLPP_NCCL_REGISTER=%s: expected local or symmetric: registrations are local", v);
}

/* share gives a new registration to the shadow, and has it be a window where the program promises that all ranks register. */
static ncclResult_t share(ncclComm_t comm, struct registration* h) {
  struct registration last;
  if (h->uses > 1) return ncclSuccess;
  pthread_once(&symmetric_once, read_symmetric);
  ncclResult_t r = fallback_register(comm, h->buff, h->size, &h->shadow);
  if (r == ncclSuccess && symmetric && comm->device >= 0) {
    struct window* w;
    r = window_open(comm, h->buff, h->size, NCCL_WIN_COLL_SYMMETRIC, &w); /* NULL: some rank has memory that cannot be mapped */
    if (r == ncclSuccess && w) h->window = w->at;
  }
  if (r != ncclSuccess && drop(comm, h, &last)) fallback_deregister(comm, last.shadow);
  return r;
}

EXPORT(ncclResult_t, CommRegister, const ncclComm_t comm, void* buff, size_t size, void** handle) {
  if (handle) *handle = NULL;
  if (after_fork()) return fork_refusal("ncclCommRegister");
  ncclResult_t r = comm_enter(comm, "ncclCommRegister", NEED_READY);
  if (r != ncclSuccess) return r;
  if (handle == NULL || buff == NULL)
    r = fail(ncclInvalidArgument, "ncclCommRegister : %s argument is NULL", handle ? "buff" : "handle");
  else if (size == 0)
    r = fail(ncclInvalidArgument, "ncclCommRegister : size argument is 0");
  else if ((*handle = note(comm, buff, size)) == NULL)
    r = fail(ncclSystemError, "ncclCommRegister : out of memory");
  else
    r = share(comm, *handle);
  if (r != ncclSuccess && handle) *handle = NULL;
  comm_leave(comm);
  return r;
}

EXPORT(ncclResult_t, CommDeregister, const ncclComm_t comm, void* handle) {
  if (handle == NULL || after_fork()) return ncclSuccess;
  ncclResult_t r = comm_enter(comm, "ncclCommDeregister", NEED_ALIVE);
  if (r != ncclSuccess) return r;
  struct registration last;
  if (drop(comm, handle, &last)) {
    fallback_deregister(comm, last.shadow);
    if (last.window) (void)window_close(comm, last.window, 0); /* memory that was freed before has ended it */
  } else {
    r = fail(ncclInvalidUsage, "ncclCommDeregister : handle %p is none of this communicator", handle);
  }
  comm_leave(comm);
  return r;
}
