// Dispatch and combine on GPUs have this in common. The first blocks send: the signature of the call, headers and counts, rows. One
// compares signatures and keeps the books, and those behind it receive. A block waits for other ranks and never for one behind it,
// so that a launch may have fewer blocks, each of which does the work of several in their order.
#ifndef MSCCLPP_INFERENCE_MOE_BLOCK_H_
#define MSCCLPP_INFERENCE_MOE_BLOCK_H_

#include "moe_places.h"

namespace mscclpp {
namespace inference {

#if !MSCCLPP_TARGET_CPU
constexpr uint32_t kMoeRoom = 1024;     // words of a block; not fewer than it has threads, and those below
constexpr uint32_t kMoePeers = 2 * 64;  // the last ones have the addresses of peers' memory

struct MoeBlock {
  const MoeArgs& a;
  MoePlaces at;
  uint32_t kind, tid, nthreads, units, parts;  // packets of a row, and blocks that share one
  uint32_t* words;
  bool ok;

  MSCCLPP_DEVICE MoeBlock(const MoeArgs& args, uint32_t which, uint64_t launch, uint32_t element)
      : a(args), at(args, launch), kind(which), tid(thread_id()), nthreads(block_dim()), units(at.units(element)), parts((units + nthreads - 1) / nthreads),
        words(room(args)), ok(true) {}

  static MSCCLPP_DEVICE uint32_t* room(const MoeArgs& args) {
#if MSCCLPP_TARGET_GPU
    (void)args;
    static __attribute__((shared)) uint32_t shared[kMoeRoom];
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

  // begin waits until all ranks have read what is in this launch's half. Addresses of peers are loaded meanwhile, for all threads.
  MSCCLPP_DEVICE bool begin() {
    const uint64_t before = at.launch_before();
    char** table = reinterpret_cast<char**>(words + kMoeRoom - kMoePeers);
    at.peers = a.peers;
    for (uint32_t r = tid; r < a.ranks; r += nthreads) {
      table[r] = a.peers[r];
      const uint64_t* word = at.ack(kind, r, a.rank);
      if (r == a.rank || load_acquire(word) >= before) continue;
      ok = MSCCLPP_ACQUIRED(wait_brief(a.control, at.site(kMoeAcks, r, before), [word, before] { return MSCCLPP_POLL(word) >= before; })) && ok;
    }
    ok = block_sync_and(ok);
    at.peers = table;
    return ok;
  }

  MSCCLPP_DEVICE void notify() {
    if (!begin()) return;
    for (uint32_t r = tid; r < a.ranks; r += nthreads) store8_packet(at.notice(kind, a.rank, r), moe_pair(a.signature, at.number));
  }
  // compare ends the launch if a rank has begun another call.
  MSCCLPP_DEVICE void compare() {
    for (uint32_t r = tid; r < a.ranks; r += nthreads) {
      const uint64_t* word = at.notice(kind, r, a.rank);
      const uint32_t number = at.number;
      uint64_t got = 0;
      if (!wait(kMoeNotices, r, [word, number, &got] {
            got = load8_packet(word);
            return static_cast<uint32_t>(got >> 32) == number;
          })) {
        ok = false;
        continue;
      }
      if (static_cast<uint32_t>(got) == a.signature) continue;
      ok = false;
      store_relaxed_device(&a.state->apart, r + 1);
      detail::report(a.control, WaitSite{a.kernel, kMoeApart, r, a.signature}, static_cast<uint32_t>(got));
      store_relaxed_device(&a.state->left, 1u);
    }
  }

  // How many of every step-th choice from first on, before end, are an expert.
  MSCCLPP_DEVICE uint32_t matches(uint32_t first, uint32_t end, uint32_t step, int64_t expert) const {
    constexpr uint32_t kAtOnce = 8;
    uint32_t n = 0, i = first;
    for (; i + (kAtOnce - 1) * step < end; i += kAtOnce * step) {
      int64_t v[kAtOnce];
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < kAtOnce; ++k) v[k] = at.index(i + k * step);
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < kAtOnce; ++k) n += v[k] == expert ? 1u : 0u;
    }
    for (; i < end; i += step) n += at.index(i) == expert ? 1u : 0u;
    return n;
  }
};

// role does the work of block b of as many as the call is made for.
template <class Work>
MSCCLPP_DEVICE void moe_role(Work& work, uint32_t b) {
  const MoeArgs& a = work.a;
  if ((a.flags & kMoeSend) != 0) {
    if (b == 0) return work.notify();
    b -= 1;
    if (b < a.headers_by) return work.headers(b);
    b -= a.headers_by;
    if (b < a.counters) return work.count(b);
    b -= a.counters;
    if (b < a.senders) return work.send(b);
    b -= a.senders;
  }
  if (b == 0) return work.books();
  work.collect(b - 1);
}

// run has each block do its part, and the last one say that the launch has ended.
template <class Work>
MSCCLPP_DEVICE void moe_run(const MoeArgs& a, uint32_t kind) {
  await_previous();
  release_next();
  MoeState* s = a.state;
  const bool sends = (a.flags & kMoeSend) != 0, receives = (a.flags & kMoeReceive) != 0;
  const uint64_t sent = load_relaxed_device(&s->sent[kind]), launch = sends ? sent + 1 : sent - a.behind;
  Work work(a, launch);
  work.ok = load_relaxed_device(&s->left) == 0;  // threads of a block that differ meet at the same barriers
  const uint32_t roles = (sends ? 1 + a.headers_by + a.counters + a.senders : 0) + (receives ? 1 + a.collectors : 0);
  for (uint32_t b = block_id(); b < roles; b += grid_dim()) {
    work.at.peers = a.peers;
    moe_role(work, b);
    work.ok = block_sync_and(work.ok);
  }
  if (thread_id() != 0) return;
  if (!work.ok) store_release_device(&s->left, 1u);
  if (fetch_add_acq_rel_device(&s->finished, 1u) != grid_dim() - 1) return;
  store_relaxed_device(&s->finished, 0u);
  if (receives && load_relaxed_device(&s->left) == 0) {
    work.at.peers = a.peers;
    for (uint32_t r = 0; r < a.ranks; ++r) store_release(work.at.ack(kind, a.rank, r), launch);
  }
  if (sends) store_release_device(&s->sent[kind], launch);
}
#endif

}  // namespace inference
}  // namespace mscclpp
#endif  // MSCCLPP_INFERENCE_MOE_BLOCK_H_
