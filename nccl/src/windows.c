#include "windows.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"
#include "env.h"
#include "export.h"
#include "fork.h"
#include "group.h"
#include "log.h"

enum { ENTRIES = 32, SLOT = 128 };

/* A page on the device: a table of windows by address, as NCCL lays it out, and the structures of these windows. */
struct table {
  struct {
    uintptr_t base, size;
    ncclWindow_t window;
  } entries[ENTRIES];
  void* next;
};
enum { FIRST_SLOT = 1024, PAGE = FIRST_SLOT + ENTRIES * SLOT };
_Static_assert(sizeof(struct table) <= FIRST_SLOT && sizeof(struct window_on_device) <= SLOT, "a page has room");

struct page {
  struct page* next;
  void* memory; /* of libmscclpp */
  char* at;
  unsigned used; /* a bit for each slot */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the lists; nothing waits for other ranks under it */
static struct window* windows;

/* page_of returns a page of the communicator with a free slot, which it takes. The lock is held. */
static ncclResult_t page_of(ncclComm_t comm, struct page** out, int* slot) {
  const struct door* d = door_opened();
  struct page** at = &comm->pages;
  while (*at && (*at)->used == ~0u) at = &(*at)->next;
  if (*at == NULL) {
    struct page* p = calloc(1, sizeof *p);
    if (p == NULL) return fail(ncclSystemError, "out of memory for windows");
    void* where = NULL;
    ncclResult_t r = d->store_new(atomic_load(&comm->inner), PAGE, &p->memory, &where);
    if (r == ncclSuccess && at != &comm->pages) { /* the table before leads to it */
      struct page* last = comm->pages;
      while (last->next) last = last->next;
      r = d->store(last->memory, offsetof(struct table, next), &where, sizeof where);
    }
    if (r != ncclSuccess) {
      fail(r, "memory for windows: %s", d->error());
      d->store_free(p->memory);
      free(p);
      return r;
    }
    p->at = where;
    *at = p;
  }
  *out = *at;
  *slot = __builtin_ctz(~(*at)->used);
  (*at)->used |= 1u << *slot;
  return ncclSuccess;
}

/* enter puts what kernels read of a window on the device. The lock is held. */
static ncclResult_t enter(struct window* w, int flags) {
  const struct door* d = door_opened();
  ncclResult_t r = page_of(w->comm, &w->page, &w->slot);
  if (r != ncclSuccess) return r;
  size_t offset = FIRST_SLOT + (size_t)w->slot * SLOT;
  w->at = (ncclWindow_t)(w->page->at + offset);
  struct window_on_device v = {
      .host = w, .flat = w->inner.base, .lsa_rank = w->comm->rank, .rank = w->comm->rank,
      .stride = (uint32_t)(w->inner.stride >> 32), .flags = (uint32_t)flags, .segment_count = 1};
  __typeof__(((struct table*)0)->entries[0]) entry = {(uintptr_t)w->buff, w->size, w->at};
  r = d->store(w->page->memory, offset, &v, sizeof v);
  if (r == ncclSuccess && !w->resource) r = d->store(w->page->memory, (size_t)w->slot * sizeof entry, &entry, sizeof entry);
  if (r == ncclSuccess) return r;
  w->page->used &= ~(1u << w->slot);
  return fail(r, "a window on the device: %s", d->error());
}

/* leave takes it away again. The memory stays mapped until the caller closes it. The lock is held. */
static void leave(struct window* w) {
  const struct door* d = door_opened();
  __typeof__(((struct table*)0)->entries[0]) none = {0, 0, NULL};
  if (!w->resource) (void)d->store(w->page->memory, (size_t)w->slot * sizeof none, &none, sizeof none);
}

ncclResult_t window_open(ncclComm_t comm, void* buff, size_t size, int flags, struct window** out) {
  const struct door* d = door_opened();
  const char* enable = setting("NCCL_WIN_ENABLE");
  struct door_window inner = {0};
  *out = NULL;
  struct window* w = calloc(1, sizeof *w);
  if (w == NULL) return fail(ncclSystemError, "out of memory for a window");
  struct door_memory m = {.buff = buff, .size = size, .none = enable && strcmp(enable, "0") == 0,
                          .private = buff == NULL || !(flags & NCCL_WIN_COLL_SYMMETRIC)};
  ncclResult_t r = d->window_open(atomic_load(&comm->inner), &m, &inner);
  if (r != ncclSuccess || inner.window == NULL) {
    if (r != ncclSuccess)
      fail(r, "a window: %s", d->error());
    else
      log_info(SUB_REG, comm->device, "a window of %zu bytes at %p is NULL, which clients take for not supported: %s", size, buff, d->error());
    free(w);
    return r;
  }
  *w = (struct window){.comm = comm, .buff = buff ? buff : inner.own, .size = size, .resource = buff == NULL, .inner = inner};
  pthread_mutex_lock(&lock);
  if ((r = enter(w, flags)) == ncclSuccess) {
    w->next = windows;
    windows = w;
    *out = w;
  }
  pthread_mutex_unlock(&lock);
  if (r != ncclSuccess) {
    d->window_close(&inner);
    free(w);
  } else {
    log_info(SUB_REG, comm->device, "comm %p window %p of %zu bytes at %p: all ranks are at %p, %zu GiB apart", (void*)comm, (void*)w->at, size, w->buff,
             (void*)inner.base, inner.stride >> 30);
  }
  return r;
}

int window_close(ncclComm_t comm, ncclWindow_t at, int resource) {
  pthread_mutex_lock(&lock);
  struct window** p = &windows;
  while (*p && ((*p)->at != at || (*p)->comm != comm || (*p)->resource != resource)) p = &(*p)->next;
  struct window* w = *p;
  if (w) {
    *p = w->next;
    if (w->inner.window) leave(w);
    w->page->used &= ~(1u << w->slot);
  }
  pthread_mutex_unlock(&lock);
  if (w == NULL) return 0;
  door_opened()->window_close(&w->inner);
  free(w);
  return 1;
}

int window_look(ncclWindow_t at, void (*f)(const struct window* w, void* with), void* with) {
  pthread_mutex_lock(&lock);
  struct window* w = windows;
  while (w && (w->at != at || w->inner.window == NULL)) w = w->next;
  if (w) f(w, with);
  pthread_mutex_unlock(&lock);
  return w != NULL;
}

ncclResult_t windows_table(ncclComm_t comm, void** at) {
  struct page* page = comm->pages;
  int slot;
  pthread_mutex_lock(&lock);
  ncclResult_t r = ncclSuccess;
  if (page == NULL && (r = page_of(comm, &page, &slot)) == ncclSuccess) page->used &= ~(1u << slot);
  pthread_mutex_unlock(&lock);
  *at = page ? page->at : NULL;
  return r;
}

/* The mapping of a window keeps memory alive, and collectives would use it for whatever gets its address next. Programs such as
 * PyTorch free the memory of windows and leave these. */
void windows_of_memory(void* p, size_t size) {
  uintptr_t from = (uintptr_t)p;
  for (;;) {
    struct door_window inner = {0};
    pthread_mutex_lock(&lock);
    for (struct window* w = windows; w; w = w->next)
      if (w->inner.window && !w->resource && (uintptr_t)w->buff - from < size) {
        leave(w);
        inner = w->inner;
        w->inner = (struct door_window){0};
        break;
      }
    pthread_mutex_unlock(&lock);
    if (inner.window == NULL) return;
    door_opened()->window_close(&inner);
  }
}

void windows_free(ncclComm_t comm) {
  pthread_mutex_lock(&lock);
  for (struct window** p = &windows; *p;) {
    struct window* w = *p;
    if (w->comm == comm) {
      *p = w->next;
      free(w);
    } else {
      p = &w->next;
    }
  }
  for (struct page *p = comm->pages, *next; p; p = next) {
    next = p->next;
    free(p);
  }
  comm->pages = NULL;
  pthread_mutex_unlock(&lock);
}

int windows_domain(ncclComm_t comm) {
  void* inner = atomic_load(&comm->inner);
  return comm->device >= 0 && inner && door_opened()->shared(inner);
}

/* ---- the functions ---- */

struct registering {
  struct work work; /* first: they are the same address */
  void* buff;
  size_t size;
  int flags;
  ncclWindow_t *out, made;
};

static ncclResult_t run_register(struct work* w) {
  struct registering* g = (struct registering*)w;
  struct window* made = NULL;
  ncclResult_t r = window_open(w->comm, g->buff, g->size, g->flags, &made);
  g->made = made ? made->at : NULL;
  return r;
}

static void register_done(struct work* w, ncclResult_t r) {
  struct registering* g = (struct registering*)w;
  ncclComm_t comm = w->comm;
  __atomic_store_n(g->out, r == ncclSuccess ? g->made : NULL, __ATOMIC_RELEASE);
  free(g);
  comm_leave(comm);
}

EXPORT(ncclResult_t, CommWindowRegister, ncclComm_t comm, void* buff, size_t size, ncclWindow_t* window, int flags) {
  if (window) *window = NULL;
  if (after_fork()) return fork_refusal("ncclCommWindowRegister");
  group_begin();
  ncclResult_t r = comm_enter(comm, "ncclCommWindowRegister", NEED_READY);
  if (r != ncclSuccess) return group_end(r);
  struct registering* g = NULL;
  if (window == NULL || buff == NULL || size == 0)
    r = fail(ncclInvalidArgument, "ncclCommWindowRegister : %s", window ? "expected a buffer and a size" : "win argument is NULL");
  else if (flags & ~3)
    r = fail(ncclInvalidArgument, "ncclCommWindowRegister : flags 0x%x: expected NCCL_WIN_DEFAULT or NCCL_WIN_COLL_SYMMETRIC", flags);
  if (r == ncclSuccess && comm->device < 0) {
    log_info(SUB_REG, comm->device, "ncclCommWindowRegister: memory of the host has no windows: NULL, which clients take for not supported");
    comm_leave(comm);
    return group_end(r);
  }
  if (r == ncclSuccess && (g = calloc(1, sizeof *g)) == NULL) r = fail(ncclSystemError, "ncclCommWindowRegister : out of memory");
  if (r != ncclSuccess) {
    comm_leave(comm);
    return group_end(r);
  }
  *g = (struct registering){.buff = buff, .size = size, .flags = flags, .out = window};
  g->work = (struct work){.comm = comm, .parent = comm, .run = run_register, .done = register_done, .what = "ncclCommWindowRegister"};
  return group_end(group_work(&g->work));
}

EXPORT(ncclResult_t, CommWindowDeregister, ncclComm_t comm, ncclWindow_t window) {
  if (window == NULL || after_fork()) return ncclSuccess;
  ncclResult_t r = comm_enter(comm, "ncclCommWindowDeregister", NEED_ALIVE);
  if (r != ncclSuccess) return r;
  if (!window_close(comm, window, 0)) r = fail(ncclInvalidUsage, "ncclCommWindowDeregister : window %p is none of this communicator", (void*)window);
  comm_leave(comm);
  return r;
}

/* ---- addresses ---- */

/* Where a window leads. */
struct asked {
  size_t offset;
  int rank; /* -1: the program's own address */
  void* at;
  int ranks;
  size_t room; /* for each rank */
};

static void answer(const struct window* w, void* with) {
  struct asked* a = with;
  a->ranks = w->comm->nranks;
  a->room = w->inner.stride;
  if (a->rank < 0)
    a->at = w->buff;
  else if (a->rank < a->ranks && a->offset < a->room)
    a->at = w->inner.base + (size_t)a->rank * w->inner.stride + a->offset;
}

static ncclResult_t ask(const char* function, ncclWindow_t window, size_t offset, int rank, void** out) {
  struct asked a = {.offset = offset, .rank = rank};
  if (out == NULL || window == NULL) return fail(ncclInvalidArgument, "%s : %s argument is NULL", function, window ? "outPtr" : "window");
  *out = NULL;
  if (after_fork()) return fork_refusal(function);
  if (!window_look(window, answer, &a)) return fail(ncclInvalidArgument, "%s : window %p is none of this library", function, (void*)window);
  if (a.at == NULL && rank < a.ranks) return fail(ncclInvalidArgument, "%s : offset %zu: expected less than the %zu bytes of a rank's part", function, offset, a.room);
  if (a.at == NULL) return fail(ncclInvalidArgument, "%s : rank %d: expected 0 to %d", function, rank, a.ranks - 1);
  *out = a.at;
  return ncclSuccess;
}

/* All ranks are one domain, so that numbers of ranks are the same in both. */
EXPORT(ncclResult_t, GetLsaDevicePointer, ncclWindow_t window, size_t offset, int rank, void** out) {
  return ask("ncclGetLsaDevicePointer", window, offset, rank < 0 ? INT_MAX : rank, out);
}

EXPORT(ncclResult_t, GetPeerDevicePointer, ncclWindow_t window, size_t offset, int peer, void** out) {
  return ask("ncclGetPeerDevicePointer", window, offset, peer < 0 ? INT_MAX : peer, out);
}

/* Multicast is not used: NULL is how NCCL says so. */
EXPORT(ncclResult_t, GetLsaMultimemDevicePointer, ncclWindow_t window, size_t offset, void** out) {
  ncclResult_t r = ask("ncclGetLsaMultimemDevicePointer", window, offset, 0, out);
  if (r == ncclSuccess) *out = NULL;
  return r;
}

EXPORT(ncclResult_t, WinGetUserPtr, ncclComm_t comm, ncclWindow_t window, void** out) {
  ncclResult_t r = comm_enter(comm, "ncclWinGetUserPtr", NEED_READY);
  if (r != ncclSuccess) return r;
  r = ask("ncclWinGetUserPtr", window, 0, -1, out);
  comm_leave(comm);
  return r;
}
