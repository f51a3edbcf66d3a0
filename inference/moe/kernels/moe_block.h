// Dispatch and combine on GPUs have this in common. A call is made for blocks that send: the signature of the call, headers and counts, rows;
// then for one that compares signatures and keeps the books, and for those that receive. None waits for anything that one behind it
// does, so that a launch may have fewer blocks, each of which does the work of several in their order. Mostly it has as many as run at
// once: a block that has sent receives.
#ifndef MSCCLPP_INFERENCE_MOE_BLOCK_H_
#define MSCCLPP_INFERENCE_MOE_BLOCK_H_

#include "moe_places.h"

namespace mscclpp {
namespace inference {

#if !MSCCLPP_TARGET_CPU
// Words of a block: partial counts of its threads, the choices of a token, those that are counted, addresses of peers' memory, and what the
// block knows of earlier launches.
constexpr uint32_t kMoeCounted = 1024, kMoeChoices = 512, kMoeStaged = kMoeChoices + kMoeMostTopK, kMoeTable = kMoeStaged + kMoeCounted, kMoeEarlier = kMoeTable + 2 * 64,
                   kMoeRoom = kMoeEarlier + 2 * kMoeKnownWords;

// A choice that is no expert.
constexpr uint32_t kMoeNone = 0xffffffffu;

struct MoeBlock {
  const MoeArgs& a;
  MoePlaces at;
  uint32_t kind, tid, nthreads, units, parts;  // packets of a row, and blocks that share one
  uint32_t* words;
  uint64_t mine = 0;  // a word of what load looks at
  bool opened = false, ok = true, heard = true;

  // It touches nothing that an earlier kernel may have written.
  MSCCLPP_DEVICE MoeBlock(const MoeArgs& args, uint32_t which, uint32_t element)
      : a(args), at(args, 1), kind(which), tid(thread_id()), nthreads(block_dim()), units(at.units(element)), parts((units + nthreads - 1) / nthreads), words(room(args)) {
    char** table = reinterpret_cast<char**>(words + kMoeTable);
    for (uint32_t r = tid; r < a.ranks; r += nthreads) table[r] = a.peers[r];
    block_sync();
    at.peers = table;
  }

  // load looks at the state, of which open makes the number of the launch. Between the two a block loads what does not depend on it. A few
  // threads load for all, by one instruction: a load of each warp is a request to the cache.
  MSCCLPP_DEVICE MoeKnown* known() const { return &a.state->known[kind][block_id() % kMoeCopies]; }
  MSCCLPP_DEVICE uint64_t* earlier() const { return reinterpret_cast<uint64_t*>(words + kMoeEarlier); }
  MSCCLPP_DEVICE uint64_t word(uint32_t i) const { return load_relaxed_device(&known()->sent + i); }
  MSCCLPP_DEVICE void load() {
    if (tid < kMoeKnownWords) mine = word(tid);
  }
  MSCCLPP_DEVICE bool open() {
    if (opened) return ok;
    opened = true;
    for (uint32_t i = tid; i < kMoeKnownWords; i += nthreads) earlier()[i] = i == tid ? mine : word(i);
    block_sync();
    at.set(at.has(kMoeSend) ? earlier()[0] + 1 : earlier()[0] - a.behind);
    ok = earlier()[3] == 0;
    if (tid == 0 && at.has(kMoeSend)) fetch_add_relaxed_device(&known()->started, 1u);
    return ok;
  }

  static MSCCLPP_DEVICE uint32_t* room(const MoeArgs& args) {
#if MSCCLPP_TARGET_GPU
    (void)args;
    alignas(16) static __attribute__((shared)) uint32_t shared[kMoeRoom];
    return shared;
#else
    return args.room + block_id() * kMoeRoom;
#endif
  }

  template <class F>
  MSCCLPP_DEVICE bool wait(uint32_t channel, uint32_t peer, F ready) const { return wait_brief(a.control, at.site(channel, peer, at.launch), ready); }

  MSCCLPP_DEVICE bool flagged(uint32_t& value, const LL8Packet* p, uint32_t channel, uint32_t peer) const {
    const uint32_t number = at.number;
    uint32_t got = 0;
    const bool came = wait(channel, peer, [&got, p, number] { return pollPacket(p, number, got); });
    value = got;
    return came;
  }

  // A packet of a row: it is looked at before other waits, and here waited for; the sentinel is put back.
  MSCCLPP_DEVICE Vec16 receive(char* p, uint32_t peer, Vec16 got) {
    if (!whole(got) && ok) {
      Vec16 seen = got;
      ok = wait(kMoeRows, peer, [p, &seen] {
        seen = load16_packet(p);
        return whole(seen);
      });
      got = seen;
    }
    clear(p);
    return got;
  }

  // begin waits until all ranks have read what is in this launch's half. Mostly the launch before has seen that they have.
  MSCCLPP_DEVICE bool begin() {
    if (!open()) return false;
    const uint64_t before = at.launch_before();
    if ((at.turn == 0 ? earlier()[1] : earlier()[2]) >= before) return true;
    for (uint32_t r = tid; r < a.ranks; r += nthreads) {
      const uint64_t* word = at.ack(kind, r, a.rank);
      if (r == a.rank || load_acquire(word) >= before) continue;
      ok = MSCCLPP_ACQUIRED(wait_brief(a.control, at.site(kMoeAcks, r, before), [word, before] { return MSCCLPP_POLL(word) >= before; })) && ok;
    }
    ok = block_sync_and(ok);
    return ok;
  }

  // Earlier launches have received these calls, and put the sentinel back: they have ended, and their stores are performed.
  MSCCLPP_DEVICE void acknowledge() {
    uint64_t done[2];
    MSCCLPP_UNROLL
    for (uint32_t t = 0; t < 2; ++t) done[t] = load_relaxed_device(&a.state->received[kind][t]);
    if (!open()) return;
    for (uint32_t r = tid; r < a.ranks; r += nthreads) {
      if (r == a.rank) continue;
      MSCCLPP_UNROLL
      for (uint32_t t = 0; t < 2; ++t) store_relaxed(at.ack(kind, a.rank, r, t), done[t]);
    }
  }
  MSCCLPP_DEVICE void notify() {
    acknowledge();
    if (!begin()) return;
    for (uint32_t r = tid; r < a.ranks; r += nthreads) store8_packet(at.notice(kind, a.rank, r), moe_pair(a.signature, at.number));
  }
  // compare ends the launch if a rank has begun another call. A notice comes behind the acknowledgment of the call before.
  MSCCLPP_DEVICE void compare() {
    if (!at.has(kMoeSend)) acknowledge();
    if (!open()) return;
    for (uint32_t r = tid; r < a.ranks; r += nthreads) {
      const uint64_t *word = at.notice(kind, r, a.rank), *ack = at.ack(kind, r, a.rank, 1 - at.turn);
      const uint32_t number = at.number;
      uint64_t got = 0, before = 0;
      if (!wait(kMoeNotices, r, [word, ack, number, &got, &before] {
            got = load8_packet(word);
            before = load_acquire(ack);
            return static_cast<uint32_t>(got >> 32) == number;
          })) {
        ok = false;
        continue;
      }
      if (r != a.rank && before + 1 < at.launch) heard = false;
      if (static_cast<uint32_t>(got) == a.signature) continue;
      ok = false;
      store_relaxed_device(&a.state->apart, r + 1);
      detail::report(a.control, WaitSite{a.kernel, kMoeApart, r, a.signature}, static_cast<uint32_t>(got));
      store_relaxed_device(&a.state->left, 1u);
    }
  }
  // note keeps the state that later launches look at. No block of this one does: it looks at the words of its own half.
  MSCCLPP_DEVICE void note() {
    ok = block_sync_and(ok);
    heard = block_sync_and(heard);
    if (!ok) return;
    if (tid == 0) store_relaxed_device(&a.state->received[kind][at.turn], at.launch);
    for (uint32_t c = tid; heard && c < kMoeCopies; c += nthreads) store_relaxed_device(&a.state->known[kind][c].acked[1 - at.turn], at.launch - 1);
  }

  // leave has later launches end at once.
  MSCCLPP_DEVICE void leave() const {
    for (uint32_t c = tid; c < 2 * kMoeCopies; c += nthreads) store_relaxed_device(&a.state->known[c / kMoeCopies][c % kMoeCopies].left, uint64_t{1});
    if (tid == 0) store_release_device(&a.state->left, 1u);
  }
  // count_launch counts the launch when all of its blocks have begun, which know its number then.
  MSCCLPP_DEVICE void count_launch() const {
    const uint32_t all = grid_dim();
    for (uint32_t c = tid; c < kMoeCopies; c += nthreads) {
      MoeKnown* k = &a.state->known[kind][c];
      const uint32_t blocks = (all + kMoeCopies - 1 - c) / kMoeCopies;
      if (!wait(kMoeNotices, a.rank, [k, blocks] { return load_relaxed_device(&k->started) == blocks; })) return;
      store_relaxed_device(&k->started, 0u);
      store_relaxed_device(&k->sent, at.launch);
    }
  }

  // Counts, in the words of slice 0, how often experts are among the choices before end. Threads of a slice have an expert each, `width` of
  // them; choices lie in words of the block, as many as there is room for, and four are looked at at once. Behind the last ones is no expert.
  // Its own choices, of which the caller wants none or all, slice 0 writes when their loads have had the time of the others.
  MSCCLPP_DEVICE uint32_t matches(uint32_t end, uint32_t width, int64_t expert, uint32_t* own) {
    constexpr uint32_t kAtOnce = 8;
    const uint32_t slice = tid / width, slices = nthreads / width;
    uint32_t* staged = words + kMoeStaged;
    uint32_t n = 0;
    for (uint32_t first = 0; first < end; first += kMoeCounted) {
      const uint32_t some = end - first < kMoeCounted ? end - first : kMoeCounted, whole = (some + 3) / 4 * 4;
      for (uint32_t i0 = tid; i0 < whole; i0 += kAtOnce * nthreads) {
        int64_t v[kAtOnce];
        MSCCLPP_UNROLL
        for (uint32_t k = 0; k < kAtOnce; ++k) v[k] = i0 + k * nthreads < some ? at.index(first + i0 + k * nthreads) : -1;
        MSCCLPP_UNROLL
        for (uint32_t k = 0; k < kAtOnce; ++k) {
          if (i0 + k * nthreads < whole) staged[i0 + k * nthreads] = static_cast<uint32_t>(v[k]);
        }
      }
      block_sync();
      const uint32_t e = static_cast<uint32_t>(expert);
      for (uint32_t i = 4 * slice; at.real(expert) && slice < slices && i < some; i += 4 * slices) {
        const Vec16 c = *reinterpret_cast<const Vec16*>(staged + i);
        n += (c.x == e ? 1u : 0u) + (c.y == e ? 1u : 0u) + (c.z == e ? 1u : 0u) + (c.w == e ? 1u : 0u);
      }
      block_sync();
    }
    words[tid] = n;
    if (own != nullptr && slice == 0) own[tid] = at.real(expert) ? static_cast<uint32_t>(expert) : kMoeNone;
    block_sync();
    for (uint32_t s = 1; slice == 0 && s < slices; ++s) n += words[s * width + tid];
    return n;
  }
};

// The two roles of a call do the work of block b of as many as the call is made for.
template <class Work>
MSCCLPP_DEVICE void moe_sends(Work& work, uint32_t b) {
  const MoeArgs& a = work.a;
  if (b == 0) return work.notify();
  b -= 1;
  if (b < a.headers_by) return work.headers(b);
  b -= a.headers_by;
  if (b < a.counters) return work.count(b);
  work.send(b - a.counters);
}
template <class Work>
MSCCLPP_DEVICE void moe_receives(Work& work, uint32_t b) {
  if (b != 0) return work.collect(b - 1);
  work.books();
  work.note();
}

// run has each block do its part: first all that it sends, so that no rank waits for what stands behind a wait. The first block counts the
// launch before it receives, and nothing at the end of a launch waits for memory.
template <class Work>
MSCCLPP_DEVICE void moe_run(const MoeArgs& a) {
  Work work(a);
  await_previous();
  release_next();
  work.load();
  const bool sends = (a.flags & kMoeSend) != 0, receives = (a.flags & kMoeReceive) != 0;
  const uint32_t sending = sends ? 1 + a.headers_by + a.counters + a.senders : 0, all = sending + (receives ? 1 + a.collectors : 0);
  uint32_t b = block_id();
  for (; b < sending; b += grid_dim()) {
    moe_sends(work, b);
    work.ok = block_sync_and(work.ok);
  }
  if (sends && block_id() == 0) {
    work.open();
    work.count_launch();
  }
  for (; b < all; b += grid_dim()) {
    moe_receives(work, b - sending);
    work.ok = block_sync_and(work.ok);
  }
  work.open();
  if (!work.ok) work.leave();
}
#endif

}  // namespace inference
}  // namespace mscclpp
#endif  // MSCCLPP_INFERENCE_MOE_BLOCK_H_
