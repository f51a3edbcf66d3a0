#define _GNU_SOURCE
#include "stream.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

mscclpp_tcp_reader* mscclpp_tcp_new(void) { return calloc(1, sizeof(mscclpp_tcp_reader)); }

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

// Bytes behind the range are kept for the next one, up to room of them. Closing
// shuts the socket down first, which ends a read that waits.
static int fill(mscclpp_tcp_reader* r, int fd, char* to, uint64_t bytes, uint64_t room) {
  const uint64_t kept = least(bytes, r->end - r->begin);
  memcpy(to, r->ahead + r->begin, kept);
  r->begin += (uint32_t)kept;
  to += kept;
  bytes -= kept;
  while (bytes > 0) {  // nothing is kept now
    const uint64_t now = least(bytes, 1u << 30);
    struct iovec v[2] = {{to, now}, {r->ahead, now == bytes ? room : 0}};
    r->begin = r->end = 0;
    const ssize_t got = readv(fd, v, 2);
    if (got == 0) return mscclpp_tcp_over;
    if (got < 0) {
      if (errno == EINTR) continue;
      r->error = errno;
      return mscclpp_tcp_failed;
    }
    const uint64_t placed = least((uint64_t)got, now);
    to += placed;
    bytes -= placed;
    r->end = (uint32_t)((uint64_t)got - placed);
  }
  return mscclpp_tcp_done;
}

int mscclpp_tcp_full(mscclpp_tcp_reader* r, int fd, void* to, uint64_t bytes) { return fill(r, fd, to, bytes, mscclpp_tcp_small); }

static int retain(mscclpp_tcp_span* s) {
  int64_t n = __atomic_load_n(&s->users, __ATOMIC_SEQ_CST);
  while (n != 0) {
    if (__atomic_compare_exchange_n(&s->users, &n, n + 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return 1;
  }
  return 0;
}

// A frame's head in the byte order of the wire.
typedef struct {
  uint32_t first;  // kind, and three bytes that are 0 here
  uint32_t handle;
  uint64_t offset, bytes, number;
} frame;

static frame decode(const char* b) {
  frame f;
  memcpy(&f, b, sizeof f);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  f.first = __builtin_bswap32(f.first), f.handle = __builtin_bswap32(f.handle);
  f.offset = __builtin_bswap64(f.offset), f.bytes = __builtin_bswap64(f.bytes), f.number = __builtin_bswap64(f.number);
#endif
  return f;
}

// The memory of a frame that can be performed here, in use; NULL: it is for Go code,
// which refuses what is wrong and says why.
static mscclpp_tcp_span* reach(const mscclpp_tcp_reader* r, const frame* f) {
  const int put = f->first == mscclpp_tcp_put;
  if (!put && f->first != mscclpp_tcp_signal) return NULL;
  const uint64_t touched = put ? f->bytes : 8;
  if (f->number != 0 || f->handle >= mscclpp_tcp_handles || (!put && f->bytes != 0)) return NULL;
  mscclpp_tcp_span* s = r->table[f->handle];
  if (s == NULL || f->offset > s->bytes || touched > s->bytes - f->offset) return NULL;
  if (!put && ((uintptr_t)s->base + f->offset) % 8 != 0) return NULL;
  return retain(s) ? s : NULL;
}

int mscclpp_tcp_serve(mscclpp_tcp_reader* r, int fd) {
  for (;;) {
    // Small puts come in batches: one call of the system for all. Beside a large one
    // not much is read, as it would be copied once more.
    int why = fill(r, fd, r->head, mscclpp_tcp_head, r->batched ? mscclpp_tcp_ahead : mscclpp_tcp_small);
    if (why != mscclpp_tcp_done) return why;
    const frame f = decode(r->head);
    mscclpp_tcp_span* s = reach(r, &f);
    if (s == NULL) return mscclpp_tcp_other;
    if (f.first == mscclpp_tcp_put) {
      r->batched = f.bytes <= mscclpp_tcp_small;
      why = fill(r, fd, s->base + f.offset, f.bytes, r->batched ? mscclpp_tcp_ahead : mscclpp_tcp_small);
    } else {
      // A full barrier: a thread that sees the count sees the data that was read before.
      __atomic_fetch_add((uint64_t*)(s->base + f.offset), 1, __ATOMIC_SEQ_CST);
    }
    const int last = __atomic_sub_fetch(&s->users, 1, __ATOMIC_SEQ_CST) == 0;
    if (why != mscclpp_tcp_done && !last) return why;
    if (last) return mscclpp_tcp_last;  // that the stream has ended is seen again
  }
}

int mscclpp_tcp_send(int fd, const char* frames, uint64_t bytes, const mscclpp_tcp_part* parts, int n) {
  struct iovec v[2 * mscclpp_tcp_parts + 1];
  struct msghdr m = {.msg_iov = v, .msg_iovlen = 0};
  uint64_t from = 0;
  for (int i = 0; i < n && i < mscclpp_tcp_parts; ++i) {
    v[m.msg_iovlen++] = (struct iovec){(void*)(frames + from), parts[i].held - from};
    v[m.msg_iovlen++] = (struct iovec){(void*)parts[i].data, parts[i].bytes};
    from = parts[i].held;
  }
  v[m.msg_iovlen++] = (struct iovec){(void*)(frames + from), bytes - from};
  while (m.msg_iovlen > 0) {
    if (m.msg_iov->iov_len == 0) {
      ++m.msg_iov, --m.msg_iovlen;
      continue;
    }
    const ssize_t sent = sendmsg(fd, &m, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    for (uint64_t left = (uint64_t)sent; left > 0;) {
      const uint64_t n = least(left, m.msg_iov->iov_len);
      m.msg_iov->iov_base = (char*)m.msg_iov->iov_base + n;
      m.msg_iov->iov_len -= n;
      left -= n;
      if (m.msg_iov->iov_len == 0) ++m.msg_iov, --m.msg_iovlen;
    }
  }
  return 0;
}

int mscclpp_tcp_any(const int* fds, int n) {
  enum { most = 64 };
  struct pollfd p[most];
  if (n > most) n = most;
  for (;;) {
    for (int i = 0; i < n; ++i) p[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    if (poll(p, (nfds_t)n, -1) < 0) continue;  // a signal
    for (int i = 0; i < n; ++i) {
      if (p[i].revents != 0) return i;
    }
  }
}
