// Throws arbitrary and nearly sensible frames at the engine, and drives sensible traffic
// between two of them. The test compiles it together with the engine under sanitizers;
// memory that peers may write lies between pages that nobody may touch.
//
//   hammer SEED ROUNDS
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <mscclpp/trigger.h>

#include "../inner.h"

static uint64_t state;

static uint64_t rnd(uint64_t below) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return below == 0 ? state : state % below;
}

static void must(int ok, const char* what) {
  if (ok) return;
  fprintf(stderr, "hammer: %s (%s)\n", what, strerror(errno));
  exit(1);
}

enum { page = 4096, bytes = 40 * page, room = 16, tail_room = 24 };

// Memory whose last byte is followed, and whose first is preceded, by what faults.
static char* fenced(uint64_t n) {
  const uint64_t whole = (n + page - 1) / page * page;
  char* all = mmap(NULL, whole + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  must(all != MAP_FAILED && mprotect(all + page, whole, PROT_READ | PROT_WRITE) == 0, "memory");
  return all + page;
}

static void unfence(char* m, uint64_t n) { must(munmap(m - page, (n + page - 1) / page * page + 2 * page) == 0, "munmap"); }

typedef struct {
  mscclpp_stream_engine* e;
  mscclpp_stream_link* l;
  mscclpp_stream_ring* r;
  char *ring, *memory;
  uint64_t head;
  int fd[3];
} side;

static void begin_side(side* s, const int* fds, int streams, uint64_t stripe) {
  s->head = 0;
  s->memory = fenced(bytes);
  s->ring = fenced(mscclpp_ring_triggers + room * mscclpp_ring_trigger);
  must((s->e = mscclpp_stream_engine_new()) != NULL, "engine");
  must((s->l = mscclpp_stream_link_new(s->e, fds, streams, stripe)) != NULL, "link");
  must((s->r = mscclpp_stream_ring_new(s->e, s->ring, room, 0)) != NULL, "ring");
  must(mscclpp_stream_expose(s->l, s->memory, bytes) == 0, "expose");
  mscclpp_stream_bind(s->r, &s->r->memory[0], (mscclpp_stream_slot){.base = s->memory, .bytes = bytes});
  mscclpp_stream_bind(s->r, &s->r->memory[1], (mscclpp_stream_slot){.link = s->l, .bytes = bytes});
  mscclpp_stream_bind(s->r, &s->r->semaphore[0], (mscclpp_stream_slot){.link = s->l});
}

static void end_side(side* s) {
  mscclpp_stream_ring_free(s->r);
  mscclpp_stream_link_free(s->l);
  mscclpp_stream_engine_free(s->e);
  unfence(s->memory, bytes);
  unfence(s->ring, mscclpp_ring_triggers + room * mscclpp_ring_trigger);
}

static void make_pairs(int near[3], int far[3], int streams) {
  for (int n = 0; n < streams; ++n) {
    int p[2];
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p) == 0, "socketpair");
    near[n] = p[0], far[n] = p[1];
  }
}

// Drives a side once: the word is never as large as wanted.
static int turn(side* s, uint64_t wanted) { return mscclpp_stream_await(s->l, s->r, (uint64_t*)s->memory, wanted, 0, ~0ull, ~0ull, 1); }

static int push(side* s, uint64_t kind, uint64_t to, uint64_t from, uint64_t n) {
  const uint64_t tail = *(uint64_t*)(s->ring + mscclpp_ring_tail);
  if (s->head - tail >= room) return 0;
  uint64_t* slot = (uint64_t*)(s->ring + mscclpp_ring_triggers + s->head % room * mscclpp_ring_trigger);
  slot[0] = mscclpp_trigger_pack_bytes(n) | mscclpp_trigger_pack_from(from);
  slot[1] = mscclpp_trigger_pack_to(to) | mscclpp_trigger_pack_dst(1) | mscclpp_trigger_pack_kind((uint32_t)kind) | (uint64_t)((s->head / room & 1) ^ 1) << 63;
  s->head++;
  mscclpp_stream_drain(s->r);
  return 1;
}

// Faults that occur now and then on this link: each alone comes further than all at once.
enum { bad_kind = 1, bad_handle = 2, bad_bounds = 4, bad_number = 8, bad_cut = 16, bad_bye = 32 };
static uint64_t wrong;
static int now(uint64_t what, uint64_t one_in) { return (wrong & what) != 0 && rnd(one_in) == 0; }

// A frame of which most numbers make sense, so that many are accepted.
static void random_frame(char* to, int streams, uint64_t* flushes, uint64_t* puts) {
  frame f = {0};
  const uint64_t kinds[] = {kind_put, kind_put, kind_stripe, kind_signal, kind_flush, kind_done, now(bad_bye, 20) ? kind_bye : kind_put, now(bad_kind, 4) ? rnd(256) : kind_put};
  f.kind = (uint8_t)kinds[rnd(8)];
  f.handle = now(bad_handle, 20) ? (uint32_t)rnd(0) : (uint32_t)rnd(2);
  f.bytes = now(bad_bounds, 20) ? rnd(0) : rnd(3) == 0 ? rnd(bytes) : rnd(9000);
  f.offset = now(bad_bounds, 20) ? rnd(0) : rnd(bytes);
  if ((f.offset > bytes || f.bytes > bytes - f.offset) && !now(bad_bounds, 4)) f.bytes = bytes - least(f.offset, bytes);
  if (f.kind == kind_signal && !now(bad_bounds, 8)) f.offset &= ~7ull, f.offset = least(f.offset, bytes - 8);
  f.others = f.kind == kind_stripe && streams > 1 ? (uint8_t)(now(bad_number, 8) ? rnd(256) : 1 + rnd((uint64_t)streams - 1)) : 0;
  if (f.kind == kind_flush) f.number = now(bad_number, 8) ? rnd(0) : ++*flushes;
  if (f.kind == kind_done) f.number = rnd(4);
  if (f.kind == kind_stripe) f.number = now(bad_number, 8) ? rnd(0) : ++*puts;
  memcpy(to, &f, sizeof f);
}

static void nonsense(int streams) {
  side s;
  int near[3], far[3];
  make_pairs(near, far, streams);
  begin_side(&s, near, streams, 4096);
  char* second = fenced(bytes);
  must(mscclpp_stream_expose(s.l, second, bytes) == 1, "expose");
  wrong = 1ull << rnd(7) | 1ull << rnd(7);  // the last of them is nothing
  uint64_t flushes = 0, puts = 0, parts[3] = {0};
  static char junk[page];
  for (int n = 0; n < 300 && s.l->state == mscclpp_stream_alive; ++n) {
    char head[mscclpp_stream_head];
    const int to = (int)rnd((uint64_t)streams);
    random_frame(head, streams, &flushes, &puts);
    frame f;
    memcpy(&f, head, sizeof f);
    if (to > 0) {
      f.kind = kind_stripe, f.others = 0, f.number = now(bad_number, 8) ? rnd(0) : ++parts[to];
      if (f.offset > bytes || f.bytes > bytes - f.offset) f.offset = 0, f.bytes = rnd(bytes);
      memcpy(head, &f, sizeof f);
    }
    const uint64_t cut = now(bad_cut, 20) ? rnd(mscclpp_stream_head) : mscclpp_stream_head;
    int full = send(far[to], head, cut, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)cut;
    uint64_t left = f.kind == kind_put || f.kind == kind_stripe ? least(f.bytes, 200000) : 0;
    if (now(bad_cut, 20)) left = rnd(200000);
    while (left > 0 && !full) {
      const ssize_t sent = send(far[to], junk, 1 + rnd(least(left, page)), MSG_DONTWAIT | MSG_NOSIGNAL);
      full = sent < 0;
      if (!full) left -= least(left, (uint64_t)sent);
      if (rnd(8) == 0) (void)turn(&s, ~0ull);
    }
    if (rnd(4) == 0) (void)turn(&s, ~0ull);
    if (rnd(50) == 0) mscclpp_stream_withdraw(s.l, (uint32_t)rnd(3));
    if (rnd(6) == 0) (void)push(&s, 1 + rnd(7), rnd(8) * page, rnd(8) * page, rnd(9 * page));
    if (rnd(3) == 0) {
      while (recv(far[rnd((uint64_t)streams)], junk, sizeof junk, MSG_DONTWAIT) > 0 && rnd(10) != 0) {
      }
    }
  }
  for (int n = 0; n < streams; ++n) close(far[n]);
  for (int n = 0; n < 100000 && s.l->state == mscclpp_stream_alive; ++n) (void)turn(&s, ~0ull);
  must(s.l->state != mscclpp_stream_alive, "the link goes on without its peer");
  must(s.l->error != EFAULT, "a peer reached beyond its memory");  // the kernel noticed, in recvmsg
  end_side(&s);
  unfence(second, bytes);
}

// Puts of random sizes at random places, in both directions, each behind a signal, are
// what was sent.
static void sense(int streams) {
  side s[2];
  int fd[2][3];
  make_pairs(fd[0], fd[1], streams);
  for (int i = 0; i < 2; ++i) begin_side(&s[i], fd[i], streams, 1 + rnd(8 * page));
  enum { half = bytes / 2 };
  for (uint64_t n = 1; n <= 40; ++n) {
    uint64_t size[2], at[2], from[2];
    for (int i = 0; i < 2; ++i) {
      size[i] = rnd(3) == 0 ? rnd(half - page) : rnd(9000);
      from[i] = page + rnd(half - page - size[i] + 1), at[i] = half + rnd(half - size[i] + 1);
      for (uint64_t b = 0; b < size[i]; ++b) s[i].memory[from[i] + b] = (char)rnd(0);
      must(push(&s[i], rnd(2) ? mscclpp_do_put | mscclpp_do_signal | mscclpp_do_flush : mscclpp_do_put | mscclpp_do_signal, at[i], from[i], size[i]), "push");
    }
    for (int i = 0, turns = 0; i < 2; ++turns) {
      must(turns < 1000000, "a signal does not come");
      if (turn(&s[turns & 1], n) && (turns & 1) == i) ++i;
      if (i < 2 && *(uint64_t*)s[i].memory >= n) ++i;
    }
    for (int i = 0; i < 2; ++i) must(memcmp(s[1 - i].memory + at[i], s[i].memory + from[i], size[i]) == 0, "data is not what was sent");
  }
  for (int i = 0; i < 2; ++i) end_side(&s[i]);
}

int main(int argc, char** argv) {
  must(argc == 3, "expected SEED ROUNDS");
  state = strtoull(argv[1], NULL, 10) * 2654435769u + 1;
  for (long n = strtol(argv[2], NULL, 10); n > 0; --n) {
    nonsense(1 + (int)rnd(3));
    sense(1 + (int)rnd(3));
  }
  return 0;
}
