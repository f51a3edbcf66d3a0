// Every wait of every kernel goes through wait_until. It ends when the condition
// holds, when the host raises WaitControl.abort, or when the deadline of the
// communicator passes; in the last two cases the first wait to leave writes the
// report, and the caller has to leave its kernel at once.
#ifndef MSCCLPP_WAIT_H_
#define MSCCLPP_WAIT_H_

#include "memory.h"
#include "records.h"

// On NVIDIA GPUs a wait that was left is recorded in memory of the device, for the waits behind it. (A program that tests
// this on a processor defines the macro itself.) Processors read the host's words often enough; for AMD see below.
#if MSCCLPP_TARGET_CUDA
#define MSCCLPP_REMEMBERS 1
#endif

#if MSCCLPP_TARGET_CPU
#include <sched.h>
#include <time.h>
#endif

namespace mscclpp {

// A channel number for waits within the rank. They end because another wait did, and have neither a
// report nor a deadline. A wait that ended by itself, a moment before its data came, would leave a part
// of the work undone without a report.
constexpr uint32_t kNoReport = 0xffffffffu;

// The rank of waits for something of the rank itself, such as room in a ring.
constexpr uint32_t kNoRank = 0xffffffffu;

// The object of a wait, for the report. left is null, or a word in memory of the device, zero at first, in which the
// waits of a rank record that one of them was left.
struct WaitSite {
  uint32_t kernel;
  uint32_t channel;
  uint32_t peer;
  uint64_t expected;
  uint32_t* left = nullptr;
};

namespace detail {

// A condition may return the value that it saw: ready(seen), or just ready().
template <class F>
MSCCLPP_DEVICE auto poll_ready(F& ready, uint64_t& seen, int) -> decltype(ready(seen)) {
  return ready(seen);
}
template <class F>
MSCCLPP_DEVICE auto poll_ready(F& ready, uint64_t&, long) -> decltype(ready()) {
  return ready();
}

// Whether waits of this kind end by themselves. For AMD all do, because with a condition here clang 19
// generates other code in each build; no host launches that code yet.
#if MSCCLPP_TARGET_HIP
MSCCLPP_DEVICE constexpr bool alone(uint32_t) { return true; }
#else
MSCCLPP_DEVICE constexpr bool alone(uint32_t channel) { return channel != kNoReport; }
#endif

// Whether a wait has to be left, whatever its deadline.
MSCCLPP_DEVICE bool must_leave(const WaitControl* c, uint32_t channel) {
  return load_relaxed(&c->abort) != 0 || (!alone(channel) && load_relaxed(&c->reported) != 0);
}

// After how many nanoseconds a wait has to end by itself; 0: never.
MSCCLPP_DEVICE uint64_t limit_of(const WaitControl* c, uint32_t channel) {
  return alone(channel) ? load_relaxed(&c->deadline) : 0;
}

// tell has the host know whom a long wait waits for. Waits for other ranks write the same word, so the host sees one of them.
MSCCLPP_DEVICE void tell(WaitControl* c, const WaitSite& site) {
  if (alone(site.channel)) store_relaxed(&c->waiting, site.peer + 1);
}

// The words are memory of the host, where atomic operations of most devices are atomic among their own only.
// That is enough, because all kernels that report to a word run on one device.
//
// A load comes first where there are many threads. An atomic operation that crosses the bus takes more than a
// microsecond, each after the other, and the kernels that are still to run have as many threads.
MSCCLPP_DEVICE void report(WaitControl* c, const WaitSite& site, uint64_t seen) {
#if MSCCLPP_REMEMBERS
  if (load_relaxed(&c->reported) != 0) return;
#endif
  if (site.channel == kNoReport || compare_exchange_device(&c->reported, 0u, 2u) != 0) return;
  store_relaxed(&c->kernel, site.kernel);
  store_relaxed(&c->channel, site.channel);
  store_relaxed(&c->peer, site.peer);
  store_relaxed(&c->expected, site.expected);
  store_relaxed(&c->seen, seen);
  store_release(&c->reported, 1u);
}

#if MSCCLPP_TARGET_CUDA
MSCCLPP_DEVICE uint64_t now_ns() {
  uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}
#elif MSCCLPP_TARGET_HIP
MSCCLPP_DEVICE uint64_t now_ns() { return __builtin_readsteadycounter() * 10; }  // 100 MHz
#elif MSCCLPP_TARGET_CPU
inline void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" : : : "memory");
#endif
}
#endif

#if MSCCLPP_TARGET_GPU || MSCCLPP_REMEMBERS
// Some milliseconds between loads of the host's words. These loads cross PCIe, and all warps of a
// device share its rate. Where thousands of warps load every few tens of microseconds, a load takes a
// hundred. It delays the use of data that is there already, which delays peers, whose waits load more
// often then.
constexpr uint32_t kPollsPerLook = 4096;

// Loads of the word on the device are cheap, and frequent: of a thousand kernels in a queue behind a wait that was
// left, each leaves at its first one. Data that is not late arrives before. Where there is no such word, the first load
// of the host's words comes early.
constexpr uint32_t kPollsPerRecall = 32, kFirstLook = 256;

// Between two polls: on AMD the wave sleeps for 64 cycles, and leaves the unit to the waves that have something to do.
#if MSCCLPP_TARGET_HIP
#define MSCCLPP_BETWEEN_POLLS() __builtin_amdgcn_s_sleep(1);
#else
#define MSCCLPP_BETWEEN_POLLS()
#endif

// Whether a wait was left before, after so many polls of this one.
MSCCLPP_DEVICE bool recalled(const uint32_t* left, uint32_t polls) {
#if MSCCLPP_REMEMBERS
  return left != nullptr && polls % kPollsPerRecall == 0 && load_relaxed_device(left) != 0;
#else
  (void)left;
  (void)polls;
  return false;
#endif
}
MSCCLPP_DEVICE void remember(uint32_t* left) {
#if MSCCLPP_REMEMBERS
  if (left != nullptr) store_relaxed_device(left, 1u);
#else
  (void)left;
#endif
}
// Whether it is time to load the host's words.
MSCCLPP_DEVICE bool due(const uint32_t* left, uint32_t polls) {
#if MSCCLPP_REMEMBERS
  if (left == nullptr && polls == kFirstLook) return true;
#else
  (void)left;
#endif
  return polls % kPollsPerLook == 0;
}

// The slow half of wait_until on GPUs, kept out of the caller's loop.
template <class F>
MSCCLPP_DEVICE bool wait_patient(WaitControl* c, const WaitSite& site, F& ready, uint64_t seen) {
  uint64_t start = 0;
  for (uint32_t polls = 1;; ++polls) {
    if (poll_ready(ready, seen, 0)) return true;
    MSCCLPP_BETWEEN_POLLS()
    if (recalled(site.left, polls)) return false;
    if (c == nullptr || !due(site.left, polls)) continue;
    bool leave = must_leave(c, site.channel);
    const uint64_t limit = limit_of(c, site.channel);
    if (limit != 0) {
      const uint64_t now = now_ns();
      if (start == 0) start = now;
      leave = leave || now - start > limit;
    }
    if (leave) {
      remember(site.left);
      report(c, site, seen);
      return false;
    }
    tell(c, site);
  }
}
#endif

#if MSCCLPP_TARGET_GPU
template <class F>
MSCCLPP_DEVICE bool wait_slow(WaitControl* c, const WaitSite& site, F& ready, uint64_t seen) {
  return wait_patient(c, site, ready, seen);
}
#elif MSCCLPP_TARGET_CPU
// Polls for spin_ns, yields the core for up to a millisecond, then sleeps, each
// time a little longer, up to a millisecond.
constexpr uint64_t kSpin = 20000, kYield = 1000000, kNapFirst = 20000, kNapMost = 1000000;

template <class F>
__attribute__((noinline)) bool wait_slow(WaitControl* c, const WaitSite& site, F& ready, uint64_t seen) {
  const uint64_t start = now_ns();
#if MSCCLPP_RECORDS
  const WaitRecord record(c, start, site.channel == kNoReport ? kNoRank : site.peer);
#endif
  const uint64_t budget = c != nullptr ? load_relaxed(&c->spin_ns) : 0;
  const uint64_t spin = budget != 0 ? budget : kSpin;
  uint64_t waited = 0, nap = kNapFirst;
  for (;;) {
    if (waited < spin) {
      for (int i = 0; i < 32; ++i) {
        if (poll_ready(ready, seen, 0)) return true;
        cpu_pause();
      }
    } else {
      if (poll_ready(ready, seen, 0)) return true;
      if (waited < spin + kYield) {
        sched_yield();
      } else {
        struct timespec t = {0, static_cast<long>(nap)};
        nanosleep(&t, nullptr);
        nap = nap < kNapMost / 2 ? nap * 2 : kNapMost;
        if (c != nullptr) tell(c, site);
      }
    }
    waited = now_ns() - start;
    if (c == nullptr) continue;
    const uint64_t limit = limit_of(c, site.channel);
    if (must_leave(c, site.channel) || (limit != 0 && waited > limit)) {
      // A condition that came true in the meantime still counts as success.
      if (poll_ready(ready, seen, 0)) return true;
      report(c, site, seen);
      return false;
    }
  }
}
#endif

}  // namespace detail

// Waits until ready() holds and returns true, or returns false: leave the kernel.
// control may be null: then nothing ends the wait early. ready may take a uint64_t
// reference, in which it stores the value that it saw.
template <class F>
MSCCLPP_DEVICE bool wait_until(const WaitControl* control, const WaitSite& site, F ready MSCCLPP_AT) {
  uint64_t seen = 0;
  WaitControl* c = const_cast<WaitControl*>(control);
#if MSCCLPP_TARGET_CHECK
  for (;;) {
    if (detail::poll_ready(ready, seen, 0)) {
      check::progress();
      return true;
    }
    if (c != nullptr && detail::must_leave(c, site.channel)) {
      detail::report(c, site, seen);
      check::left();
      return false;
    }
    check::poll(site.channel, site.peer, site.expected, seen, where);
  }
#else
  if (detail::poll_ready(ready, seen, 0)) return true;
  return detail::wait_slow(c, site, ready, seen);
#endif
}

#if MSCCLPP_TARGET_GPU
namespace detail {

// Once in so many polls a wait calls this function, which loads the words. It returns the start to pass
// the next time, or kLeave when it has written the report. It is not inlined, to keep the loop short.
#if MSCCLPP_REMEMBERS
constexpr uint32_t kPollsPerCall = kPollsPerRecall;
#else
constexpr uint32_t kPollsPerCall = kPollsPerLook;
#endif
constexpr uint64_t kLeave = ~static_cast<uint64_t>(0);
#if MSCCLPP_TARGET_HIP
MSCCLPP_DEVICE  // a call of a function saves registers in memory there
#elif defined(__clang__)
__attribute__((device, noinline)) inline
#else
__device__ __noinline__ inline
#endif
uint64_t look(WaitControl* c, uint64_t start, uint32_t polls, uint32_t kernel, uint32_t channel, uint32_t peer, uint64_t expected, uint32_t* left) {
  if (recalled(left, polls)) return kLeave;
  if (!due(left, polls)) return start;
  if (c == nullptr) return 0;
  bool leave = must_leave(c, channel);
  const uint64_t limit = limit_of(c, channel);
  if (limit != 0) {
    const uint64_t now = now_ns();
    if (start == 0) start = now;
    leave = leave || now - start > limit;
  }
  if (!leave) {
    tell(c, WaitSite{kernel, channel, peer, expected, left});
    return start;
  }
  remember(left);
  report(c, WaitSite{kernel, channel, peer, expected, left}, 0);
  return kLeave;
}

}  // namespace detail
#endif

// wait_until with little code, for kernels with many short waits. Its report has no
// value that was seen.
template <class F>
MSCCLPP_DEVICE bool wait_brief(const WaitControl* control, const WaitSite& site, F ready MSCCLPP_AT) {
#if MSCCLPP_TARGET_GPU
  uint64_t start = 0;
  for (uint32_t polls = 1;; ++polls) {
    if (ready()) return true;
    MSCCLPP_BETWEEN_POLLS()
    if (polls % detail::kPollsPerCall != 0) continue;
    start = detail::look(const_cast<WaitControl*>(control), start, polls, site.kernel, site.channel, site.peer, site.expected, site.left);
    if (start == detail::kLeave) return false;
  }
#else
  return wait_until(control, site, ready MSCCLPP_HERE);
#endif
}

// Whether the host has aborted the kernels; for long loops without waits.
MSCCLPP_DEVICE bool aborted(const WaitControl* control) {
  return control != nullptr && load_relaxed(&control->abort) != 0;
}

}  // namespace mscclpp
#endif  // MSCCLPP_WAIT_H_
