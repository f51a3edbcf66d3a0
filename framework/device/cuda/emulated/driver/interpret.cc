#include "interpret.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <set>

#include "fault.h"
#include "multicast.h"
#include "../ptx/machine.h"

namespace {

constexpr uint32_t kBlocks = 2, kThreads = 64;  // of a launch, where nothing else is asked for
constexpr uint64_t kNoLimit = ~0ull;            // of instructions: waits have deadlines of their own

// All addresses of the process: those that are not mapped fault. Windows of multicast objects are regions of their own.
class Process : public ptx::Memory {
 public:
  Process() {
    Lock lock(state().mutex);
    for (auto& [base, r] : state().ranges) {
      if (r.backing != nullptr && r.backing->group != nullptr) windows_.push_back({base, base + r.bytes, r.backing, {}});
    }
  }
  const ptx::Region* find(uint64_t at) override {
    for (Window& w : windows_) {
      if (at >= w.begin && at < w.end) return inside(w, at);
    }
    return nullptr;
  }
  bool strict() const override { return false; }

 private:
  struct Window {
    uint64_t begin, end;
    std::shared_ptr<Backing> object;
    std::vector<std::unique_ptr<ptx::Region>> parts;
  };

  // The bound parts are looked up at the first access. An access to a hole has no region, and faults, as the whole window
  // does for all but multimem.
  static const ptx::Region* inside(Window& w, uint64_t at) {
    if (w.parts.empty()) {
      Lock lock(state().mutex);
      for (Part& p : w.object->group->parts()) {
        auto r = std::make_unique<ptx::Region>();
        r->begin = w.begin + p.offset;
        r->end = r->begin + p.bytes;
        r->name = "a part of a multicast window";
        r->copies = std::move(p.copies);
        w.parts.push_back(std::move(r));
      }
    }
    for (auto& r : w.parts) {
      if (at >= r->begin && at < r->end) return r.get();
    }
    return nullptr;
  }

  std::vector<Window> windows_;
};

// Whether a kernel, or a function that it calls, reads how many blocks, or how many threads of a block, run it. One that does not
// does the same work in block n whatever the number is, so that all its blocks have to run.
bool asks(const ptx::Function& f, bool ptx::Function::*what, std::set<const ptx::Function*>* seen) {
  if (!seen->insert(&f).second) return false;
  if (f.*what) return true;
  for (const ptx::Instruction& i : f.code) {
    if (i.callee != nullptr && asks(*i.callee, what, seen)) return true;
  }
  return false;
}

bool asks(const ptx::Function& f, bool ptx::Function::*what) {
  std::set<const ptx::Function*> seen;
  return asks(f, what, &seen);
}

// "4x128": so many blocks of so many threads at most.
void most(uint32_t* blocks, uint32_t* threads) {
  *blocks = kBlocks;
  *threads = kThreads;
  const char* text = getenv("CUDA_EMULATED_SHAPE");
  unsigned b, t;
  if (text == nullptr || sscanf(text, "%ux%u", &b, &t) != 2 || b == 0 || t == 0) return;
  *blocks = b;
  *threads = (t + 31) / 32 * 32;
}

}  // namespace

bool interprets() {
  const char* how = getenv("CUDA_EMULATED_RUN");
  return how != nullptr && strcmp(how, "ptx") == 0;
}

std::shared_ptr<const ptx::Program> decode(const std::string& name, const std::string& text, std::string* why) {
  try {
    return ptx::parse(name, text);
  } catch (const ptx::Error& e) {
    *why = std::string("ptxas emulated: ") + e.what();
    return nullptr;
  }
}

void interpret(Context* context, const ptx::Program& program, const ptx::Function& entry, const std::vector<char>& parameters, uint32_t grid,
               uint32_t block, uint32_t shared, uint32_t cluster) {
  uint32_t blocks, threads;
  most(&blocks, &threads);
  Process memory;
  // A fault leaves without destructors: this memory is lost then, with the device.
  auto* machine = new ptx::Machine(memory);
  ptx::Launch launch;
  launch.program = &program;
  launch.entry = &entry;
  // Of a cluster two blocks are left, and as many clusters as there would be blocks.
  const bool cut = asks(entry, &ptx::Function::asks_blocks);
  launch.cluster = cut ? std::min(cluster, 2u) : cluster;
  launch.grid = cut ? std::min(grid / cluster, blocks) * launch.cluster : grid;
  launch.block = asks(entry, &ptx::Function::asks_threads) ? std::min(block, threads) : block;
  launch.shared = shared;
  launch.arguments = parameters;
  machine->add(launch);
  machine->real_time = true;
  ptx::Options options;
  options.most = kNoLimit;
  options.yield = [] { sched_yield(); };
  std::string failed;
  guarded(context, entry.name.c_str(), [&] {
    try {
      machine->run(options);
    } catch (const ptx::Error& e) {
      failed = e.what();
    }
  });
  if (context->fault != 0) return;
  delete machine;
  if (failed.empty()) return;
  fprintf(stderr, "emulated driver: device %d is lost: %s\n", context->device, failed.c_str());
  context->fault = kLaunchFailed;
}
