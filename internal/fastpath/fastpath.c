#include "fastpath.h"

#include <string.h>

/* Calls in place, and others, have entries of their own. Nearly all calls of a communicator are on one stream: it is compared alone. */
static uint32_t place(const struct fastpath_key* k, int in_place) {
  uint64_t h = (k->count ^ (uint64_t)k->kind << 48 ^ (uint64_t)k->type << 40 ^ (uint64_t)k->op << 32 ^ (uint64_t)k->root << 20) *
               0x9e3779b97f4a7c15u;
  return (uint32_t)(h >> 58) ^ (uint32_t)in_place;
}

static int same(const struct fastpath_key* a, const struct fastpath_key* b) {
  return a->count == b->count && a->stream == b->stream && a->kind == b->kind && a->type == b->type && a->op == b->op && a->root == b->root;
}

static int apart(uintptr_t a, uint64_t a_bytes, uintptr_t b, uint64_t b_bytes) { return a >= b + b_bytes || b >= a + a_bytes; }

static int same_stream(const struct fastpath_entry* e) {
  if (e->stream_id == 0) return 1;
  uint64_t id = ((fastpath_identify)e->identify)(e->context, e->key.stream);
  return id == e->stream_id || id == 0; /* 0: it is not known now */
}

/* fits reports whether the buffers are like those of the entry: in place or apart, and nothing that was exchanged. */
static int fits(const struct fastpath_table* t, const struct fastpath_entry* e, uintptr_t in, uintptr_t out) {
  if (in + e->in_bytes < in || out + e->out_bytes < out) return 0;
  for (uint32_t i = 0; i < t->ranges; i++) {
    const struct fastpath_range* r = &t->exchanged[i];
    if (!apart(in, e->in_bytes, r->from, r->to - r->from) || !apart(out, e->out_bytes, r->from, r->to - r->from)) return 0;
  }
  int in_place = (int64_t)(in - out) == e->between;
  return in_place == (int)e->in_place && (in_place || apart(in, e->in_bytes, out, e->out_bytes));
}

/* sound reports whether calls may be made: nothing was aborted, no wait has exceeded its limit, no kernel has left a note, and
 * nobody wants records. */
static int sound(const struct fastpath_table* t) {
  uint32_t failed = 0;
  for (int i = 0; i < FASTPATH_WORDS; i++)
    if (t->words[i]) {
      uint32_t word = __atomic_load_n(t->words[i], __ATOMIC_ACQUIRE);
      failed |= i == 1 ? word == 1 : word;
    }
  return !failed;
}

/* fastpath_enter is enter of residents in collectives/internal/intra: it says when the next launch may begin, and changes
 * what may be waiting then, and whether this one overlaps with the one before. */
uint32_t fastpath_enter(const struct fastpath_table* t, uint32_t grid, uint32_t block, uint32_t* waiting, int* overlap) {
  uint32_t counted = grid > 2 ? grid : 2;
  if (*waiting + counted > t->most) *overlap = 0, *waiting = 0;
  if (grid * block <= t->early && *waiting + counted <= t->most / 2) {
    *waiting += counted;
    return t->at_once;
  }
  if (grid <= t->most / 2) {
    *waiting = counted;
    return t->sent;
  }
  *waiting = 0;
  return t->met;
}

/* begin and end tell observers of a call. */
static void begin(const struct fastpath_board* b, const struct fastpath_entry* e) {
  if (b->begun == NULL) return;
  *b->kind = e->seen_kind;
  *b->algorithm = e->seen_algorithm;
  *b->bytes = e->seen_bytes;
  __atomic_store_n(b->begun, *b->begun + 1, __ATOMIC_SEQ_CST);
}

static void end(const struct fastpath_board* b, const struct fastpath_entry* e) {
  if (b->begun == NULL) return;
  *b->total += e->seen_bytes;
  __atomic_store_n(b->ended, *b->begun, __ATOMIC_SEQ_CST);
}

/* launch is argsFor and launchPart of llKernels there, and Launch of package cuda. */
static int launch(struct fastpath_table* t, struct fastpath_entry* e, uintptr_t in, uintptr_t out) {
  uint32_t waiting = t->waiting;
  int overlap = (int)e->overlap;
  uint32_t when = fastpath_enter(t, e->grid, e->block, &waiting, &overlap);
  uint64_t sequence = t->sequence + t->step;
  memcpy(e->arguments + t->at_input, &in, sizeof in);
  memcpy(e->arguments + t->at_output, &out, sizeof out);
  memcpy(e->arguments + t->at_sequence, &sequence, sizeof sequence);
  memcpy(e->arguments + t->at_release, &when, sizeof when);
  begin(&t->board, e);
  int failed = ((fastpath_launch)e->launch)(e->context, e->function, e->key.stream, e->grid, e->block, 0, overlap, (uintptr_t)e->arguments, e->bytes);
  end(&t->board, e);
  if (failed) return 0; /* Go tries again, and says why */
  t->sequence = sequence;
  t->waiting = waiting;
  __atomic_store_n(&t->calls, t->calls + 1, __ATOMIC_RELAXED);
  return 1;
}

int fastpath_call(struct fastpath_table* t, uint64_t owner, const struct fastpath_key* key, const void* in, void* out) {
  if (!__atomic_load_n(&t->open, __ATOMIC_RELAXED) || in == NULL || out == NULL) return 0;
  if (__atomic_exchange_n(&t->lock, 1, __ATOMIC_ACQUIRE)) return 0; /* another thread is in: Go puts calls in order */
  struct fastpath_entry* e = &t->entries[place(key, in == out)];
  int done = __atomic_load_n(&t->open, __ATOMIC_ACQUIRE) && t->owner == owner && e->epoch == __atomic_load_n(&t->epoch, __ATOMIC_ACQUIRE) &&
             same(&e->key, key) && same_stream(e) && fits(t, e, (uintptr_t)in, (uintptr_t)out) && sound(t) && launch(t, e, (uintptr_t)in, (uintptr_t)out);
  __atomic_store_n(&t->lock, 0, __ATOMIC_RELEASE);
  return done;
}
