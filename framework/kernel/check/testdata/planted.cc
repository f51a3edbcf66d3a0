// Kernels that are right, and the same kernels with one mistake each: --bug K plants
// mistake number K. planted_test.go shows that every one of them is found.
#include <mscclpp/check.h>

using namespace mscclpp;

enum Bug {
  kNone,
  // exchange
  kSignalRelaxed, kWaitRelaxed, kNoBarrierBeforeSignal, kNoBarrierAfterWait, kWrongPeer, kWrongSlot, kOverwriteUnread,
  kSignalForgotten, kCopyTooLong, kNoBarrierBeforePut,
  // packets
  kSecondFlagUnchecked, kPacketSlotWrong, kOneBuffer, kFlagNotAdvanced, kFlagBesideData,
  // blocks
  kNoGridBarrier, kReturnBeforeGridBarrier, kGridBarrierRelaxed, kBarrierInBranch,
  // ring
  kCommitBeforePayload, kCommitRelaxed, kOverrun, kWrongParity, kHeadNotAtomic,
  // window
  kReduceBeforeWait, kSignalBeforeBroadcast,
  kBugs
};

static const char* const kNames[kBugs] = {
    "none", "signal is not a release", "wait is not an acquire", "no barrier before signal", "no barrier after wait",
    "wrong peer", "wrong slot", "overwrites what the peer still reads", "signal forgotten in one round",
    "copy rounded up to 16 bytes", "no barrier between filling and putting", "second flag of LL16 unchecked",
    "packet slot of another rank", "packets not double-buffered", "flag not advanced", "flag stored beside the data, not with it",
    "no grid barrier between phases", "a block returns before the grid barrier", "grid barrier arrives relaxed",
    "block barrier in a branch", "commit word before payload", "commit word relaxed", "ring overrun", "wrong parity",
    "head not atomic", "reduce before wait", "signal before broadcast"};

constexpr uint32_t kRanks = 3, kRounds = 4;

static uint32_t value(uint32_t rank, uint32_t round, uint32_t i) { return rank * 1000003u + round * 10007u + i * 17u + 1; }

// --- exchange: each rank puts into the next one's inbox, and tells the previous one
// when its inbox may be filled again.
struct ExchangeArgs {
  MemoryChannelHandle next, previous;
  uint32_t* outbox;
  uint32_t* inbox;
  uint64_t* sums;
  uint32_t rank, count;
  int bug;
};
MSCCLPP_KERNEL(exchange, ExchangeArgs, a) {
  const MemoryChannel& next = static_cast<const MemoryChannel&>(a.next);
  const MemoryChannel& previous = static_cast<const MemoryChannel&>(a.previous);
  const uint32_t t = thread_id(), n = block_dim();
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (uint32_t i = t; i < a.count; i += n) a.outbox[i] = value(a.rank, round, i);
    if (a.bug != kNoBarrierBeforePut) block_sync();
    const uint64_t bytes = a.count * 4;
    next.put(a.bug == kWrongSlot ? 4 : 0, 0, a.bug == kCopyTooLong ? (bytes + 15) / 16 * 16 : bytes - (a.bug == kWrongSlot ? 4 : 0),
             t, n);
    if (a.bug != kNoBarrierBeforeSignal) block_sync();
    bool ok = true;
    if (t == 0) {
      if (a.bug == kWrongPeer) {
        previous.signal();
      } else if (a.bug == kSignalRelaxed) {
        next.relaxedSignal();
      } else if (a.bug != kSignalForgotten || round != 2 || a.rank != 1) {
        next.signal();
      }
      ok = a.bug == kWaitRelaxed ? previous.relaxedWait() : previous.wait();
    }
    if (a.bug != kNoBarrierAfterWait) ok = block_sync_and(ok);
    if (!ok) return;
    for (uint32_t i = t; i < a.count; i += n) a.sums[i] += a.inbox[i];
    block_sync();
    if (a.bug != kOverwriteUnread) {
      if (t == 0) {
        previous.signal();
        ok = next.wait();
      }
      if (!block_sync_and(ok)) return;
    }
  }
}
static void exchangeTest(check::Job& job) {
  const uint32_t count = 37;  // not a multiple of 16 bytes
  ExchangeArgs args[kRanks];
  for (uint32_t r = 0; r < kRanks; ++r) {
    args[r] = ExchangeArgs{{}, {}, job.alloc<uint32_t>(count + 3), job.alloc<uint32_t>(count), job.alloc<uint64_t>(count), r, count, job.bug};
  }
  for (uint32_t r = 0; r < kRanks; ++r) {
    const uint32_t to = (r + 1) % kRanks;
    const auto link = job.link(r, args[r].outbox, to, args[to].inbox);
    args[r].next = link.a;
    args[to].previous = link.b;
  }
  for (uint32_t r = 0; r < kRanks; ++r) job.launch(r, 1, 8, exchange, args[r]);
  job.run();
  for (uint32_t r = 0; r < kRanks; ++r) {
    for (uint32_t i = 0; i < count; ++i) {
      uint64_t want = 0;
      for (uint32_t round = 0; round < kRounds; ++round) want += value((r + kRanks - 1) % kRanks, round, i);
      job.expect(args[r].sums[i] == want, "rank %u element %u: %llu, expected %llu", r, i,
                 static_cast<unsigned long long>(args[r].sums[i]), static_cast<unsigned long long>(want));
    }
  }
}

// --- packets: all ranks send to all, in two halves of scratch by turns.
struct PacketArgs {
  LL16Packet* scratch[kRanks];  // of every rank: [half][sender][count]
  WaitControl* control;
  uint64_t* sums;
  uint32_t rank, count;
  int bug;
};
static bool receive(const LL16Packet* p, uint32_t flag, const PacketArgs& a, uint64_t& payload) {
  if (a.bug == kSecondFlagUnchecked) {
    return wait_until(a.control, WaitSite{0, 0, 0, flag}, [p, flag, &payload] {
      const Vec16 v = load16_packet(p);
      payload = static_cast<uint64_t>(v.z) << 32 | v.x;
      return v.y == flag;
    });
  }
  if (a.bug == kFlagBesideData) {
    const bool ok = wait_until(a.control, WaitSite{0, 0, 0, flag}, [p, flag] {
      return load_relaxed(&p->flag1) == flag && load_relaxed(&p->flag2) == flag;
    });
    payload = static_cast<uint64_t>(p->data2) << 32 | p->data1;
    return ok;
  }
  return readPacket(p, flag, a.control, WaitSite{0, 0, 0, flag}, payload);
}
MSCCLPP_KERNEL(packets, PacketArgs, a) {
  for (uint32_t round = 0; round < kRounds; ++round) {
    const uint32_t flag = a.bug == kFlagNotAdvanced ? 1 : round + 1;
    const uint32_t half = a.bug == kOneBuffer ? 0 : round & 1;
    for (uint32_t i = global_thread(); i < a.count; i += global_threads()) {
      for (uint32_t to = 0; to < kRanks; ++to) {
        const uint32_t slot = a.bug == kPacketSlotWrong ? to : a.rank;
        LL16Packet* p = a.scratch[to] + (half * kRanks + slot) * a.count + i;
        const uint64_t payload = static_cast<uint64_t>(value(a.rank, round, i)) << 32 | value(a.rank, round, i + 5000);
        if (a.bug == kFlagBesideData) {
          store_relaxed(&p->flag1, flag);
          store_relaxed(&p->flag2, flag);
          p->data1 = static_cast<uint32_t>(payload);
          p->data2 = static_cast<uint32_t>(payload >> 32);
        } else {
          writePacket(p, payload, flag);
        }
      }
      for (uint32_t from = 0; from < kRanks; ++from) {
        uint64_t payload;
        if (!receive(a.scratch[a.rank] + (half * kRanks + from) * a.count + i, flag, a, payload)) return;
        a.sums[i] += (payload >> 32) * 3 + (payload & 0xffffffff);
      }
    }
  }
}
static void packetsTest(check::Job& job) {
  const uint32_t count = 9;
  PacketArgs args[kRanks];
  LL16Packet* scratch[kRanks];
  for (uint32_t r = 0; r < kRanks; ++r) scratch[r] = job.alloc<LL16Packet>(2 * kRanks * count);
  for (uint32_t r = 0; r < kRanks; ++r) {
    args[r] = PacketArgs{{scratch[0], scratch[1], scratch[2]}, job.control(r), job.alloc<uint64_t>(count), r, count, job.bug};
    job.launch(r, 2, 4, packets, args[r]);
  }
  job.run();
  for (uint32_t r = 0; r < kRanks; ++r) {
    for (uint32_t i = 0; i < count; ++i) {
      uint64_t want = 0;
      for (uint32_t from = 0; from < kRanks; ++from) {
        for (uint32_t round = 0; round < kRounds; ++round) {
          want += static_cast<uint64_t>(value(from, round, i)) * 3 + value(from, round, i + 5000);
        }
      }
      job.expect(args[r].sums[i] == want, "rank %u element %u: %llu, expected %llu", r, i,
                 static_cast<unsigned long long>(args[r].sums[i]), static_cast<unsigned long long>(want));
    }
  }
}

// --- blocks: two phases of one rank; in the second every thread reads what a thread
// of another block wrote in the first.
struct BlocksArgs {
  GridBarrier* barrier;
  WaitControl* control;
  uint32_t* a;
  uint32_t* b;
  uint32_t count;
  int bug;
};
static bool meet(const BlocksArgs& a) {
  if (a.bug == kNoGridBarrier) return true;
  if (a.bug != kGridBarrierRelaxed) return grid_sync(a.barrier, a.control);
  block_sync();
  bool ok = true;
  if (thread_id() == 0) {
    const uint32_t* arrived = &a.barrier->arrived;
    const uint32_t target = (load_relaxed_device(arrived) / grid_dim() + 1) * grid_dim();
    fetch_add_relaxed_device(&a.barrier->arrived, 1u);
    ok = wait_until(a.control, WaitSite{}, [arrived, target] { return load_acquire_device(arrived) >= target; });
  }
  return block_sync_and(ok);
}
MSCCLPP_KERNEL(blocks, BlocksArgs, a) {
  const uint32_t t = global_thread(), n = global_threads();
  if (a.bug == kReturnBeforeGridBarrier && block_id() * block_dim() >= a.count) return;
  for (uint32_t i = t; i < a.count; i += n) a.a[i] = i * i + 1;
  if (a.bug == kBarrierInBranch) {
    if (thread_id() < 2) {
      block_sync();
    } else {
      block_sync();
    }
  }
  if (!meet(a)) return;
  for (uint32_t i = t; i < a.count; i += n) a.b[i] = a.a[a.count - 1 - i];
}
static void blocksTest(check::Job& job) {
  const uint32_t count = 10;  // the last of four blocks has nothing to do
  const BlocksArgs args = {job.alloc<GridBarrier>(1), job.control(0), job.alloc<uint32_t>(count), job.alloc<uint32_t>(count), count, job.bug};
  for (uint32_t k = 0; k < 2; ++k) {  // the barrier is used again by the next launch
    job.launch(0, 4, 4, blocks, args);
    job.run();
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t j = count - 1 - i;
      job.expect(args.b[i] == j * j + 1, "element %u: %u, expected %u", i, args.b[i], j * j + 1);
      args.b[i] = 0;
    }
  }
}

// --- ring: threads push triggers, a proxy adds them up.
struct RingArgs {
  FifoHandle ring;
  uint32_t each;
  int bug;
};
static bool push(const RingArgs& a, Trigger t) {
  const Fifo& ring = static_cast<const Fifo&>(a.ring);
  if (a.bug < kCommitBeforePayload || a.bug > kHeadNotAtomic) return ring.push(t);
  uint64_t at;
  if (a.bug == kHeadNotAtomic) {
    at = load_relaxed_device(ring.head);
    store_relaxed_device(ring.head, at + 1);
  } else {
    at = fetch_add_relaxed_device(ring.head, static_cast<uint64_t>(1));
  }
  const uint64_t slots = ring.mask + 1;
  if (a.bug != kOverrun && at >= slots && !ring.sync(at - slots)) return false;
  Trigger* slot = ring.triggers + (at & ring.mask);
  uint64_t parity = (at >> ring.shift & 1) != 0 ? 0 : kTriggerParity;
  if (a.bug == kWrongParity) parity = kTriggerParity;
  const uint64_t snd = t.snd | parity;
  if (a.bug == kCommitBeforePayload) {
    store_release(&slot->snd, snd);
    store_relaxed(&slot->fst, t.fst);
  } else if (a.bug == kCommitRelaxed) {
    slot->fst = t.fst;
    store_relaxed(&slot->snd, snd);
  } else {
    store_relaxed(&slot->fst, t.fst);
    store_release(&slot->snd, snd);
  }
  return true;
}
MSCCLPP_KERNEL(ringKernel, RingArgs, a) {
  for (uint32_t i = 0; i < a.each; ++i) {
    const uint64_t v = global_thread() * 100 + i + 1;
    if (!push(a, Trigger{v, v * 3})) return;
  }
}
static void ringTest(check::Job& job) {
  check::Ring ring = job.ring(0, 4);
  const uint32_t blocks = 2, threads = 3, each = 5;
  job.launch(0, blocks, threads, ringKernel, RingArgs{ring.handle, each, job.bug});
  uint64_t sum = 0, torn = 0;
  const auto drain = [&] {
    Trigger t;
    if (job.bug == kCommitRelaxed) {  // a consumer that reads the payload as ordinary memory, as a proxy in C would
      Trigger* slot = ring.handle.triggers + (ring.taken & ring.handle.mask);
      const uint64_t parity = (ring.taken >> ring.handle.shift & 1) != 0 ? 0 : kTriggerParity;
      if ((load_acquire(&slot->snd) & kTriggerParity) != parity) return false;
      t.fst = slot->fst;
      t.snd = load_relaxed(&slot->snd) & ~kTriggerParity;
      store_release(ring.handle.tail, ++ring.taken);
    } else if (!ring.take(t)) {
      return false;
    }
    if (t.snd != t.fst * 3) ++torn;
    sum += t.fst;
    return true;
  };
  job.beside(0, drain);
  job.run();
  while (drain()) {
  }
  uint64_t want = 0;
  for (uint32_t t = 0; t < blocks * threads; ++t) {
    for (uint32_t i = 0; i < each; ++i) want += t * 100 + i + 1;
  }
  job.expect(torn == 0, "%llu triggers were torn", static_cast<unsigned long long>(torn));
  job.expect(sum == want, "triggers sum up to %llu, expected %llu", static_cast<unsigned long long>(sum),
             static_cast<unsigned long long>(want));
}

// --- window: all ranks reduce over the window, then broadcast a word each.
struct WindowArgs {
  SwitchChannelHandle window;
  float* out;
  uint64_t* note;
  uint32_t count;
  int bug;
};
MSCCLPP_KERNEL(window, WindowArgs, a) {
  const SwitchChannel& w = static_cast<const SwitchChannel&>(a.window);
  const uint32_t t = thread_id(), n = block_dim();
  float* own = static_cast<float*>(w.local);
  for (uint32_t i = t; i < a.count; i += n) own[i] = static_cast<float>((w.rank + 1) * (i + 1));
  block_sync();
  bool ok = true;
  if (t == 0) {
    w.signal();
    if (a.bug != kReduceBeforeWait) ok = w.wait();
  }
  if (!block_sync_and(ok)) return;
  w.reduceRange<float>(a.out, 0, a.count, reduction(kSum), t, n);
  if (a.bug == kReduceBeforeWait && t == 0) ok = w.wait();
  if (!block_sync_and(ok)) return;
  const uint64_t at = 1024 + 64 * w.rank;
  if (a.bug != kSignalBeforeBroadcast) w.broadcastRange(at, a.note, 8, t, n);
  block_sync();
  if (t == 0) {
    w.signal();
    ok = w.wait();
  }
  if (a.bug == kSignalBeforeBroadcast) w.broadcastRange(at, a.note, 8, t, n);
  if (!block_sync_and(ok)) return;
  for (uint32_t r = t; r < w.ranks; r += n) {
    a.out[a.count + r] = static_cast<float>(*reinterpret_cast<const uint64_t*>(static_cast<const char*>(w.local) + 1024 + 64 * r));
  }
}
static void windowTest(check::Job& job) {
  const uint32_t count = 50, stride = 2048;
  char* memory = job.alloc<char>(kRanks * stride);
  WindowArgs args[kRanks];
  for (uint32_t r = 0; r < kRanks; ++r) {
    args[r] = WindowArgs{job.window(r, kRanks, memory, stride, 2040), job.alloc<float>(count + kRanks), job.alloc<uint64_t>(1), count, job.bug};
    *args[r].note = 70 + r;
    job.launch(r, 1, 4, window, args[r]);
  }
  job.run();
  for (uint32_t r = 0; r < kRanks; ++r) {
    for (uint32_t i = 0; i < count; ++i) {
      job.expect(args[r].out[i] == static_cast<float>(6 * (i + 1)), "rank %u element %u: %g, expected %u", r, i,
                 static_cast<double>(args[r].out[i]), 6 * (i + 1));
    }
    for (uint32_t k = 0; k < kRanks; ++k) {
      job.expect(args[r].out[count + k] == static_cast<float>(70 + k), "rank %u has %g of rank %u, expected %u", r,
                 static_cast<double>(args[r].out[count + k]), k, 70 + k);
    }
  }
}

// Lists the bugs, for the test: number, test, name.
static int list() {
  for (int b = 0; b < kBugs; ++b) {
    const char* test = b <= kNoBarrierBeforePut ? "exchange" : b <= kFlagBesideData ? "packets" : b <= kBarrierInBranch ? "blocks"
                       : b <= kHeadNotAtomic ? "ring" : "window";
    printf("%d\t%s\t%s\n", b, b == kNone ? "" : test, kNames[b]);
  }
  return 0;
}

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "--bugs") == 0) return list();
  return check::main(argc, argv, {{"exchange", exchangeTest}, {"packets", packetsTest}, {"blocks", blocksTest},
                                  {"ring", ringTest}, {"window", windowTest}});
}
