// Layouts shared by kernels, the host and plugins. Plain C++11, no device code:
// any compiler may include this file.
//
// Every structure has a Go twin in framework/kernel/layout.go; a test compares
// sizes and offsets. Pointers are 64 bits on every target. A change to anything
// below raises kABI.
#ifndef MSCCLPP_LAYOUT_H_
#define MSCCLPP_LAYOUT_H_

#include <stddef.h>
#include <stdint.h>

namespace mscclpp {

constexpr uint32_t kABI = 1;

// One per communicator, in host memory that kernels can read. The host writes
// abort. The first kernel that leaves a wait fills the report.
struct WaitControl {
  uint32_t abort;     // 0: run. Else kernels leave every wait.
  uint32_t reported;  // 1 once the first wait that left has filled the report; 2 while it does
  uint32_t kernel;    // report: KernelId of the launch
  uint32_t channel;   // report: id of the channel or semaphore
  uint32_t peer;      // report: the rank waited for
  uint32_t reserved0;  // host only: the word waiting, when another part of the host has cleared it
  uint64_t expected;  // report: count or flag waited for
  uint64_t seen;      // report: count or flag last read
  uint64_t deadline;  // nanoseconds a wait may take; 0: no limit
  uint64_t spin_ns;   // host only: polling before a wait yields; 0: default, 1: yield at once
  uint8_t reserved1[8];  // where the RecordRing is: see records.h; 0: no records are wanted
  uint32_t waiting;   // 1 + the rank that a long wait waits for, each time that it looks at these words; the host clears it
  uint8_t reserved2[60];
};
static_assert(sizeof(WaitControl) == 128, "layout");

// One direction of a pair of counters. `inbound` is raised by the peer; `expected`
// is private to this rank and lives in device memory, so that a captured graph can
// be replayed; `outbound` is the peer's inbound, null where a proxy raises it.
struct SemaphoreHandle {
  uint64_t* inbound;
  uint64_t* expected;
  uint64_t* outbound;
  WaitControl* control;
  uint32_t peer;
  uint32_t id;
};
static_assert(sizeof(SemaphoreHandle) == 40, "layout");

struct MemoryChannelHandle {
  SemaphoreHandle semaphore;
  void* dst;      // the peer's memory
  void* src;      // own memory
  void* packets;  // own memory into which the peer writes packets
};
static_assert(sizeof(MemoryChannelHandle) == 64, "layout");

// A request to a proxy. Bit 63 of snd belongs to the ring. For port channels:
// fst = size[0:32) srcOffset[32:64), snd = dstOffset[0:32) srcMemory[32:41)
// dstMemory[41:50) type[50:53) semaphore[53:63). Custom proxies use the other 127
// bits as they like.
struct alignas(16) Trigger {
  uint64_t fst;
  uint64_t snd;
};
enum TriggerType : uint32_t { kTriggerData = 1, kTriggerSignal = 2, kTriggerFlush = 4 };

// The ring memfd: header, flush words, triggers.
struct RingHeader {
  uint64_t magic;    // kRingMagic
  uint32_t version;  // kRingVersion
  uint32_t slots;    // triggers in the ring, a power of two
  uint8_t pad0[48];
  uint64_t tail;     // consumed triggers; written by the proxy
  uint8_t pad1[56];
  uint32_t error;    // not 0: the proxy has died; pushes and flushes fail
  uint32_t parked;   // not 0: the proxy sleeps on this futex word
  uint8_t pad2[56];
  uint64_t head;     // pushed triggers; here for producers on the host, in device memory for kernels of GPUs
  uint64_t tail_cache;
  uint8_t pad3[48];
};
static_assert(sizeof(RingHeader) == 256, "layout");
constexpr uint64_t kRingMagic = 0x474e495250504d53ull;  // "SMPPRING"
constexpr uint32_t kRingVersion = 1;
constexpr uint32_t kRingFlushWords = 480;               // uint64 each, at byte 256
constexpr uint32_t kRingTriggers = 4096;                // byte offset of the first trigger

struct FifoHandle {
  Trigger* triggers;
  uint64_t* head;
  uint64_t* tail;
  uint64_t* tail_cache;
  uint32_t* error;
  uint32_t* parked;  // null on GPUs: they cannot wake a sleeper
  WaitControl* control;
  uint32_t mask;     // slots - 1
  uint32_t shift;    // log2(slots)
};
static_assert(sizeof(FifoHandle) == 64, "layout");

struct PortChannelHandle {
  SemaphoreHandle semaphore;  // outbound is null
  FifoHandle fifo;
  uint64_t* flush_done;       // word of this connection in the ring
  uint32_t dst_memory;
  uint32_t src_memory;
  uint32_t semaphore_slot;
  uint32_t reserved;
};
static_assert(sizeof(PortChannelHandle) == 128, "layout");

// A window over the memory of all members. Where hardware fans out, stride is 0
// and one store reaches all; in an emulated window member r's copy of byte i is at
// window + r * stride + i.
struct SwitchChannelHandle {
  void* local;        // own memory, the copy of this rank
  void* window;
  uint64_t bytes;
  uint64_t stride;
  uint64_t flag;      // byte offset in the window of the 64-bit barrier counter
  uint64_t* expected; // private to this rank
  WaitControl* control;
  uint32_t rank;
  uint32_t ranks;
};
static_assert(sizeof(SwitchChannelHandle) == 64, "layout");

// Zeroed at communicator start; in device memory, private to the rank.
struct GridBarrier {
  uint32_t arrived;
  uint32_t generation;
};
static_assert(sizeof(GridBarrier) == 8, "layout");

// How a kernel is launched; on the host the second argument of every entry point.
// Production kernels for the CPU run as one block of one thread whatever it says.
struct LaunchShape {
  uint32_t grid;
  uint32_t block;
  uint32_t shared;
  uint32_t reserved;
};
static_assert(sizeof(LaunchShape) == 16, "layout");

// Numbers that configuration, kernels and wire formats share.
enum DataType : uint32_t {
  kFloat32 = 0, kFloat16 = 1, kBFloat16 = 2, kFloat64 = 3,
  kInt8 = 4, kUint8 = 5, kInt32 = 6, kUint32 = 7, kInt64 = 8, kUint64 = 9,
  kFloat8E4M3 = 10, kFloat8E5M2 = 11, kFloat8E4M3B15 = 12,
  kDataTypes = 13
};
enum ReduceOp : uint32_t { kSum = 0, kProd = 1, kMin = 2, kMax = 3, kAvg = 4, kPreMulSum = 5, kReduceOps = 6 };

}  // namespace mscclpp
#endif  // MSCCLPP_LAYOUT_H_
