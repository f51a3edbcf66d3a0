#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "inner.h"

static frame decode(const char* b) {
  frame f;
  memcpy(&f, b, sizeof f);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  f.handle = __builtin_bswap32(f.handle);
  f.offset = __builtin_bswap64(f.offset), f.bytes = __builtin_bswap64(f.bytes), f.number = __builtin_bswap64(f.number);
#endif
  return f;
}

// Ends the link because of a frame; always -1.
static int refuse(mscclpp_stream_link* l, const char* head) {
  memcpy(l->nonsense, head, mscclpp_stream_head);
  mscclpp_stream_end(l, mscclpp_stream_nonsense, 0);
  return -1;
}

// The memory of a frame; 0: there is none. NULL in *to: it was withdrawn, and what is
// sent there is dropped, as ranks do not close at the same time.
static int reach(const mscclpp_stream_link* l, const frame* f, uint64_t bytes, char** to) {
  if (f->handle >= l->handles) return 0;
  const span* s = &l->table[f->handle];
  if (f->offset > s->bytes || bytes > s->bytes - f->offset) return 0;
  *to = s->base == NULL ? NULL : s->base + f->offset;
  return 1;
}

static int begin(mscclpp_stream_link* l, incoming* i, const char* head) {
  if (!reach(l, &i->f, i->f.bytes, &i->to)) return refuse(l, head);
  i->left = i->f.bytes;
  i->batched = i->f.bytes <= small_put;
  i->state = state_body;
  return 0;
}

// Performs a frame of the first socket; -1: it makes no sense.
static int perform(mscclpp_stream_link* l, incoming* i, const char* head) {
  const frame f = i->f;
  char* word = NULL;
  switch (f.kind) {
    case kind_stripe:
      if (f.number != l->began + 1 || f.others == 0 || f.others >= l->streams) return refuse(l, head);
      l->missing = l->others = f.others;
      l->began = f.number;
      return begin(l, i, head);
    case kind_put:
      return begin(l, i, head);
    case kind_signal:
      if (!reach(l, &f, 8, &word) || ((uintptr_t)word & 7) != 0) return refuse(l, head);
      // A full barrier: a thread that sees the count sees the data that was read before.
      if (word != NULL) __atomic_fetch_add((uint64_t*)word, 1, __ATOMIC_SEQ_CST);
      return 0;
    case kind_flush:
      if (f.number != l->owed + 1) return refuse(l, head);
      __atomic_store_n(&l->owed, f.number, __ATOMIC_SEQ_CST);
      return 0;
    case kind_done:
      mscclpp_stream_complete(l, f.number);
      return 0;
    case kind_bye:
      __atomic_store_n(&l->left, 1, __ATOMIC_SEQ_CST);
      mscclpp_stream_complete(l, ~0ull);
      return 0;
  }
  return refuse(l, head);
}

// Finishes a put whose data is there.
static void finish(mscclpp_stream_link* l, incoming* i) {
  i->state = state_head;
  if (i->f.kind != kind_stripe) return;
  if (i != l->i) {
    l->missing--;
  } else if (l->missing > 0) {
    i->state = state_blocked;  // nothing is performed before all of it is there
  }
}

// Whether a part that has arrived on another socket may be performed, is to wait, or (-1)
// can never be. Each socket from the second on has one part of a put, up to as many as
// the first one has said. Without a judgment of those that wait, two sockets could wait
// for each other, and nobody would see the end of either.
static int due(const mscclpp_stream_link* l, const incoming* i) {
  const int expected = l->missing > 0 && i - l->i <= (int64_t)l->others && i->part != l->began;
  if (i->f.number > l->began) return expected ? -1 : 0;
  return expected && i->f.number == l->began ? 1 : -1;
}

// Uses what was read; -1: the link has ended.
static int use(mscclpp_stream_link* l, incoming* i) {
  for (;;) {
    const uint64_t kept = i->end - i->begin;
    if (i->state == state_blocked) {
      if (i == l->i && l->missing > 0) return 0;
      i->state = state_head;
      if (i == l->i) continue;
      const int turn = due(l, i);
      if (turn < 0) return refuse(l, i->head);
      if (turn == 0) {
        i->state = state_blocked;
        return 0;
      }
      i->part = i->f.number;
      if (begin(l, i, i->head) < 0) return -1;
    } else if (i->state == state_body) {
      const uint64_t n = least(kept, i->left);
      if (i->to != NULL) {
        memcpy(i->to, i->ahead + i->begin, n);
        i->to += n;
      }
      i->begin += n;
      i->left -= n;
      if (i->left > 0) return 0;
      finish(l, i);
    } else {
      if (kept < mscclpp_stream_head) return 0;
      const char* head = i->ahead + i->begin;
      i->f = decode(head);
      i->begin += mscclpp_stream_head;
      if (i == l->i) {
        if (perform(l, i, head) < 0) return -1;
      } else if (i->f.kind != kind_stripe || i->f.others != 0) {
        return refuse(l, head);
      } else {
        memcpy(i->head, head, sizeof i->head);
        i->state = state_blocked;
      }
    }
  }
}

// Reads once. 1: something was there, and perhaps more is; 0: no more; -1: the end.
static int fill(mscclpp_stream_link* l, incoming* i) {
  if (i->begin == i->end) i->begin = i->end = 0;
  if (i->begin > 0 && ahead_bytes - i->end < small_put) {
    memmove(i->ahead, i->ahead + i->begin, i->end - i->begin);
    i->end -= i->begin;
    i->begin = 0;
  }
  struct iovec v[2];
  struct msghdr m = {.msg_iov = v, .msg_iovlen = 0};
  uint64_t direct = 0;
  if (i->state == state_body) {
    direct = i->to == NULL ? least(i->left, ahead_bytes) : least(i->left, 1u << 30);
    v[m.msg_iovlen++] = (struct iovec){i->to == NULL ? l->junk : i->to, direct};
  }
  // Beside a large put not much is read, as it would be copied once more.
  const uint64_t room = direct > 0 && direct < i->left ? 0 : least(i->batched ? ahead_bytes : small_put, ahead_bytes - i->end);
  if (room > 0) v[m.msg_iovlen++] = (struct iovec){i->ahead + i->end, room};
  const int fd = l->fd[i - l->i];
  const ssize_t got = m.msg_iovlen == 1 ? recv(fd, v[0].iov_base, v[0].iov_len, MSG_DONTWAIT) : recvmsg(fd, &m, MSG_DONTWAIT);
  if (got > 0) {
    const uint64_t placed = least((uint64_t)got, direct);
    if (i->to != NULL) i->to += placed;
    i->left -= placed;
    i->end += (uint64_t)got - placed;
    if (i->state == state_body && i->left == 0) finish(l, i);
    return (uint64_t)got == direct + room ? 1 : 2;
  }
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  if (__atomic_load_n(&l->left, __ATOMIC_SEQ_CST)) {  // the end of an orderly leave
    mscclpp_stream_end(l, mscclpp_stream_over, 0);
  } else if (got == 0) {
    mscclpp_stream_end(l, mscclpp_stream_over, 0);
  } else {
    mscclpp_stream_end(l, mscclpp_stream_failed, errno);
  }
  return -1;
}

static int drained(const uint64_t* word, uint64_t wanted) { return word != NULL && __atomic_load_n(word, __ATOMIC_ACQUIRE) >= wanted; }

// Everything that one socket has; 1: there was something.
static int pull_one(mscclpp_stream_link* l, incoming* i, const uint64_t* word, uint64_t wanted) {
  int some = 0;
  for (int n = 0; n < 64; ++n) {
    if (use(l, i) < 0) return 1;
    if (i->state == state_blocked || drained(word, wanted)) return some;
    const int got = fill(l, i);
    if (got <= 0) return some || got < 0;
    some = 1;
    if (got == 2) {  // less than there was room for: that was all
      (void)use(l, i);
      return some;
    }
  }
  return some;
}

int mscclpp_stream_pull(mscclpp_stream_link* l, const uint64_t* word, uint64_t wanted) {
  if (__atomic_load_n(&l->state, __ATOMIC_ACQUIRE) != mscclpp_stream_alive || pthread_mutex_trylock(&l->in) != 0) return 0;
  int some = 0;
  const uint32_t missing = l->missing;
  const uint64_t owed = l->owed;
  for (int s = 0; s < l->streams && l->state == mscclpp_stream_alive; ++s) {
    // The others have nothing to say while the first has named no put.
    if (s > 0 && l->missing == 0 && missing == 0) break;
    some |= pull_one(l, &l->i[s], word, wanted);
  }
  if (l->missing == 0 && missing > 0) some |= pull_one(l, &l->i[0], word, wanted);
  const int asked = l->owed != owed;
  pthread_mutex_unlock(&l->in);
  if (asked) (void)mscclpp_stream_try_push(l);
  return some;
}
