// Clusters: blocks that reach each other's shared memory, and barriers in shared memory that count the bytes of stores.
//
// Such a store is seen when the phase of its barrier has ended, and no earlier: a kernel that reads before it waits reads old words.
#include "forms.h"
#include "machine.h"
#include "race.h"

namespace ptx {
namespace {

uint64_t cluster_begin(const Block& b) { return b.id / b.grid->launch.cluster * b.grid->launch.cluster; }

// The block of the warp's cluster to which bytes of shared memory belong.
Block& owner(Warp& w, const Instruction& i, uint32_t lane, uint64_t at, uint64_t bytes) {
  Grid& g = *w.block->grid;
  const uint64_t first = cluster_begin(*w.block);
  for (uint64_t n = first; n < first + g.launch.cluster; ++n) {
    Block& b = *g.blocks[n];
    if (at < b.shared_begin || at + bytes > b.shared_end) continue;
    if (at % bytes != 0) w.fail(i, lane, "misaligned shared memory");
    if (b.left == b.threads) w.fail(i, lane, "shared memory of a block that has left");
    return b;
  }
  w.fail(i, lane, "outside of the cluster's shared memory");
}

Mbarrier& barrier_at(Warp& w, const Instruction& i, uint32_t lane, uint64_t at) {
  auto& barriers = owner(w, i, lane, at, 8).mbarriers;
  const auto found = barriers.find(at);
  if (found == barriers.end()) w.fail(i, lane, "no barrier is there");
  return found->second;
}

void advance(Machine& m, Mbarrier& b) {
  if (b.pending != 0 || b.bytes != 0) return;
  ++b.phase;
  b.pending = b.count;
  for (const auto& [at, value] : b.stores) {
    if (m.races != nullptr) m.races->fresh(at, at + 4);
    *reinterpret_cast<uint32_t*>(at) = value;
  }
  b.stores.clear();
}

void defined(Warp& w, const Instruction& i, Operand o, uint32_t lanes) {
  if (const uint32_t bad = undefined(w, o) & lanes) w.fail(i, static_cast<uint32_t>(__builtin_ctz(bad)), "an operand was never set");
}

}  // namespace

void map_shared(Warp& w, const Instruction& i, uint32_t lanes) {
  defined(w, i, i.a, lanes), defined(w, i, i.b, lanes);
  const Source a = source(w, i.a), b = source(w, i.b);
  uint64_t* d = target(w, i.d);
  const Grid& g = *w.block->grid;
  each_lane(lanes, [&](uint32_t l) {
    const uint64_t rank = b[l] & 0xffffffff;
    if (rank >= g.launch.cluster) w.fail(i, l, "the cluster has no such block");
    d[l] = a[l] - w.block->shared_begin + g.blocks[cluster_begin(*w.block) + rank]->shared_begin;
  });
  define(w, i.d, lanes, 0);
}

void mbarrier_init(Warp& w, const Instruction& i, uint32_t lanes) {
  defined(w, i, i.a, lanes), defined(w, i, i.b, lanes);
  const Source a = source(w, i.a), b = source(w, i.b);
  each_lane(lanes, [&](uint32_t l) {
    if (&owner(w, i, l, a[l], 8) != w.block) w.fail(i, l, "a barrier of another block");
    Mbarrier made;
    made.count = made.pending = static_cast<uint32_t>(b[l]);
    if (!w.block->mbarriers.emplace(a[l], made).second) w.fail(i, l, "a barrier is there already");
  });
}

void mbarrier_expect(Warp& w, const Instruction& i, uint32_t lanes) {
  defined(w, i, i.a, lanes), defined(w, i, i.b, lanes);
  const Source a = source(w, i.a), b = source(w, i.b);
  each_lane(lanes, [&](uint32_t l) {
    Mbarrier& at = barrier_at(w, i, l, a[l]);
    if (at.pending == 0) w.fail(i, l, "more arrivals than the barrier counts");
    at.bytes += static_cast<uint32_t>(b[l]);
    --at.pending;
    advance(*w.machine, at);
  });
}

void mbarrier_test(Warp& w, const Instruction& i, uint32_t lanes) {
  defined(w, i, i.a, lanes), defined(w, i, i.b, lanes);
  const Source a = source(w, i.a), b = source(w, i.b);
  uint64_t* d = target(w, i.d);
  each_lane(lanes, [&](uint32_t l) { d[l] = (barrier_at(w, i, l, a[l]).phase & 1) != (b[l] & 1); });
  define(w, i.d, lanes, 0);
}

void store_async(Warp& w, const Instruction& i, uint32_t lanes) {
  defined(w, i, i.a, lanes), defined(w, i, i.b, lanes), defined(w, i, i.c, lanes);
  const Source a = source(w, i.a), b = source(w, i.b), c = source(w, i.c);
  each_lane(lanes, [&](uint32_t l) {
    if (&owner(w, i, l, a[l], 4) != &owner(w, i, l, c[l], 8)) w.fail(i, l, "the barrier is not where the store goes");
    Mbarrier& at = barrier_at(w, i, l, c[l]);
    at.stores.push_back({a[l], static_cast<uint32_t>(b[l])});
    at.bytes -= 4;
    advance(*w.machine, at);
  });
}

// The barrier of a cluster: arrivals are counted, and a wait goes on when all have arrived as often as its warp has.
void Machine::cluster(Warp& w, const Instruction& i) {
  Block& b = *w.block;
  Grid& g = *b.grid;
  Cluster& c = g.clusters[b.id / g.launch.cluster];
  Group& group = w.groups[w.now];
  if (i.kind == Kind::kClusterWait) {
    if (w.groups.size() != 1) w.fail(i, 0, "threads of a warp are apart");
    if (c.phase <= w.cluster_waits) group.state = State::kCluster;
    else ++w.cluster_waits;
    return;
  }
  c.arrived += static_cast<uint32_t>(__builtin_popcount(group.lanes));
  if (c.arrived < g.launch.cluster * g.launch.block) return;
  c.arrived = 0;
  ++c.phase;
  const uint64_t first = cluster_begin(b);
  if (races != nullptr) races->barrier(g, first, g.launch.cluster);
  for (uint64_t n = first; n < first + g.launch.cluster; ++n) {
    for (Warp& other : g.blocks[n]->warps) {
      for (Group& waits : other.groups) {
        if (waits.state != State::kCluster) continue;
        waits.state = State::kReady;
        ++other.cluster_waits;
        ready(other);
      }
    }
  }
}

}  // namespace ptx
