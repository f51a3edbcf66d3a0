// Ranks as threads of one process over plain memory: enough to run collective
// kernels, built for the CPU, without any transport.
#ifndef MSCCLPP_COLLECTIVES_HARNESS_H_
#define MSCCLPP_COLLECTIVES_HARNESS_H_

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <thread>
#include <vector>

#include "../args.h"

namespace harness {

using namespace mscclpp;
using namespace mscclpp::collectives;

// Job is one communicator: scratch and state for each rank.
class Job {
 public:
  Job(uint32_t ranks, uint64_t packet_half, uint64_t stage_slot, uint64_t pipe_slot, uint32_t check) : args(ranks), gate_(0), ranks_(ranks) {
    const uint64_t mailboxes = ranks * sizeof(Mailbox), own = 4 * pipe_slot;
    const uint64_t total = mailboxes + 2 * packet_half + 4 * stage_slot + own + 4 * pipe_slot * (ranks - 1);
    memset(&control_, 0, sizeof(control_));
    for (uint32_t r = 0; r < ranks; ++r) {
      scratch_.push_back(aligned_alloc(4096, (total + 4095) / 4096 * 4096));
      memset(scratch_.back(), 0, total);
      states_.push_back(static_cast<State*>(aligned_alloc(4096, (sizeof(State) + 4095) / 4096 * 4096)));
      memset(static_cast<void*>(states_.back()), 0, sizeof(State));
    }
    for (uint32_t r = 0; r < ranks; ++r) {
      memset(static_cast<void*>(&args[r]), 0, sizeof(Args));
      Common& c = args[r].common;
      c.control = &control_;
      c.state = states_[r];
      c.notes = c.state;
      c.rank = r;
      c.ranks = ranks;
      c.lanes = 1;
      c.check = check;
      c.packets = mailboxes;
      c.packet_half = packet_half;
      c.stages = c.packets + 2 * packet_half;
      c.stage_slot = stage_slot;
      c.stage_slots = 4;
      c.pipes = c.stages + 4 * stage_slot + own;
      c.pipe_slot = pipe_slot;
      c.pipe_slots = 4;
      for (uint32_t p = 0; p < ranks; ++p) c.scratch[p] = reinterpret_cast<uint64_t>(scratch_[p]);
      args[r].chunk = stage_slot;
    }
    if (ranks > std::thread::hardware_concurrency()) control_.spin_ns = 1;
  }
  ~Job() {
    for (void* p : scratch_) free(p);
    for (State* s : states_) free(s);
  }

  State* state(uint32_t rank) { return states_[rank]; }
  WaitControl& control() { return control_; }

  // Runs body(rank) on a thread for each rank, and waits for all.
  template <class Body>
  void run(Body body) {
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < ranks_; ++r) threads.emplace_back([&, r] { body(r); });
    for (auto& t : threads) t.join();
  }

  // A barrier of the threads, for measurements.
  void meet() {
    const uint32_t at = gate_.fetch_add(1) / ranks_;
    while (gate_.load() / ranks_ == at) std::this_thread::yield();
  }

  std::vector<Args> args;

 private:
  WaitControl control_;
  std::vector<void*> scratch_;
  std::vector<State*> states_;
  std::atomic<uint32_t> gate_;
  const uint32_t ranks_;
};

using Kernel = void (*)(const Args*, const LaunchShape*);

}  // namespace harness
#endif  // MSCCLPP_COLLECTIVES_HARNESS_H_
