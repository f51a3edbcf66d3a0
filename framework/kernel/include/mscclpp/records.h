// Records of what a kernel does, for framework/observe: launches, waits, copies, sums, packets, puts, signals, operations of plans.
// The host turns them on by the word WaitControl.reserved1, also for captured graphs, because a kernel reads it.
//
// Off they cost no instruction in a wait that ends at its first look, and a compare with a branch in a put, a signal, a copy, a sum and
// around a launch. Launches write them whose argument has its wait control as control or common.control. Processors write them. On GPUs a wait has no register to spare: the calls that a
// record takes cost the kernels for small messages fifteen registers, and those that stream a hundred bytes of spills. There the host
// looks at WaitControl.waiting instead.
#ifndef MSCCLPP_RECORDS_H_
#define MSCCLPP_RECORDS_H_

#include "layout.h"
#include "target.h"

#if MSCCLPP_TARGET_CPU
#include <time.h>
#endif

// A build without records defines it as 0, to count what they cost.
#ifndef MSCCLPP_RECORDS
#if MSCCLPP_TARGET_CPU
#define MSCCLPP_RECORDS 1
#else
#define MSCCLPP_RECORDS 0
#endif
#endif

#if MSCCLPP_TARGET_CPU
namespace mscclpp {
namespace detail {
inline uint64_t now_ns() {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}
}  // namespace detail
}  // namespace mscclpp
#endif

#if MSCCLPP_RECORDS

namespace mscclpp {

// The numbers of package observe. The lowest two bits are the phase.
enum RecordEvent : uint32_t {
  kRecordBegin = 0, kRecordEnd = 1, kRecordInstant = 2,
  // Of a launch: its time is a duration. That of a whole launch has in place of bytes how long it took, waited, copied and
  // reduced, of 16 bits each, and in place of a block the same of packets, in ns; its peer is the one that it waited for longest.
  kRecordTotal = 3,
  kRecordPut = 128, kRecordGet = 132, kRecordSignal = 136, kRecordWait = 140, kRecordPackets = 144, kRecordReduce = 148,
  kRecordCopy = 152, kRecordBarrier = 156, kRecordSwitch = 160, kRecordFlush = 164, kRecordKernel = 168, kRecordOperation = 172
};
constexpr uint32_t kNoRecordPeer = 0xffff;

// The time-stamp counter as a clock: at turn's value of it, even and the same before and behind, the time is ns + (counter - tsc) * mult / 2^32.
// The host renews it ten times a second. Past most ticks, and where it is null, the system's clock is right.
struct RecordClock {
  uint64_t turn;
  uint64_t tsc;
  uint64_t ns;
  uint64_t mult;
  uint64_t most;
};
static_assert(sizeof(RecordClock) == 40, "layout");

// Where the kernels of a communicator write records for framework/observe, of 32 bytes each. A writer takes a place by
// an addition to *next. The last of its four words has the event, block and peer, of 16 bits each, and 1 + how often the
// ring was full before, cut to 16 bits; 0: it is being written.
struct RecordRing {
  uint64_t* next;         // records so far
  void* records;
  const uint64_t* calls;  // of the communicator that the host has begun; null: that is not known
  uint64_t communicator;  // the upper 16 bits of a call
  uint64_t mask;          // records in the ring - 1
  const RecordClock* clock;
  uint64_t signed_at;     // since when each peer of the word behind was sent something
  uint64_t signed_to;     // a bit for each, by the lowest six bits of its rank
};
static_assert(sizeof(RecordRing) == 64, "layout");

namespace detail {

typedef uint64_t MayAlias __attribute__((may_alias));

inline const MayAlias& word_of(const WaitControl* c) { return *reinterpret_cast<const MayAlias*>(c->reserved1); }
inline RecordRing* ring_of(const WaitControl* c) {
  return reinterpret_cast<RecordRing*>(__atomic_load_n(&word_of(c), __ATOMIC_RELAXED));
}
inline uint64_t call_of(const RecordRing* r) {
  return r->communicator | (r->calls != nullptr ? __atomic_load_n(r->calls, __ATOMIC_RELAXED) & 0xffffffffffffu : 0);
}

// The clock of records: half as long as a look at the system's, which it follows within some ten ns.
inline uint64_t record_time(const RecordRing* r) {
#if defined(__x86_64__)
  if (const RecordClock* c = r->clock) {
    const uint64_t turn = __atomic_load_n(&c->turn, __ATOMIC_ACQUIRE);
    const uint64_t tsc = __atomic_load_n(&c->tsc, __ATOMIC_RELAXED), ns = __atomic_load_n(&c->ns, __ATOMIC_RELAXED);
    const uint64_t mult = __atomic_load_n(&c->mult, __ATOMIC_RELAXED), most = __atomic_load_n(&c->most, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    const uint64_t passed = __builtin_ia32_rdtsc() - tsc;
    if (turn % 2 == 0 && passed < most && __atomic_load_n(&c->turn, __ATOMIC_RELAXED) == turn) {
      return ns + static_cast<uint64_t>(static_cast<unsigned __int128>(passed) * mult >> 32);
    }
  }
#endif
  return now_ns();
}

// Several threads may write. The last word says which lap of the ring the record is of, so a reader knows a whole one.
inline void write_record(const RecordRing* r, uint64_t time, uint32_t event, uint64_t call, uint64_t bytes, uint32_t block, uint32_t peer) {
  const uint64_t n = __atomic_fetch_add(r->next, 1, __ATOMIC_RELAXED);
  uint64_t* to = static_cast<uint64_t*>(r->records) + 4 * (n & r->mask);
  __atomic_store_n(to + 3, static_cast<uint64_t>(0), __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  __atomic_store_n(to, time, __ATOMIC_RELAXED);
  __atomic_store_n(to + 1, call, __ATOMIC_RELAXED);
  __atomic_store_n(to + 2, bytes, __ATOMIC_RELAXED);
  const uint64_t lap = n / (r->mask + 1) + 1;
  __atomic_store_n(to + 3, (event & 0xffff) | uint64_t(block & 0xffff) << 16 | uint64_t(peer & 0xffff) << 32 | lap << 48, __ATOMIC_RELEASE);
}

// One launch that writes records. A record takes some 50 ns with its reader, so what takes less than a hundred times that
// is in sums alone: a launch of which no piece is longer writes one record, and another one the longer pieces, the first of them, and the sums.
//
// Its pieces of work follow each other, so the end of a piece of work is the begin of the next, and one look at the clock is enough for
// each. Pieces of some KiB share one look, which counts as time of the last of them.
struct Recorder {
  static constexpr uint32_t kPieces = 128;
  static constexpr uint32_t kKinds = 4;
  static constexpr uint64_t kBriefBytes = 8192;
  static constexpr uint64_t kBrief = 5000;       // ns
  static constexpr uint64_t kBriefLaunch = 65536;

  RecordRing* ring;
  uint64_t call;
  uint64_t began;
  uint64_t last;     // when the piece before ended
  uint64_t unseen;   // bytes since then
  uint64_t waiting;  // since when the launch waits; 0: it does not
  uint64_t longest;  // of its waits
  uint32_t peer;     // for which rank
  uint32_t waited_for;  // in the longest one
  uint32_t work;     // the piece before
  uint32_t pieces;
  bool open;         // its begin is written
  uint64_t took[kKinds];
  uint64_t bytes[kKinds];

  static uint32_t kind(uint32_t i) { return i == 0 ? kRecordWait : i == 1 ? kRecordCopy : i == 2 ? kRecordReduce : kRecordPackets; }
  static uint32_t place(uint32_t event) { return event == kRecordReduce ? 2 : event == kRecordPackets ? 3 : 1; }

  void begin(RecordRing* r) {
    ring = r;
    call = call_of(r);
    began = last = record_time(r);
    unseen = waiting = longest = 0;
    waited_for = kNoRecordPeer;
    pieces = 0;
    open = false;
    for (uint32_t i = 0; i < kKinds; ++i) took[i] = bytes[i] = 0;
  }
  void end() {
    waited();
    const uint64_t now = behind(record_time(ring));
    if (unseen != 0) took[place(work)] += now - last;
    if (!open && now - began < kBriefLaunch) {
      write_record(ring, began, kRecordKernel | kRecordTotal, call, (now - began) | took[0] << 16 | took[1] << 32 | took[2] << 48,
                   static_cast<uint32_t>(took[3]), waited_for);
      return;
    }
    for (uint32_t i = 0; i < kKinds; ++i) {
      if (took[i] != 0) write(took[i], kind(i) | kRecordTotal, bytes[i], 0, i == 0 ? waited_for : kNoRecordPeer);
    }
    write(now, kRecordKernel | kRecordEnd, 0, 0, kNoRecordPeer);
  }
  void write(uint64_t time, uint32_t event, uint64_t size, uint32_t block, uint32_t of) {
    if (!open) {
      open = true;
      write_record(ring, began, kRecordKernel | kRecordBegin, call, 0, 0, kNoRecordPeer);
    }
    write_record(ring, time, event, call, size, block, of);
  }
  uint64_t behind(uint64_t now) const { return now < last ? last : now; }  // the clocks of processors may differ by some ns

  // A piece of work has ended, which began when the one before ended.
  void did(uint32_t event, uint64_t size) {
    waited();  // as in a plan, whose waits do what has become possible
    work = event;
    bytes[place(event)] += size;
    unseen += size;
    if (unseen < kBriefBytes) return;
    const uint64_t now = behind(record_time(ring));
    took[place(event)] += now - last;
    if (now - last >= kBrief && pieces < kPieces) {
      write(last, event | kRecordBegin, 0, 0, kNoRecordPeer);
      write(now, event | kRecordEnd, unseen, 0, kNoRecordPeer);
      ++pieces;
    }
    unseen = 0;
    last = now;
  }
  void wait(uint64_t since, uint32_t rank) {
    waiting = behind(since);
    if (unseen != 0) took[place(work)] += waiting - last;
    unseen = 0;
    last = waiting;
    peer = rank;
  }
  void waited() {
    if (waiting == 0) return;
    const uint64_t now = behind(record_time(ring));
    took[0] += now - waiting;
    bytes[0] += 1;
    if (now - waiting >= kBrief && pieces < kPieces) {
      write(waiting, kRecordWait | kRecordBegin, 0, 0, peer);
      write(now, kRecordWait | kRecordEnd, 0, 0, peer);
      ++pieces;
    }
    if (now - waiting > longest) longest = now - waiting, waited_for = peer;
    waiting = 0;
    last = now;
  }
  // Something was sent. A peer that waits for it for long was sent nothing for as long: a second one in less time is left out.
  void sent(uint32_t event, uint64_t size, uint32_t to) {
    uint64_t peers = __atomic_load_n(&ring->signed_to, __ATOMIC_RELAXED);
    if (last - __atomic_load_n(&ring->signed_at, __ATOMIC_RELAXED) >= kBrief * 3 / 4) {
      __atomic_store_n(&ring->signed_at, last, __ATOMIC_RELAXED);
      peers = 0;
    }
    const uint64_t bit = uint64_t(1) << (to & 63);
    if ((peers & bit) != 0 && size < 2 * kBriefBytes) return;
    __atomic_store_n(&ring->signed_to, peers | bit, __ATOMIC_RELAXED);
    write_record(ring, last, event | kRecordInstant, call, size, 0, to);
  }
};

// How many launches of this image write records now. Looking at it takes a compare and a branch, where the variable of the thread, or
// a word behind an argument, takes a load more, as a compiler does by itself. The functions behind it look closer.
static uint32_t recording __attribute__((unused)) = 0;
#if defined(__x86_64__)
static inline bool off() {
  asm goto("cmpl $0, %0\n\tjne %l1" : : "m"(recording) : "cc" : on);
  return true;
on:
  return false;
}
#else
static inline bool off() { return __builtin_expect(__atomic_load_n(&recording, __ATOMIC_RELAXED) == 0, 1); }
#endif

// That of the launch on this thread, or null: it writes none. Memory of threads that is there from the start of a process is scarce,
// and ranks in one process load an image each: this is memory of the model for libraries that are loaded later.
static thread_local Recorder* recorder __attribute__((unused)) = nullptr;

// The wait control of a launch: in its argument, or in a part of it that is called common.
template <class A>
auto control_of(const A& a, int) -> decltype(static_cast<const WaitControl*>(a.control)) { return a.control; }
template <class A>
auto control_of(const A& a, long) -> decltype(static_cast<const WaitControl*>(a.common.control)) { return a.common.control; }
template <class A>
const WaitControl* control_of(const A&, ...) { return nullptr; }

__attribute__((noinline, unused)) static void begin_records(Recorder* to, const WaitControl* c) {
  if (RecordRing* r = ring_of(c)) {
    to->begin(r);
    recorder = to;
    __atomic_fetch_add(&recording, 1, __ATOMIC_RELAXED);
  }
}
__attribute__((noinline, unused)) static void end_records() {
  if (recorder == nullptr) return;
  recorder->end();
  recorder = nullptr;
  __atomic_fetch_sub(&recording, 1, __ATOMIC_RELAXED);
}
__attribute__((noinline, unused)) static void record_did(uint32_t event, uint64_t bytes) {
  if (recorder != nullptr) recorder->did(event, bytes);
}
__attribute__((noinline, unused)) static void record_instant(const WaitControl* c, uint32_t event, uint64_t bytes, uint32_t peer) {
  const RecordRing* r = c != nullptr ? ring_of(c) : nullptr;
  if (recorder == nullptr) {
    if (r != nullptr) write_record(r, record_time(r), event | kRecordInstant, call_of(r), bytes, 0, peer);
    return;
  }
  if (event == kRecordPut || event == kRecordGet) recorder->did(kRecordCopy, bytes);
  if (r == recorder->ring) {
    recorder->sent(event, bytes, peer);
  } else if (r != nullptr) {  // of another communicator
    write_record(r, recorder->last, event | kRecordInstant, call_of(r), bytes, 0, peer);
  }
}

// Around the slow half of a wait.
class WaitRecord {
 public:
  WaitRecord(const WaitControl* c, uint64_t start, uint32_t peer) : ring_(recorder != nullptr || c == nullptr ? nullptr : ring_of(c)), peer_(peer) {
    if (__builtin_expect(recorder != nullptr, 0)) recorder->wait(start, peer);
    if (__builtin_expect(ring_ != nullptr, 0)) write(start, kRecordBegin);
  }
  ~WaitRecord() {
    if (__builtin_expect(recorder != nullptr, 0)) recorder->waited();
    if (__builtin_expect(ring_ != nullptr, 0)) write(record_time(ring_), kRecordEnd);
  }

 private:
  void write(uint64_t time, uint32_t phase) const { write_record(ring_, time, kRecordWait | phase, call_of(ring_), 0, 0, peer_); }

  const RecordRing* const ring_;
  const uint32_t peer_;
};

// Around the body of a kernel.
class LaunchRecords {
 public:
  template <class A>
  explicit LaunchRecords(const A& a) {
    const WaitControl* c = control_of(a, 0);
    if (c != nullptr && __builtin_expect(ring_of(c) != nullptr, 0)) begin_records(&mine_, c);
  }
  ~LaunchRecords() {
    if (__builtin_expect(!off(), 0)) end_records();
  }
  LaunchRecords(const LaunchRecords&) = delete;
  LaunchRecords& operator=(const LaunchRecords&) = delete;

 private:
  Recorder mine_;
};

inline void did(RecordEvent event, uint64_t bytes) {
  if (__builtin_expect(!off(), 0)) record_did(event, bytes);
}
inline void happened(const WaitControl* c, RecordEvent event, uint64_t bytes, uint32_t peer) {
  if (__builtin_expect(!off(), 0)) record_instant(c, event, bytes, peer);
}

}  // namespace detail
}  // namespace mscclpp

// Macros, so that other targets see nothing of records: MSCCLPP_DID says that the launch has ended a piece of work, and MSCCLPP_HAPPENED
// that something was done for a peer, in no time.
#define MSCCLPP_DID(event, bytes) ::mscclpp::detail::did(::mscclpp::event, bytes);
#define MSCCLPP_HAPPENED(control, event, bytes, peer) ::mscclpp::detail::happened(control, event, bytes, peer);
// The copy of a put or a get, whose record stands behind it.
#define MSCCLPP_COPY(...) detail::move_bytes(__VA_ARGS__)
#define MSCCLPP_LAUNCH_RECORDS(args) const ::mscclpp::detail::LaunchRecords mscclpp_records(args);

#else

#define MSCCLPP_COPY(...) copy(__VA_ARGS__)
#define MSCCLPP_LAUNCH_RECORDS(args)
#define MSCCLPP_DID(event, bytes)
#define MSCCLPP_HAPPENED(control, event, bytes, peer)

#endif
#endif  // MSCCLPP_RECORDS_H_
