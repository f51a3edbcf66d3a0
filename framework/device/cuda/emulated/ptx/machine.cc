// Grids, streams and turns.
#include "machine.h"

#include <string.h>
#include <time.h>

#include <algorithm>

#include "race.h"

namespace ptx {
namespace {

constexpr uint64_t kLag = 16;  // others get as many turns for each of a laggard's

}  // namespace

uint64_t Grid::args_begin() const { return (reinterpret_cast<uint64_t>(arguments.data()) + 15) / 16 * 16; }

std::string Warp::where(const Instruction& i, uint32_t lane) const {
  return program->name + ":" + std::to_string(i.line) + ": " + i.text + " in " + block->grid->launch.entry->name + ", rank " +
         std::to_string(block->grid->launch.rank) + " block " + std::to_string(block->id) + " thread " + std::to_string(first + lane);
}

void Warp::fail(const Instruction& i, uint32_t lane, const std::string& why) const { throw Error(where(i, lane) + ": " + why); }

uint64_t Machine::time() {
  if (!real_time) return clock += 10;
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

const Region& Machine::region(Warp& w, const Instruction& i, uint32_t lane, uint64_t at, uint64_t bytes) {
  static const Region shared, unknown;
  // Most accesses are to where the warp's last one was. Sizes are powers of two.
  if (w.recent != nullptr && at >= w.recent->begin && at + bytes <= w.recent->end && (at & (bytes - 1)) == 0 && i.space != Space::kShared) return *w.recent;
  const auto text = [&] {
    char hex[32];
    snprintf(hex, sizeof hex, "0x%lx", static_cast<unsigned long>(at));
    return std::to_string(bytes) + " bytes at " + hex;
  };
  if ((at & (bytes - 1)) != 0) w.fail(i, lane, "misaligned: " + text());
  const Block& b = *w.block;
  if (at >= b.shared_begin && at < b.shared_end) {
    if (at + bytes > b.shared_end) w.fail(i, lane, "beyond shared memory: " + text());
    if (i.space == Space::kGlobal) w.fail(i, lane, "shared memory as global: " + text());
    const auto behind = b.mbarriers.lower_bound(at + bytes);
    if (behind != b.mbarriers.begin() && std::prev(behind)->first + 8 > at) w.fail(i, lane, "a plain access to a barrier: " + text());
    return shared;
  }
  if (i.space == Space::kShared) w.fail(i, lane, "outside of shared memory: " + text());
  if (w.recent == nullptr || at < w.recent->begin || at >= w.recent->end) w.recent = memory.find(at);
  if (w.recent == nullptr) {
    if (!memory.strict()) return unknown;
    w.fail(i, lane, "no memory there: " + text());
  }
  if (at + bytes > w.recent->end) w.fail(i, lane, "beyond the end of " + w.recent->name + ": " + text());
  return *w.recent;
}

void Machine::add(Launch launch, int stream) {
  auto g = std::make_unique<Grid>();
  g->launch = std::move(launch);
  auto& before = last_[{g->launch.rank, stream}];
  g->before = before;
  before = g.get();
  g->arguments.resize(g->launch.arguments.size() + 32);
  memcpy(reinterpret_cast<char*>(g->args_begin()), g->launch.arguments.data(), g->launch.arguments.size());
  g->first_thread = threads_;
  threads_ += static_cast<uint64_t>(g->launch.grid) * g->launch.block;
  grids_.push_back(std::move(g));
}

void Machine::begin(Grid& g) {
  g.begun = true;
  const Launch& launch = g.launch;
  if (launch.grid % launch.cluster != 0) throw Error(launch.entry->name + ": the grid is no multiple of the cluster");
  g.clusters.resize(launch.grid / launch.cluster);
  for (uint32_t n = 0; n < launch.grid; ++n) {
    auto b = std::make_unique<Block>();
    b->grid = &g;
    b->id = n;
    b->threads = launch.block;
    const uint64_t bytes = launch.program->shared_bytes + launch.shared;
    b->shared.reset(new char[bytes + 256]());
    b->shared_begin = (reinterpret_cast<uint64_t>(b->shared.get()) + 127) / 128 * 128;
    b->shared_end = b->shared_begin + bytes;
    if (races != nullptr) races->fresh(b->shared_begin, b->shared_end);
    b->warps.resize((launch.block + kWarp - 1) / kWarp);
    for (uint32_t k = 0; k < b->warps.size(); ++k) {
      Warp& w = b->warps[k];
      w.machine = this;
      w.block = b.get();
      w.first = k * kWarp;
      const uint32_t threads = std::min(kWarp, launch.block - w.first);
      w.all = threads == kWarp ? ~0u : (1u << threads) - 1;
      w.program = launch.program;
      w.constants = launch.program->constants.data();
      const auto registers = static_cast<size_t>(launch.entry->registers);
      w.registers.resize(registers * kWarp);
      w.undefined.assign(registers, ~0u);
      Group all;
      all.lanes = w.all;
      all.at = {launch.entry, 0, 0};
      w.groups.push_back(std::move(all));
      ready(w);
    }
    g.blocks.push_back(std::move(b));
  }
  if (races != nullptr) races->begin(g);
}

// Begins what may begin: behind the end of the grid before it, or, where they overlap, behind its release.
void Machine::begin_ready() {
  for (auto& g : grids_) {
    if (g->begun) continue;
    const Grid* before = g->before;
    if (before == nullptr || before->done || (g->launch.overlap && before->begun && before->blocks_released == before->launch.grid)) begin(*g);
  }
}

void Machine::ready(Warp& w) {
  if (w.queued) return;
  w.queued = true;
  runnable_.push_back(&w);
}

// Every fourth schedule has no laggard. In others it is a rank, a block or a warp, of every launch: what waits for it is
// then ready long before it comes, and what does not wait overtakes it.
Machine::Laggard Machine::choose_laggard(uint64_t seed) {
  Laggard l;
  if (seed % 4 == 1 || grids_.empty()) return l;
  const Launch& launch = grids_[random() % grids_.size()]->launch;
  l.rank = launch.rank;
  if (seed % 4 != 2) l.block = static_cast<int>(random() % launch.grid);
  if (seed % 4 == 0) l.warp = static_cast<int>(random() % ((launch.block + kWarp - 1) / kWarp));
  return l;
}

bool Machine::Laggard::is(const Warp& w) const {
  return rank == w.block->grid->launch.rank && (block < 0 || block == static_cast<int>(w.block->id)) && (warp < 0 || warp == static_cast<int>(w.first / kWarp));
}

Counts Machine::run(const Options& options) {
  random_ = options.seed * 0x9e3779b97f4a7c15ull | 1;
  for (int k = 0; k < 8; ++k) random();
  if (races != nullptr) {
    races->begin(threads_, std::any_of(grids_.begin(), grids_.end(), [](const auto& g) { return g->launch.program->multicast; }));
  }
  begin_ready();
  const Laggard laggard = choose_laggard(options.seed);
  for (;;) {
    if (runnable_.empty()) {
      if (std::all_of(grids_.begin(), grids_.end(), [](const auto& g) { return g->done; })) return counts;
      throw Error("deadlock: every thread waits\n" + stuck());
    }
    if (counts.instructions > options.most) throw Error("no progress within " + std::to_string(options.most) + " instructions\n" + stuck());
    const size_t at = random() % runnable_.size();
    Warp& w = *runnable_[at];
    if (laggard.is(w) && random() % kLag != 0) continue;
    ++counts.turns;
    turn(w, 1 + static_cast<uint32_t>(random() % 64));
    const bool runs = std::any_of(w.groups.begin(), w.groups.end(), [](const Group& g) { return g.state == State::kReady; });
    if (!runs) {
      w.queued = false;
      for (size_t k = std::min(at, runnable_.size() - 1) + 1; k-- > 0;) {  // others may have been appended
        if (runnable_[k] != &w) continue;
        runnable_[k] = runnable_.back();
        runnable_.pop_back();
        break;
      }
    }
    if (options.yield && counts.turns % 256 == 0) options.yield();
  }
}

void Machine::finish_block(Block& b) {
  Grid& g = *b.grid;
  if (!b.released) {
    b.released = true;
    ++g.blocks_released;
  }
  if (++g.blocks_done == g.launch.grid) {
    g.done = true;
    if (races != nullptr) races->end(g);
    for (auto& other : grids_) {  // grids that wait for this one
      if (!other->begun || other->before != &g) continue;
      for (auto& block : other->blocks) {
        for (Warp& w : block->warps) {
          for (Group& group : w.groups) {
            if (group.state != State::kGridWait) continue;
            group.state = State::kReady;
            if (races != nullptr) races->follow(w, group.lanes);
            ready(w);
          }
        }
      }
    }
  }
  begin_ready();
}

std::string Machine::stuck() const {
  std::string out;
  int lines = 0;
  for (const auto& g : grids_) {
    for (const auto& b : g->blocks) {
      for (const Warp& w : b->warps) {
        for (const Group& group : w.groups) {
          if (++lines > 24) continue;
          const auto& code = group.at.function->code;
          const Instruction& i = code[static_cast<size_t>(std::max(0, std::min<int>(group.at.pc, static_cast<int>(code.size()) - 1)))];
          const char* what[] = {"runs", "waits for threads of its warp", "in a barrier", "in a vote", "waits for the grid before it", "waits for its cluster"};
          out += w.where(i, static_cast<uint32_t>(__builtin_ctz(group.lanes))) + ": " + what[static_cast<int>(group.state)] + "\n";
        }
      }
    }
  }
  return out;
}

}  // namespace ptx
