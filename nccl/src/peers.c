#define _GNU_SOURCE
#include "peers.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "door.h"
#include "hash.h"
#include "log.h"
#include "ras.h"
#include "sockets.h"

static _Atomic(uint64_t) this_host; /* 0: no communicator has found out */

uint64_t peers_this_host(void) { return atomic_load(&this_host); }

ncclResult_t peers_exchange(ncclComm_t c) {
  const struct door* d = door_opened();
  char host[64];
  d->host(atomic_load(&c->inner), host, sizeof host);
  struct peer mine = {.id = c->id, .host = hash_bytes(host, strlen(host)), .pid = (int32_t)getpid()};
  struct peer* all = calloc((size_t)c->nranks, sizeof *all);
  atomic_store(&this_host, mine.host);
  ras_describe(&mine);
  if (all == NULL) return fail(ncclSystemError, "out of memory for what %d ranks say of their processes", c->nranks);
  ncclResult_t r = ncclSuccess;
  if (c->nranks == 1)
    all[0] = mine;
  else
    r = d->exchange(atomic_load(&c->inner), &mine, sizeof mine, all);
  if (r != ncclSuccess) {
    free(all);
    return fail(r, "%s", d->error());
  }
  if (!atomic_load(&c->known)) c->id = all[0].id;
  atomic_store_explicit(&c->peers, all, memory_order_release);
  atomic_store_explicit(&c->known, 1, memory_order_release);
  return r;
}

int peers_hosts(ncclComm_t c) {
  const struct peer* p = atomic_load_explicit(&c->peers, memory_order_acquire);
  int n = 0;
  for (int r = 0; p && r < c->nranks; r++) {
    int before = 0;
    while (p[before].host != p[r].host) before++;
    n += before == r;
  }
  return n ? n : 1;
}

const char* peer_host(const struct peer* p, char* text, socklen_t size) {
  static const uint8_t nothing[PEER_ADDRESS];
  struct sockaddr_storage at = {0};
  if (p == NULL || memcmp(p->address, nothing, sizeof nothing) == 0) return "unknown";
  return getnameinfo((struct sockaddr*)&at, address_get(p->address, &at), text, size, NULL, 0, NI_NUMERICHOST) == 0 ? text : "unknown";
}
