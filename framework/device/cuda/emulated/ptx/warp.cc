// One turn of a warp: groups of threads, branches, calls and barriers.
#include <algorithm>

#include "machine.h"
#include "race.h"

namespace ptx {
namespace {

constexpr uint32_t kMostAlone = 20000;  // instructions of a warp, while threads of it wait for those that run

bool same_callers(const Group& a, const Group& b) {
  return std::equal(a.callers.begin(), a.callers.end(), b.callers.begin(), b.callers.end(),
                    [](const Frame& x, const Frame& y) { return x.function == y.function && x.pc == y.pc && x.base == y.base; });
}

}  // namespace

// One of the groups that are ready. Threads that wait to meet others do so for a while only: the others may wait for them.
bool Machine::choose(Warp& w) {
  if (w.groups.size() == 1) {
    w.now = 0;
    return w.groups[0].state == State::kReady;
  }
  if (w.alone > kMostAlone) part(w);
  size_t all = 0;
  for (const Group& g : w.groups) all += g.state == State::kReady;
  if (all == 0) return false;
  for (size_t skip = all == 1 ? 0 : random() % all, k = 0;; ++k) {
    if (w.groups[k].state != State::kReady || skip-- != 0) continue;
    w.now = k;
    return true;
  }
}

// The threads that have waited longest to meet others go on without them.
void Machine::part(Warp& w) {
  w.alone = 0;
  for (Group& g : w.groups) {
    if (g.state != State::kMeeting) continue;
    g.meetings.back()->expected &= ~g.lanes;
    g.meetings.pop_back();
    g.state = State::kReady;
    return;
  }
}

// The group that runs is where it meets others: with the last of them it goes on.
void Machine::meet(Warp& w) {
  const std::shared_ptr<Meeting> at = w.groups[w.now].meetings.back();
  w.groups[w.now].state = State::kMeeting;
  uint32_t here = 0;
  for (const Group& g : w.groups) {
    if (g.state == State::kMeeting && g.meetings.back() == at) here |= g.lanes;
  }
  if ((here & at->expected) != at->expected) return;
  w.alone = 0;
  Group all = w.groups[w.now];
  all.lanes = here;
  all.state = State::kReady;
  all.meetings.pop_back();
  w.groups.erase(std::remove_if(w.groups.begin(), w.groups.end(), [&](const Group& g) { return g.state == State::kMeeting && g.meetings.back() == at; }),
                 w.groups.end());
  w.groups.push_back(std::move(all));
}

// Groups that stand at the same place are one again. Which group runs has to be chosen anew.
void Machine::merge(Warp& w) {
  for (size_t a = 0; a < w.groups.size(); ++a) {
    for (size_t b = w.groups.size(); --b > a;) {
      Group &g = w.groups[a], &other = w.groups[b];
      if (g.state != State::kReady || other.state != State::kReady || other.at.pc != g.at.pc || other.at.base != g.at.base ||
          other.at.function != g.at.function || g.meetings != other.meetings || !same_callers(g, other)) {
        continue;
      }
      g.lanes |= other.lanes;
      if (b != w.groups.size() - 1) other = std::move(w.groups.back());
      w.groups.pop_back();
    }
  }
}

void Machine::turn(Warp& w, uint32_t most) {
  if (!choose(w)) return;
  const auto enter = [&w] {
    const Frame& f = w.groups[w.now].at;
    w.r = w.registers.data() + static_cast<size_t>(f.base) * kWarp;
    w.u = w.undefined.data() + f.base;
  };
  enter();
  for (uint32_t n = 0; n < most; ++n) {
    while (!w.groups[w.now].meetings.empty() && w.groups[w.now].at.pc == w.groups[w.now].meetings.back()->pc &&
           w.groups[w.now].callers.size() == w.groups[w.now].meetings.back()->depth) {
      meet(w);
      if (!choose(w)) {
        w.alone = kMostAlone + 1;  // the others wait for something else
        return;
      }
      enter();
    }
    Group& g = w.groups[w.now];
    if (g.at.pc >= static_cast<int>(g.at.function->code.size())) throw Error(w.program->name + ": behind the end of " + g.at.function->name);
    const Instruction& i = g.at.function->code[static_cast<size_t>(g.at.pc++)];
    ++i.hits;
    uint32_t lanes = g.lanes;
    counts.instructions += lanes == ~0u ? kWarp : static_cast<uint64_t>(__builtin_popcount(lanes));
    ++counts.warp_instructions;
    if (i.guard.present()) {
      if (const uint32_t bad = undefined(w, i.guard) & lanes) w.fail(i, static_cast<uint32_t>(__builtin_ctz(bad)), "the predicate was never set");
      const Source p = source(w, i.guard);
      uint32_t yes = 0;
      each_lane(lanes, [&](uint32_t l) { yes |= static_cast<uint32_t>(p[l] & 1) << l; });
      lanes &= i.negated ? ~yes : yes;
      if (lanes == 0) continue;
    }
    if (i.skipped) continue;
    if (i.run != nullptr) {
      i.run(w, i, lanes);
      if (w.groups.size() > 1) ++w.alone;
      continue;
    } else {
      switch (i.kind) {
        case Kind::kBranch: branch(w, i, lanes); break;
        case Kind::kCall: call(w, i); break;
        case Kind::kReturn: leave(w, i, lanes, true); break;
        case Kind::kExit: leave(w, i, lanes, false); break;
        case Kind::kBarrier: case Kind::kBarrierAnd: barrier(w, i); break;
        case Kind::kVote: vote(w, i); break;
        case Kind::kShuffle: shuffle(w, i); break;
        case Kind::kFence: case Kind::kAliasFence:
          if (races != nullptr) races->fence(w, i, lanes);
          break;
        case Kind::kGridWait: case Kind::kGridRelease: grid_control(w, i); break;
        case Kind::kClusterArrive: case Kind::kClusterWait: cluster(w, i); break;
        default: w.fail(i, static_cast<uint32_t>(__builtin_ctz(lanes)), "this instruction is not interpreted");
      }
      if (w.groups.empty()) return;
    }
    if (w.now < w.groups.size() && w.groups[w.now].state == State::kReady && i.kind == Kind::kBranch) continue;
    if (!choose(w)) return;
    enter();
  }
}

void Machine::branch(Warp& w, const Instruction& i, uint32_t taken) {
  Group& g = w.groups[w.now];
  if (taken == g.lanes) {
    g.at.pc = i.target;
    return;
  }
  // Where they meet: within the function, or where it returns to.
  const bool returns = i.meeting < 0;
  if (!returns || !g.callers.empty()) {
    g.meetings.push_back(std::make_shared<Meeting>(Meeting{returns ? g.callers.back().pc : i.meeting, g.callers.size() - returns, g.lanes}));
  }
  Group other = g;
  other.lanes = taken;
  other.at.pc = i.target;
  g.lanes &= ~taken;
  w.groups.push_back(std::move(other));
}

void Machine::call(Warp& w, const Instruction& i) {
  Group& g = w.groups[w.now];
  const Function& f = *i.callee;
  const auto at = static_cast<uint32_t>(g.at.base) + static_cast<uint32_t>(g.at.function->registers);
  if (w.undefined.size() < at + static_cast<size_t>(f.registers)) {
    w.registers.resize((at + static_cast<size_t>(f.registers)) * kWarp);
    w.undefined.resize(at + static_cast<size_t>(f.registers), ~0u);
    w.r = w.registers.data() + static_cast<size_t>(g.at.base) * kWarp;
    w.u = w.undefined.data() + g.at.base;
  }
  for (int k = 0; k < f.registers; ++k) w.undefined[at + static_cast<size_t>(k)] |= g.lanes;
  if (i.passed.size() != f.formals.size()) w.fail(i, 0, "a call with another number of parameters");
  for (size_t k = 0; k < i.passed.size(); ++k) {
    const Source from = source(w, i.passed[k]);
    const size_t to = at + static_cast<size_t>(f.formals[k]);
    uint64_t* d = w.registers.data() + to * kWarp;
    each_lane(g.lanes, [&](uint32_t l) { d[l] = from[l]; });
    w.undefined[to] = (w.undefined[to] & ~g.lanes) | (undefined(w, i.passed[k]) & g.lanes);
  }
  g.callers.push_back(g.at);
  g.at = {&f, 0, at};
}

// Threads return from a function, or leave the kernel.
void Machine::leave(Warp& w, const Instruction& i, uint32_t lanes, bool returns) {
  Group* g = &w.groups[w.now];
  if (lanes != g->lanes) {  // the others go on
    Group rest = *g;
    rest.lanes &= ~lanes;
    g->lanes = lanes;
    w.groups.push_back(std::move(rest));
    g = &w.groups[w.now];
  }
  if (returns && !g->callers.empty()) {
    const Frame from = g->at;
    g->at = g->callers.back();
    g->callers.pop_back();
    const Instruction& at = g->at.function->code[static_cast<size_t>(g->at.pc - 1)];
    if (from.function->result >= 0 && at.d.present()) {
      const size_t r = from.base + static_cast<size_t>(from.function->result), to = g->at.base + static_cast<size_t>(at.d.at);
      each_lane(lanes, [&](uint32_t l) { w.registers[to * kWarp + l] = w.registers[r * kWarp + l]; });
      w.undefined[to] = (w.undefined[to] & ~lanes) | (w.undefined[r] & lanes);
    }
    return;
  }
  Block& b = *w.block;
  b.left += static_cast<uint32_t>(__builtin_popcount(lanes));
  const Group gone = w.groups[w.now];
  w.groups.erase(w.groups.begin() + static_cast<std::ptrdiff_t>(w.now));
  for (const auto& m : gone.meetings) m->expected &= ~lanes;
  for (size_t k = 0; k < w.groups.size(); ++k) {  // some waited for those alone
    w.now = k;
    if (w.groups[k].state == State::kMeeting) meet(w);
  }
  w.now = 0;
  if (races != nullptr) races->leave(w, lanes);
  if (b.waiting > 0) w.fail(i, static_cast<uint32_t>(__builtin_ctz(lanes)), "threads leave while others of the block are in a barrier");
  if (b.left == b.threads) finish_block(b);
}

void Machine::barrier(Warp& w, const Instruction& i) {
  Block& b = *w.block;
  Group& g = w.groups[w.now];
  const auto lane = static_cast<uint32_t>(__builtin_ctz(g.lanes));
  if (b.barrier != nullptr && b.barrier->kind != i.kind) w.fail(i, lane, "threads of a block are in different barriers");
  if (b.left > 0) w.fail(i, lane, "a barrier, and threads of the block have left");
  if (b.waiting == 0) b.barrier_and = true;
  b.barrier = &i;
  if (i.kind == Kind::kBarrierAnd) {
    if (undefined(w, i.a) & g.lanes) w.fail(i, lane, "the predicate was never set");
    const Source a = source(w, i.a);
    each_lane(g.lanes, [&](uint32_t l) { b.barrier_and = b.barrier_and && (a[l] & 1) != 0; });
  }
  b.waiting += static_cast<uint32_t>(__builtin_popcount(g.lanes));
  g.state = State::kBarrier;
  if (b.waiting < b.threads) return;
  b.waiting = 0;
  b.barrier = nullptr;
  if (races != nullptr) races->barrier(*b.grid, b.id, 1);
  for (Warp& other : b.warps) {
    for (Group& group : other.groups) {
      group.state = State::kReady;
      const Instruction& at = group.at.function->code[static_cast<size_t>(group.at.pc - 1)];
      if (at.kind != Kind::kBarrierAnd) continue;
      const size_t d = group.at.base + static_cast<size_t>(at.d.at);
      each_lane(group.lanes, [&](uint32_t l) { other.registers[d * kWarp + l] = b.barrier_and; });
      other.undefined[d] &= ~group.lanes;
    }
    merge(other);
    ready(other);
  }
}

// All threads of a warp vote together, wherever they come from.
void Machine::vote(Warp& w, const Instruction& i) {
  w.groups[w.now].state = State::kVote;
  uint32_t here = 0;
  bool all = true;
  for (const Group& g : w.groups) {
    if (g.state != State::kVote) continue;
    here |= g.lanes;
    const Instruction& at = g.at.function->code[static_cast<size_t>(g.at.pc - 1)];
    const uint64_t* r = w.registers.data() + static_cast<size_t>(g.at.base) * kWarp;
    if (at.a.at >= 0 && (w.undefined[g.at.base + static_cast<size_t>(at.a.at)] & g.lanes) != 0) w.fail(i, 0, "the predicate was never set");
    each_lane(g.lanes, [&](uint32_t l) { all = all && ((at.a.at >= 0 ? r[static_cast<size_t>(at.a.at) * kWarp + l] : w.constants[~at.a.at]) & 1) != 0; });
  }
  if (w.all != ~0u) w.fail(i, 0, "a vote of 32 threads in a warp of less");
  if (here != w.all) return;
  for (Group& g : w.groups) {
    g.state = State::kReady;
    const Instruction& at = g.at.function->code[static_cast<size_t>(g.at.pc - 1)];
    const size_t d = g.at.base + static_cast<size_t>(at.d.at);
    each_lane(g.lanes, [&](uint32_t l) { w.registers[d * kWarp + l] = all; });
    w.undefined[d] &= ~g.lanes;
  }
}

// All threads of a warp read a register of each other.
void Machine::shuffle(Warp& w, const Instruction& i) {
  if (w.all != ~0u) w.fail(i, 0, "a shuffle of 32 threads in a warp of less");
  w.groups[w.now].state = State::kVote;
  uint32_t here = 0;
  uint64_t values[kWarp] = {};
  for (const Group& g : w.groups) {
    if (g.state != State::kVote) continue;
    here |= g.lanes;
    const Instruction& at = g.at.function->code[static_cast<size_t>(g.at.pc - 1)];
    if (at.kind != Kind::kShuffle) w.fail(i, 0, "threads of a warp are in a vote and in a shuffle");
    const uint64_t* r = w.registers.data() + static_cast<size_t>(g.at.base) * kWarp;
    if (at.a.at >= 0 && (w.undefined[g.at.base + static_cast<size_t>(at.a.at)] & g.lanes) != 0) w.fail(i, 0, "the register was never set");
    each_lane(g.lanes, [&](uint32_t l) { values[l] = at.a.at >= 0 ? r[static_cast<size_t>(at.a.at) * kWarp + l] : w.constants[~at.a.at]; });
  }
  if (here != w.all) return;
  for (Group& g : w.groups) {
    g.state = State::kReady;
    const Instruction& at = g.at.function->code[static_cast<size_t>(g.at.pc - 1)];
    const size_t d = g.at.base + static_cast<size_t>(at.d.at);
    const uint64_t* r = w.registers.data() + static_cast<size_t>(g.at.base) * kWarp;
    each_lane(g.lanes, [&](uint32_t l) {
      const uint64_t other = at.b.at >= 0 ? r[static_cast<size_t>(at.b.at) * kWarp + l] : w.constants[~at.b.at];
      w.registers[d * kWarp + l] = values[(l ^ other) % kWarp];
    });
    w.undefined[d] &= ~g.lanes;
  }
}

void Machine::grid_control(Warp& w, const Instruction& i) {
  Block& b = *w.block;
  Grid& g = *b.grid;
  if (i.kind == Kind::kGridWait) {
    if (g.before != nullptr && !g.before->done) w.groups[w.now].state = State::kGridWait;
    else if (races != nullptr) races->follow(w, w.groups[w.now].lanes);
    return;
  }
  // Once for a block, by whichever thread: so the hardware does.
  if (b.released) return;
  b.released = true;
  ++g.blocks_released;
  begin_ready();
}

}  // namespace ptx
