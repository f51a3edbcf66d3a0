#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <mscclpp/trigger.h>

#include "inner.h"

static void append(outgoing* o, uint8_t kind, uint8_t others, uint32_t handle, uint64_t offset, uint64_t bytes, uint64_t number) {
  frame f = {.kind = kind, .others = others, .handle = handle, .offset = offset, .bytes = bytes, .number = number};
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  f.handle = __builtin_bswap32(f.handle);
  f.offset = __builtin_bswap64(f.offset), f.bytes = __builtin_bswap64(f.bytes), f.number = __builtin_bswap64(f.number);
#endif
  memcpy(o->buffer + o->used, &f, sizeof f);
  o->used += sizeof f;
}

static void append_part(outgoing* o, const char* data, uint64_t bytes) {
  o->parts[o->count++] = (part){o->used, data, bytes};
  o->large += bytes;
}

static void reset(outgoing* o) {
  o->used = o->done = o->large = 0;
  o->count = o->next = 0;
}

// Sends what one socket takes. 1: some is left; -1: nothing can be sent any more.
static int push_one(int fd, outgoing* o) {
  while (o->next < o->count || o->done < o->used) {
    struct iovec v[2 * parts_most + 1];
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 0};
    uint64_t from = o->done;
    for (int n = o->next; n < o->count; ++n) {
      const part* p = &o->parts[n];
      if (p->held > from) v[m.msg_iovlen++] = (struct iovec){o->buffer + from, p->held - from};
      v[m.msg_iovlen++] = (struct iovec){(void*)p->data, p->bytes};
      from = p->held;
    }
    if (o->used > from) v[m.msg_iovlen++] = (struct iovec){o->buffer + from, o->used - from};
    // One range alone, as small messages are, costs less without a list of them.
    const ssize_t sent = m.msg_iovlen == 1 ? send(fd, v[0].iov_base, v[0].iov_len, MSG_DONTWAIT | MSG_NOSIGNAL)
                                           : sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      return errno == EAGAIN ? 1 : -1;
    }
    for (uint64_t left = (uint64_t)sent; left > 0;) {
      part* p = o->next < o->count ? &o->parts[o->next] : NULL;
      const uint64_t frames = (p != NULL ? p->held : o->used) - o->done, n = least(left, frames);
      o->done += n;
      left -= n;
      if (p == NULL || left == 0) continue;
      const uint64_t data = least(left, p->bytes);
      p->data += data, p->bytes -= data, o->large -= data;
      left -= data;
      if (p->bytes == 0) o->next++;
    }
    if (o->next < o->count && o->done == o->parts[o->next].held && o->parts[o->next].bytes == 0) o->next++;
  }
  reset(o);
  return 0;
}

static void drop(mscclpp_stream_link* l) {
  for (int s = 0; s < l->streams; ++s) reset(&l->o[s]);
}

int mscclpp_stream_push(mscclpp_stream_link* l) {
  outgoing* o = &l->o[0];
  const uint64_t owed = __atomic_load_n(&l->owed, __ATOMIC_SEQ_CST);
  if (owed != l->answered && buffer_bytes - o->used >= mscclpp_stream_head) {
    append(o, kind_done, 0, 0, 0, 0, owed);
    l->answered = owed;
  }
  int left = 0;
  if (l->broken || l->state != mscclpp_stream_alive) {
    drop(l);
  } else {
    for (int s = 0; s < l->streams; ++s) {
      const int rc = push_one(l->fd[s], &l->o[s]);
      if (rc > 0) left = 1;
      // The reading thread knows why: the peer may have said goodbye.
      if (rc < 0) l->broken = 1;
    }
    if (l->broken) drop(l), left = 0, mscclpp_stream_ring_bell(l->engine);
  }
  __atomic_store_n(&l->pending, (uint32_t)left, __ATOMIC_SEQ_CST);
  return left;
}

int mscclpp_stream_try_push(mscclpp_stream_link* l) {
  pthread_mutex_lock(&l->out);
  const int left = mscclpp_stream_push(l);
  pthread_mutex_unlock(&l->out);
  return left;
}

void mscclpp_stream_complete(mscclpp_stream_link* l, uint64_t number) {
  pthread_mutex_lock(&l->out);
  for (; l->first != l->last && l->flushes[l->first % flushes_most].number <= number; l->first++) {
    const flush* f = &l->flushes[l->first % flushes_most];
    __atomic_store_n(f->word, f->value, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&l->out);
}

enum { busy = -1, next = 0 };

// Whether there is room for a put of so many bytes that is sent from where it is, for
// what is copied, and for a few frames.
static int has_room(mscclpp_stream_link* l, uint64_t copied, int parts) {
  const outgoing* o = &l->o[0];
  for (int tries = 0; tries < 2; ++tries) {
    if (buffer_bytes - o->used >= copied + 4 * mscclpp_stream_head && o->count + parts <= parts_most) return 1;
    if (mscclpp_stream_push(l) && tries > 0) break;
  }
  return 0;
}

static int put(mscclpp_stream_link* l, uint32_t handle, uint64_t offset, const char* data, uint64_t bytes) {
  outgoing* o = &l->o[0];
  if (bytes <= small_put) {
    if (!has_room(l, bytes, 0)) return busy;
    append(o, kind_put, 0, handle, offset, bytes, 0);
    memcpy(o->buffer + o->used, data, bytes);
    o->used += bytes;
    return next;
  }
  const uint64_t cut = bytes / l->stripe;
  const int n = cut < (uint64_t)l->streams ? (int)cut : l->streams;
  if (!has_room(l, 0, 1)) return busy;
  if (n < 2) {
    append(o, kind_put, 0, handle, offset, bytes, 0);
    append_part(o, data, bytes);
    return next;
  }
  for (int s = 1; s < n; ++s) {
    if (l->o[s].count < stripes_most || !mscclpp_stream_push(l) || l->o[s].count < stripes_most) continue;
    return busy;
  }
  const uint64_t size = bytes / (uint64_t)n & ~4095ull;  // the last takes the rest
  l->round++;
  append(o, kind_stripe, (uint8_t)(n - 1), handle, offset, size, l->round);
  append_part(o, data, size);
  for (int s = 1; s < n; ++s) {
    const uint64_t at = size * (uint64_t)s, part = s == n - 1 ? bytes - at : size;
    append(&l->o[s], kind_stripe, 0, handle, offset + at, part, l->round);
    append_part(&l->o[s], data + at, part);
  }
  return next;
}

// Adds a signal, and a flush, to what is sent. There is room.
static void tell(mscclpp_stream_ring* r, const mscclpp_stream_slot* s, uint32_t number, int signal, int ask) {
  mscclpp_stream_link* l = s->link;
  if (signal) append(&l->o[0], kind_signal, 0, s->handle, s->offset, 0, 0);
  if (!ask) return;
  uint64_t* word = (uint64_t*)(r->ring + mscclpp_ring_flush) + number;
  if (__atomic_load_n(&l->left, __ATOMIC_SEQ_CST)) {  // nothing is owed to a peer that has left
    __atomic_store_n(word, r->tail + 1, __ATOMIC_RELEASE);
    return;
  }
  append(&l->o[0], kind_flush, 0, 0, 0, 0, ++l->asked);
  l->flushes[l->last++ % flushes_most] = (flush){l->asked, word, r->tail + 1};
}

static int asked_enough(const mscclpp_stream_link* l, int ask) { return ask && l->last - l->first == flushes_most; }

// Links that have something to send when the ring is empty.
enum { dirty_most = 64 };
typedef struct {
  mscclpp_stream_link* link[dirty_most];
  int count;
} dirty;

static void mark(dirty* d, mscclpp_stream_link* l) {
  if (l->o[0].used + l->o[0].large < buffer_bytes / 2 && d->count < dirty_most) {
    for (int n = 0; n < d->count; ++n) {
      if (d->link[n] == l) return;
    }
    d->link[d->count++] = l;
    __atomic_store_n(&l->pending, 1, __ATOMIC_SEQ_CST);
    return;
  }
  (void)mscclpp_stream_push(l);
}

// Performs one trigger: data, then signal, then flush. It is performed as a whole or,
// where sockets are full, not at all.
static int perform(mscclpp_stream_ring* r, uint64_t fst, uint64_t snd, dirty* d) {
  const uint32_t type = mscclpp_trigger_kind(snd), number = mscclpp_trigger_slot(snd);
  if (type == 0) return mscclpp_stream_bad_type;
  const mscclpp_stream_slot* s = NULL;
  if (type & (mscclpp_do_signal | mscclpp_do_flush)) {
    if (number >= mscclpp_stream_semaphores || r->semaphore[number].link == NULL) return mscclpp_stream_unbound_semaphore;
    s = &r->semaphore[number];
  }
  const int signal = type & mscclpp_do_signal, ask = type & mscclpp_do_flush;
  if (type & mscclpp_do_put && r->half != r->tail + 1) {
    const uint64_t bytes = mscclpp_trigger_bytes(fst), from = mscclpp_trigger_from(fst), to = mscclpp_trigger_to(snd);
    const mscclpp_stream_slot *src = &r->memory[mscclpp_trigger_src(snd)], *dst = &r->memory[mscclpp_trigger_dst(snd)];
    if (src->base == NULL) return mscclpp_stream_unbound_source;
    if (dst->link == NULL) return mscclpp_stream_unbound_target;
    if (from > src->bytes || bytes > src->bytes - from) return mscclpp_stream_source_range;
    if (to > dst->bytes || bytes > dst->bytes - to) return mscclpp_stream_target_range;
    mscclpp_stream_link* l = dst->link;
    const int same = s != NULL && s->link == l;
    pthread_mutex_lock(&l->out);
    const int rc = same && asked_enough(l, ask) ? busy : put(l, dst->handle, to, src->base + from, bytes);
    if (rc == next && same) tell(r, s, number, signal, ask);
    if (rc == next) mark(d, l);
    pthread_mutex_unlock(&l->out);
    if (rc != next || s == NULL || same) return rc;
    r->half = r->tail + 1;  // no order is promised between two links
  }
  pthread_mutex_lock(&s->link->out);
  const int rc = asked_enough(s->link, ask) || !has_room(s->link, 0, 0) ? busy : next;
  if (rc == next) {
    tell(r, s, number, signal, ask);
    mark(d, s->link);
  }
  pthread_mutex_unlock(&s->link->out);
  return rc;
}

static int there(const mscclpp_stream_ring* r, uint64_t* fst, uint64_t* snd) {
  const uint64_t* slot = (const uint64_t*)(r->ring + mscclpp_ring_triggers + (r->tail & (r->slots - 1)) * mscclpp_ring_trigger);
  *snd = __atomic_load_n(&slot[1], __ATOMIC_ACQUIRE);
  if ((*snd >> 63) != (((r->tail >> r->shift) & 1) ^ 1)) return 0;
  *snd &= ~(1ull << 63);
  *fst = __atomic_load_n(&slot[0], __ATOMIC_RELAXED);
  return 1;
}

int mscclpp_stream_waiting(const mscclpp_stream_ring* r) {
  uint64_t fst, snd;
  return there(r, &fst, &snd);
}

static void fail(mscclpp_stream_ring* r, uint32_t reason, uint64_t fst, uint64_t snd) {
  r->fst = fst, r->snd = snd;
  __atomic_store_n(&r->reason, reason, __ATOMIC_SEQ_CST);
  uint32_t none = 0;
  __atomic_compare_exchange_n((uint32_t*)(r->ring + mscclpp_ring_error), &none, mscclpp_ring_invalid, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  mscclpp_stream_wake(r);
}

// Performs what is in the ring, as far as sockets take it; r->lock is held. Links in d
// are to be pushed.
static int take_all(mscclpp_stream_ring* r, dirty* d) {
  uint64_t fst, snd;
  while (r->reason == 0 && there(r, &fst, &snd)) {
    const int rc = perform(r, fst, snd, d);
    if (rc > next) fail(r, (uint32_t)rc, fst, snd);
    if (rc != next) return rc;
    r->tail++;
    __atomic_store_n((uint64_t*)(r->ring + mscclpp_ring_tail), r->tail, __ATOMIC_RELEASE);
  }
  return next;
}

static void push_all(const dirty* d) {
  for (int n = 0; n < d->count; ++n) (void)mscclpp_stream_try_push(d->link[n]);
}

void mscclpp_stream_drain(mscclpp_stream_ring* r) {
  for (;;) {
    // The owner of the lock looks again after giving it back.
    if (__atomic_load_n(&r->reason, __ATOMIC_SEQ_CST) != 0 || pthread_mutex_trylock(&r->lock) != 0) return;
    dirty d = {.count = 0};
    const int rc = take_all(r, &d);
    push_all(&d);
    pthread_mutex_unlock(&r->lock);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (rc != next || !mscclpp_stream_waiting(r)) return;
  }
}

// Whether some of a range is still to be sent; l->out is held.
int mscclpp_stream_holds(const mscclpp_stream_link* l, const char* from, uint64_t bytes) {
  for (int s = 0; s < l->streams; ++s) {
    const outgoing* o = &l->o[s];
    for (int n = o->next; n < o->count; ++n) {
      const part* p = &o->parts[n];
      if (p->bytes > 0 && p->data < from + bytes && p->data + p->bytes > from) return 1;
    }
  }
  return 0;
}

int mscclpp_stream_sent(mscclpp_stream_link* l, const void* data, uint64_t bytes) {
  pthread_mutex_lock(&l->out);
  const int held = mscclpp_stream_push(l) && mscclpp_stream_holds(l, data, bytes);
  pthread_mutex_unlock(&l->out);
  return !held;
}

// A put of a head and of data behind it, as one where that is not cut into stripes.
static int put_both(mscclpp_stream_link* l, const mscclpp_stream_slot* dst, uint64_t to, const char* head, uint64_t title, const char* data,
                    uint64_t bytes) {
  outgoing* o = &l->o[0];
  if (!has_room(l, title + mscclpp_stream_head, 1)) return busy;
  if (bytes / l->stripe >= 2 && l->streams > 1) {
    // A socket that is busy now gets the same head once more.
    const int rc = title > 0 ? put(l, dst->handle, to, head, title) : next;
    return rc != next ? rc : put(l, dst->handle, to + title, data, bytes);
  }
  append(o, kind_put, 0, dst->handle, to, title + bytes, 0);
  if (title > 0) memcpy(o->buffer + o->used, head, title);
  o->used += title;
  append_part(o, data, bytes);
  return next;
}

int mscclpp_stream_give(mscclpp_stream_ring* r, uint32_t target, uint32_t semaphore, uint64_t to, const void* head, uint64_t title, const void* data,
                        uint64_t bytes) {
  if (target >= mscclpp_stream_memories || semaphore >= mscclpp_stream_semaphores || title > mscclpp_stream_title) return -1;
  pthread_mutex_lock(&r->lock);
  const mscclpp_stream_slot *dst = &r->memory[target], *s = &r->semaphore[semaphore];
  mscclpp_stream_link* l = dst->link;
  dirty d = {.count = 0};
  int rc = l == NULL || s->link != l || to > dst->bytes || title + bytes > dst->bytes - to ? -1 : take_all(r, &d);
  int given = rc == next && r->reason == 0 ? 0 : -1;
  if (given == 0) {
    pthread_mutex_lock(&l->out);
    if (put_both(l, dst, to, head, title, data, bytes) == next) {
      tell(r, s, semaphore, 1, 0);
      given = mscclpp_stream_push(l) && mscclpp_stream_holds(l, data, bytes) ? 1 : 2;
    }
    pthread_mutex_unlock(&l->out);
  }
  push_all(&d);
  pthread_mutex_unlock(&r->lock);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (mscclpp_stream_waiting(r)) mscclpp_stream_drain(r);  // as others found the lock taken
  return given;
}
