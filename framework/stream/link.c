#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "inner.h"

static void release(mscclpp_stream_link* l) {
  for (int s = 0; s < l->streams; ++s) {
    free(l->o[s].buffer);
    free(l->i[s].ahead);
  }
  free(l->table);
  free(l->junk);
  pthread_mutex_destroy(&l->in);
  pthread_mutex_destroy(&l->out);
  free(l);
}

mscclpp_stream_link* mscclpp_stream_link_new(mscclpp_stream_engine* e, const int* fds, int n, uint64_t stripe) {
  mscclpp_stream_link* l = calloc(1, sizeof *l);
  if (l == NULL) return NULL;
  l->engine = e;
  l->streams = n;
  l->stripe = stripe;
  pthread_mutex_init(&l->in, NULL);
  pthread_mutex_init(&l->out, NULL);
  int ok = (l->junk = malloc(ahead_bytes)) != NULL;
  for (int s = 0; s < n; ++s) {
    l->fd[s] = fds[s];
    l->o[s].buffer = malloc(buffer_bytes);
    l->i[s].ahead = malloc(ahead_bytes);
    ok = ok && l->o[s].buffer != NULL && l->i[s].ahead != NULL;
  }
  pthread_rwlock_wrlock(&e->lists);
  if (ok && (ok = e->links < mscclpp_stream_links)) e->link[e->links++] = l;
  pthread_rwlock_unlock(&e->lists);
  if (!ok) {
    release(l);
    return NULL;
  }
  mscclpp_stream_ring_bell(e);
  return l;
}

void mscclpp_stream_link_free(mscclpp_stream_link* l) {
  mscclpp_stream_engine* e = l->engine;
  pthread_rwlock_wrlock(&e->lists);  // no thread is inside that found it in the list
  for (int n = 0; n < e->links; ++n) {
    if (e->link[n] == l) e->link[n] = e->link[--e->links];
  }
  pthread_rwlock_unlock(&e->lists);
  pthread_mutex_lock(&l->out);
  if (l->state == mscclpp_stream_alive && !l->broken && !mscclpp_stream_push(l)) {
    const unsigned char bye[mscclpp_stream_head] = {kind_bye};
    (void)!send(l->fd[0], bye, sizeof bye, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  pthread_mutex_unlock(&l->out);
  for (int s = 0; s < l->streams; ++s) {
    // Others may have the socket as well; the peer is to see the end now. Unread
    // data would turn that into a reset, which overtakes the goodbye.
    (void)shutdown(l->fd[s], SHUT_WR);
    while (recv(l->fd[s], l->junk, ahead_bytes, MSG_DONTWAIT) > 0) {
    }
    (void)shutdown(l->fd[s], SHUT_RDWR);
    close(l->fd[s]);
  }
  release(l);
}

void mscclpp_stream_end(mscclpp_stream_link* l, uint32_t state, int32_t error) {
  uint32_t alive = mscclpp_stream_alive;
  l->error = error;
  if (!__atomic_compare_exchange_n(&l->state, &alive, state, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return;
  for (int s = 0; s < l->streams; ++s) (void)shutdown(l->fd[s], SHUT_RDWR);
  mscclpp_stream_ring_bell(l->engine);
}

void mscclpp_stream_link_cut(mscclpp_stream_link* l) {
  __atomic_store_n(&l->announced, 1, __ATOMIC_SEQ_CST);  // there is nothing to announce
  mscclpp_stream_end(l, mscclpp_stream_over, 0);
}

uint32_t mscclpp_stream_link_state(mscclpp_stream_link* l, int32_t* error, char* head) {
  const uint32_t state = __atomic_load_n(&l->state, __ATOMIC_SEQ_CST);
  if (state == mscclpp_stream_alive || __atomic_load_n(&l->left, __ATOMIC_SEQ_CST) || __atomic_exchange_n(&l->announced, 1, __ATOMIC_SEQ_CST)) {
    return mscclpp_stream_alive;
  }
  *error = l->error;
  memcpy(head, l->nonsense, mscclpp_stream_head);
  return state;
}

int64_t mscclpp_stream_expose(mscclpp_stream_link* l, void* base, uint64_t bytes) {
  pthread_mutex_lock(&l->in);
  int64_t handle = -1;
  if (l->handles == l->room) {
    const uint64_t room = l->room == 0 ? 64 : 2 * l->room;
    span* table = room > UINT32_MAX ? NULL : realloc(l->table, room * sizeof *table);
    if (table != NULL) l->table = table, l->room = room;
  }
  if (l->handles < l->room) {
    handle = (int64_t)l->handles++;
    l->table[handle] = (span){base, bytes};
  }
  pthread_mutex_unlock(&l->in);
  return handle;
}

void mscclpp_stream_point(mscclpp_stream_link* l, uint32_t handle, void* base, uint64_t bytes) {
  pthread_mutex_lock(&l->in);
  if (handle < l->handles) {
    l->table[handle].base = base;
    // The bounds stay as they are when frames are only to be dropped.
    if (base != NULL) l->table[handle].bytes = bytes;
    for (int s = 0; s < l->streams; ++s) {  // the rest of a put that arrives now is dropped
      if (l->i[s].f.handle == handle) l->i[s].to = NULL;
    }
  }
  pthread_mutex_unlock(&l->in);
}

void mscclpp_stream_withdraw(mscclpp_stream_link* l, uint32_t handle) { mscclpp_stream_point(l, handle, NULL, 0); }

int mscclpp_stream_forget(mscclpp_stream_link* l, const void* base, uint64_t bytes) {
  pthread_mutex_lock(&l->out);
  (void)mscclpp_stream_push(l);
  const int found = mscclpp_stream_holds(l, base, bytes);
  if (found) {
    mscclpp_stream_link_cut(l);
    (void)mscclpp_stream_push(l);  // drops all
  }
  pthread_mutex_unlock(&l->out);
  return !found;
}
