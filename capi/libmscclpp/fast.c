/* Calls that need no Go: those like one that Go has made. Where it is published is known by the handle. */
#include "internal.h"

#include "../../internal/fastpath/fastpath.h"

enum { PLACES = 4096 };

static struct {
  uintptr_t handle;
  struct fastpath_table *table;
} bound[PLACES];

static int (*function)(struct fastpath_table *, uint64_t, const struct fastpath_key *, const void *, void *);
static uint32_t kinds[CALL_BARRIER + 1]; /* 0: no call of that kind is published */

static size_t place(uintptr_t handle) { return (handle >> 4) % PLACES; } /* its index: see package handles */

void fast_function(uintptr_t f) { function = (int (*)(struct fastpath_table *, uint64_t, const struct fastpath_key *, const void *, void *))f; }

void fast_kind(int call, uint32_t kind) { kinds[call] = kind; }

void fast_bind(uintptr_t handle, uintptr_t table) {
  size_t i = place(handle);
  __atomic_store_n(&bound[i].handle, 0, __ATOMIC_RELEASE);
  __atomic_store_n(&bound[i].table, (struct fastpath_table *)table, __ATOMIC_RELEASE);
  __atomic_store_n(&bound[i].handle, handle, __ATOMIC_RELEASE);
}

void fast_unbind(uintptr_t handle) {
  uintptr_t found = handle;
  __atomic_compare_exchange_n(&bound[place(handle)].handle, &found, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

int fast_call(uintptr_t handle, const struct call *c) {
  size_t i = place(handle);
  if (__atomic_load_n(&bound[i].handle, __ATOMIC_ACQUIRE) != handle || handle == 0 || kinds[c->kind] == 0) return 0;
  if (c->options.algorithm != NULL || c->options.scale != 0) return 0;
  struct fastpath_key key = {c->count, (uintptr_t)c->options.stream, kinds[c->kind], (uint32_t)c->type, (uint32_t)c->op, (uint32_t)c->root};
  return function(__atomic_load_n(&bound[i].table, __ATOMIC_ACQUIRE), handle, &key, c->send, c->recv);
}
