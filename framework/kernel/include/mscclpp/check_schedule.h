// The scheduler of the checking emulator: it chooses the thread that runs next, has the
// barriers of blocks, and reports a deadlock when no thread can run.
#ifndef MSCCLPP_CHECK_SCHEDULE_H_
#define MSCCLPP_CHECK_SCHEDULE_H_

#include <stdarg.h>
#include <string.h>

#include <functional>
#include <memory>
#include <vector>

#include "check_fiber.h"

namespace mscclpp {
namespace check {

// Exit codes of a checking program.
enum Exit : int { kPassed = 0, kUsage = 2, kDeadlock = 3, kWrong = 4, kBarrier = 5, kRace = 66 };

struct Random {
  uint64_t state;
  MSCCLPP_CHECK_QUIET uint64_t next() {
    state += 0x9e3779b97f4a7c15u;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  MSCCLPP_CHECK_QUIET uint32_t below(uint32_t n) { return n == 0 ? 0 : static_cast<uint32_t>(next() % n); }
};

struct Block {
  uint32_t rank, id, grid, dim;
  uint32_t exited;     // threads that are done
  uint32_t arrived;    // at the barrier
  uint32_t generation;
  uint32_t failures;   // of this generation: threads that said false
  uint32_t result[2];  // failures of the last generations, by parity
  char order[2];       // addresses for ThreadSanitizer, likewise
  bool left;           // a thread left a wait: threads that end early from here on are no bug
  uint64_t word;       // a value of the first thread for the others
  Where place;         // of the first to arrive
};

enum class State { kReady, kWaiting, kBarrier, kDone };

struct Thread {
  Fiber fiber;
  Block* block;
  uint32_t id;
  State state;
  bool daemon;       // does not keep the run alive
  Where where;       // of a wait or barrier
  uint32_t channel, peer;
  uint64_t expected, seen;
  bool in_wait;        // between the first poll and the end of the wait
  uint32_t generation; // of the block, at the barrier
  uint32_t stale;      // polls in vain since anybody got on
  uint64_t known;      // Schedule::progress_ at the last poll
  uint64_t priority;
  std::function<void()> body;
};

// One run of one job. There is one at a time.
class Schedule {
 public:
  enum Mode { kPlain, kSeeds };

  static inline Schedule* now = nullptr;
  static inline Thread* current = nullptr;

  Schedule(Mode mode, uint64_t seed) : mode_(mode), seed_(seed), random_{seed * 2654435761u + 1} {
    // Half of the seeds switch at random, half run the thread of the highest priority
    // and change priorities now and then: each finds what the other misses.
    by_priority_ = mode == kSeeds && (seed & 1) != 0;
    switch_odds_ = 1 + random_.below(6);
  }

  void add(Block* block, uint32_t id, bool daemon, std::function<void()> body) {
    auto t = std::make_unique<Thread>();
    if (!daemon) ++alive_;
    t->block = block;
    t->id = id;
    t->daemon = daemon;
    t->state = State::kReady;
    t->priority = random_.next() | 1;
    t->body = std::move(body);
    threads_.push_back(std::move(t));
  }

  // Runs all threads to their end.
  MSCCLPP_CHECK_QUIET void run() {
    now = this;
    for (auto& t : threads_) {
      t->fiber.start(&Schedule::enter, t.get());
      running_.push_back(t.get());
    }
    candidates_.resize(running_.size());
    all_ = running_.data();
    can_ = candidates_.data();
    count_ = running_.size();
    while (alive_ > 0 || besideBusy()) {
      Thread* t = pick();
      const bool waited = t->in_wait;
      current = t;
      t->fiber.resume();
      current = nullptr;
      // A thread that did more than poll in vain may have freed others.
      if (!waited || !t->in_wait) ++progress_;
      if (t->state != State::kDone) continue;
      if (!t->daemon) --alive_;
      checkExit(*t->block);
      forget(t);
    }
    for (auto& t : threads_) t->fiber.release();
    threads_.clear();
    running_.clear();
    now = nullptr;
  }

  Random& random() { return random_; }
  uint64_t seed() const { return seed_; }
  Mode mode() const { return mode_; }

  // The rest is called on fibers.
  // The accesses of one thread before a release happen before those of another behind an acquire.
  MSCCLPP_CHECK_QUIET static void order_release(void* word) {
#if MSCCLPP_CHECK_TSAN
    __tsan_release(word);
#endif
    (void)word;
  }
  MSCCLPP_CHECK_QUIET static void order_acquire(void* word) {
#if MSCCLPP_CHECK_TSAN
    __tsan_acquire(word);
#endif
    (void)word;
  }

  MSCCLPP_CHECK_QUIET void point() {
    if (mode_ == kPlain) return;
    if (by_priority_) {
      if (random_.below(40) == 0) current->priority = random_.next() | 1;
    } else if (random_.below(switch_odds_) != 0) {
      return;
    }
    current->fiber.suspend();
  }
  MSCCLPP_CHECK_QUIET void poll(uint32_t channel, uint32_t peer, uint64_t expected, uint64_t seen, Where where) {
    Thread* t = current;
    t->channel = channel;
    t->peer = peer;
    t->expected = expected;
    t->seen = seen;
    t->where = where;
    t->stale = t->in_wait && t->known == progress_ ? t->stale + 1 : 0;
    t->known = progress_;
    t->in_wait = true;
    t->priority >>= 1;  // a thread that waits has to run after those it waits for
    t->state = State::kWaiting;
    t->fiber.suspend();
    t->state = State::kReady;
  }
  MSCCLPP_CHECK_QUIET void progressed() {
    if (!current->in_wait) return;
    current->in_wait = false;
    ++progress_;  // it may free others until its next wait
    if (by_priority_) current->priority = random_.next() | 1;
  }
  MSCCLPP_CHECK_QUIET void left() { current->block->left = true; }

  // The barrier of a block. The words are the emulator's own. It declares the order of a
  // barrier to ThreadSanitizer, by generations in turn: else a fast thread at the next
  // barrier would seem to order a slow one at this.
  MSCCLPP_CHECK_QUIET bool barrier(bool ok, Where where) {
    Block* b = current->block;
    Thread* t = current;
    arrive(t, where);
    const uint32_t generation = b->generation;
    void* order = &b->order[generation & 1];
    if (!ok) ++b->failures;
    ++b->arrived;
    order_release(order);
    openIfComplete(b);
    while (b->generation == generation) {
      t->generation = generation;
      t->state = State::kBarrier;
      t->fiber.suspend();
      t->state = State::kReady;
    }
    order_acquire(order);
    return b->result[generation & 1] == 0;
  }

 private:
  MSCCLPP_CHECK_QUIET static void enter(void* argument) {
    Thread* t = static_cast<Thread*>(argument);
    t->fiber.arrived();
    t->body();
    finish(t);
  }
  MSCCLPP_CHECK_QUIET static void finish(Thread* t) {
    t->state = State::kDone;
    ++t->block->exited;
    t->fiber.suspend(true);
    abort();  // not reached
  }

  MSCCLPP_CHECK_QUIET void arrive(Thread* t, Where where) {
    Block* b = t->block;
    t->where = where;
    if (b->arrived == 0) {
      b->place = where;
    } else if (!b->left && (b->place.line != where.line || strcmp(b->place.file, where.file) != 0)) {
      fail(kBarrier, "barrier: rank %u block %u: thread %u arrives at %s:%d while others are at %s:%d", b->rank, b->id, t->id,
           where.file, where.line, b->place.file, b->place.line);
    }
  }
  // The last thread that is still there opens the barrier.
  MSCCLPP_CHECK_QUIET void openIfComplete(Block* b) {
    if (b->arrived + b->exited < b->dim) return;
    b->result[b->generation & 1] = b->failures;
    b->failures = 0;
    b->arrived = 0;
    ++b->generation;
  }
  // A thread has ended while others of its block are at a barrier. Hardware lets them
  // pass, and so does the emulator while threads leave after an abort.
  MSCCLPP_CHECK_QUIET void checkExit(Block& b) {
    if (b.arrived == 0) return;
    if (!b.left) {
      fail(kBarrier, "barrier: rank %u block %u: a thread has ended, %u of %u wait for it at %s:%d", b.rank, b.id, b.arrived, b.dim,
           b.place.file, b.place.line);
    }
    openIfComplete(&b);
  }

  // From here to pick() only inlined functions are called. These run for each thread at each switch,
  // and a container's functions, which are instrumented, would take most of the time.

  // Whether it makes sense to run the thread: a wait that was polled twice since
  // anything happened would be polled in vain.
  MSCCLPP_CHECK_INLINE bool runnable(const Thread* t) const {
    switch (t->state) {
      case State::kDone: return false;
      case State::kBarrier: return t->generation != t->block->generation;
      case State::kWaiting: return t->stale < 2 || t->known != progress_;
      default: return true;
    }
  }

  // The functions beside the kernels finish the work that the kernels have left.
  MSCCLPP_CHECK_QUIET bool besideBusy() const {
    for (size_t i = 0; i < count_; ++i) {
      if (all_[i]->daemon && runnable(all_[i])) return true;
    }
    return false;
  }

  // Takes a thread that is done from the list. The others keep their order, and their turns.
  MSCCLPP_CHECK_QUIET void forget(const Thread* t) {
    size_t at = 0;
    while (all_[at] != t) ++at;
    --count_;
    for (size_t i = at; i < count_; ++i) all_[i] = all_[i + 1];
    if (last_ >= at) last_ = last_ != 0 ? last_ - 1 : count_ != 0 ? count_ - 1 : 0;
  }

  MSCCLPP_CHECK_QUIET Thread* pick() {
    if (++steps_ > kMaxSteps) fail(kDeadlock, "livelock: %llu steps without an end", static_cast<unsigned long long>(steps_));
    if (mode_ == kPlain) {
      for (size_t k = 0, i = last_; k < count_; ++k) {
        i = i + 1 < count_ ? i + 1 : 0;
        if (runnable(all_[i])) return all_[last_ = i];
      }
      deadlock();
    }
    size_t can = 0;
    Thread* best = nullptr;
    for (size_t i = 0; i < count_; ++i) {
      Thread* t = all_[i];
      if (!runnable(t)) continue;
      if (best == nullptr || t->priority > best->priority) best = t;
      can_[can++] = t;
    }
    if (can == 0) deadlock();
    return by_priority_ ? best : can_[random_.below(static_cast<uint32_t>(can))];
  }

  [[noreturn]] void deadlock() {
    fprintf(stderr, "deadlock: nobody can get on (seed %llu)\n", static_cast<unsigned long long>(seed_));
    uint32_t listed = 0;
    for (auto& p : threads_) {
      const Thread& t = *p;
      if (t.state == State::kDone || t.daemon) continue;
      if (++listed > 64) {
        fprintf(stderr, "  and more\n");
        break;
      }
      fprintf(stderr, "  rank %u block %u thread %u at %s:%d: ", t.block->rank, t.block->id, t.id, t.where.file, t.where.line);
      if (t.state == State::kBarrier) {
        fprintf(stderr, "barrier, %u of %u threads are there\n", t.block->arrived, t.block->dim);
      } else {
        fprintf(stderr, "channel %u, peer %u, expects %llu, has seen %llu\n", t.channel, t.peer,
                static_cast<unsigned long long>(t.expected), static_cast<unsigned long long>(t.seen));
      }
    }
    _Exit(kDeadlock);
  }

 public:
  [[noreturn]] __attribute__((format(printf, 3, 4))) void fail(Exit code, const char* format, ...) {
    va_list list;
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, " (seed %llu)\n", static_cast<unsigned long long>(seed_));
    _Exit(code);
  }

 private:
  static constexpr uint64_t kMaxSteps = 200u << 20;

  Mode mode_;
  uint64_t seed_;
  Random random_;
  bool by_priority_ = false;
  uint32_t switch_odds_ = 1;
  uint64_t progress_ = 1;
  uint64_t steps_ = 0;
  size_t last_ = 0;     // the thread that ran last, in plain order
  size_t alive_ = 0;    // threads that are neither done nor daemons
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<Thread*> running_, candidates_;
  Thread** all_ = nullptr;  // those that are not done, in running_
  Thread** can_ = nullptr;  // those of them that can run, in candidates_
  size_t count_ = 0;        // of all_
};

}  // namespace check
}  // namespace mscclpp
#endif  // MSCCLPP_CHECK_SCHEDULE_H_
