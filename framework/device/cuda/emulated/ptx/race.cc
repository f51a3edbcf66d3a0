#include "race.h"

#include <algorithm>

namespace ptx {
namespace {

constexpr uint64_t kPageWords = 1024;
constexpr size_t kMostReports = 50;

void join_all(std::vector<uint32_t>& to, const std::vector<uint32_t>& from) {
  for (size_t k = 0; k < to.size(); ++k) to[k] = std::max(to[k], from[k]);
}

}  // namespace

void Clock::join(const Clock& c) {
  join_all(order, c.order);
  join_all(read, c.read);
  join_all(fenced, c.fenced);
  join_all(aliased, c.aliased);
}

void Races::size(uint64_t threads) { threads_.resize(threads); }

Races::Cell& Races::cell(uint64_t word) {
  const uint64_t page = word / kPageWords;
  if (page != recent_page_) {
    auto& slot = pages_[page];
    if (slot == nullptr) slot.reset(new Cell[kPageWords]);
    recent_page_ = page;
    recent_ = slot.get();
  }
  return recent_[word % kPageWords];
}

// The thread's own copy of what it knows.
Clock& Races::writable(Thread& t) {
  if (t.known.use_count() != 1) t.known = std::make_shared<Clock>(*t.known);
  return *t.known;
}

bool Races::reaches(const Thread& a, Scope sa, const Thread& b, Scope sb) const {
  const Scope narrow = std::min(sa, sb);
  return narrow == Scope::kSys || (narrow == Scope::kGpu ? a.rank == b.rank : a.block == b.block);
}

void Races::add(Clock& to, const Clock& from, uint32_t thread, uint32_t clock) {
  to.join(from);
  to.order[thread] = std::max(to.order[thread], clock);
  to.read[thread] = std::max(to.read[thread], clock);
}

void Races::begin(const Grid& g) {
  const bool behind = g.before != nullptr && g.before->done;
  const auto start = behind ? ends_[g.before] : std::make_shared<Clock>(threads_.size());
  for (const auto& b : g.blocks) {
    const uint32_t number = blocks_++;
    for (uint32_t k = 0; k < b->threads; ++k) {
      Thread& t = threads_[g.first_thread + static_cast<uint64_t>(b->id) * b->threads + k];
      t.rank = static_cast<uint32_t>(g.launch.rank);
      t.block = number;
      t.known = start;
      if (behind) released(t, *g.before);
    }
  }
}

void Races::follow(Warp& w, uint32_t lanes) {
  const Grid* before = w.block->grid->before;
  if (before == nullptr) return;
  each_lane(lanes, [&](uint32_t l) {
    Thread& t = threads_[w.thread_number(l)];
    writable(t).join(*ends_[before]);
    released(t, *before);
  });
}

// The end of the kernel before has released what it wrote.
void Races::released(Thread& t, const Grid& before) {
  t.fence = ends_[&before];
  t.fence_thread = static_cast<uint32_t>(before.first_thread);
  t.fence_clock = t.fence->order[t.fence_thread];
  t.fence_scope = Scope::kSys;
}

void Races::leave(Warp& w, uint32_t lanes) {
  auto& end = ends_[w.block->grid];
  if (end == nullptr) end = std::make_shared<Clock>(threads_.size());
  const Clock* last = nullptr;
  each_lane(lanes, [&](uint32_t l) {
    const auto self = static_cast<uint32_t>(w.thread_number(l));
    const Thread& t = threads_[self];
    if (t.known.get() != last) end->join(*t.known);
    last = t.known.get();
    end->order[self] = end->read[self] = t.own;
  });
}

void Races::end(const Grid& g) {
  Clock& c = *ends_[&g];
  if (g.before != nullptr && ends_.count(g.before) == 1) c.join(*ends_[g.before]);
  c.fenced = c.aliased = c.order;
}

void Races::barrier(const Grid& g, uint64_t block, uint64_t blocks) {
  auto all = std::make_shared<Clock>(threads_.size());
  const uint64_t first = g.first_thread + block * g.launch.block, end = first + blocks * g.launch.block;
  const Clock* last = nullptr;
  for (uint64_t k = first; k < end; ++k) {
    Thread& t = threads_[k];
    if (t.known.get() != last) all->join(*t.known);
    last = t.known.get();
    all->order[k] = all->read[k] = t.own;
  }
  for (uint64_t k = first; k < end; ++k) {
    threads_[k].known = all;
    ++threads_[k].own;
  }
}

void Races::fence(Warp& w, const Instruction& i, uint32_t lanes) {
  each_lane(lanes, [&](uint32_t l) {
    const auto self = static_cast<uint32_t>(w.thread_number(l));
    Thread& t = threads_[self];
    if (i.kind == Kind::kAliasFence) {
      Clock& c = writable(t);
      c.aliased = c.fenced;
      c.fenced = c.order;
      c.fenced[self] = t.aliased = t.own++;
      return;
    }
    for (int k = 0; k <= static_cast<int>(i.scope); ++k) {
      if (t.pending[k] == nullptr) continue;
      writable(t).join(*t.pending[k]);
      t.pending[k] = nullptr;
    }
    t.fence = t.known;
    t.fence_thread = self;
    t.fence_clock = t.own++;
    t.fence_scope = i.scope;
  });
}

void Races::fresh(uint64_t begin, uint64_t end) {
  for (uint64_t word = begin / 4; word < (end + 3) / 4; ++word) {
    const auto page = pages_.find(word / kPageWords);
    if (page != pages_.end()) page->second[word % kPageWords] = Cell();
  }
}

void Races::load(const Warp& w, const Instruction& i, uint32_t lane, uint64_t at, uint64_t bytes) {
  access(w, i, lane, at, bytes, false, false);
  if (i.order != Order::kWeak) observe(static_cast<uint32_t>(w.thread_number(lane)), i, at, bytes);
}

void Races::store(const Warp& w, const Instruction& i, uint32_t lane, uint64_t at, uint64_t bytes) {
  access(w, i, lane, at, bytes, true, false);
  const auto self = static_cast<uint32_t>(w.thread_number(lane));
  if (i.order == Order::kWeak) {
    forget(at, bytes);
    return;
  }
  publish(self, i, at, bytes, false);
  ++threads_[self].own;
}

void Races::update(const Warp& w, const Instruction& i, uint32_t lane, uint64_t at, uint64_t bytes) {
  access(w, i, lane, at, bytes, true, false);
  const auto self = static_cast<uint32_t>(w.thread_number(lane));
  observe(self, i, at, bytes);
  publish(self, i, at, bytes, true);
  ++threads_[self].own;
}

void Races::multimem(const Warp& w, const Instruction& i, uint32_t lane, uint64_t at, uint64_t bytes) {
  windows_ = true;
  access(w, i, lane, at, bytes, i.kind != Kind::kMultiLoad, true);
  const auto self = static_cast<uint32_t>(w.thread_number(lane));
  if (i.kind == Kind::kMultiReduction) publish(self, i, at, bytes, true);
  else if (i.kind == Kind::kMultiStore) publish(self, i, at, bytes, false);
  else observe(self, i, at, bytes);
}

void Races::after_multimem(const Warp& w, uint32_t lane) { ++threads_[w.thread_number(lane)].own; }

void Races::access(const Warp& w, const Instruction& i, uint32_t lane, uint64_t at, uint64_t bytes, bool writes, bool window) {
  const auto self = static_cast<uint32_t>(w.thread_number(lane));
  const Thread& t = threads_[self];
  Record now{self, t.own, &i, 0, i.order != Order::kWeak, window, i.scope};
  for (uint64_t word = at / 4; word <= (at + bytes - 1) / 4; ++word) {
    const uint64_t from = std::max(at, word * 4) % 4, to = std::min(at + bytes, word * 4 + 4) - word * 4;
    now.mask = static_cast<uint8_t>(((1u << to) - 1) & ~((1u << from) - 1));
    Cell& c = cell(word);
    for (const Record& o : c.writes) {
      if ((o.mask & now.mask) != 0) conflict(w, i, lane, self, o, now, false, word);
    }
    if (!writes) {
      bool known = false;
      for (Record& o : c.reads) {
        if (o.thread != self || o.window != window || (o.mask & ~now.mask) != 0) continue;
        const bool strong = o.strong && now.strong;
        o = now;
        o.strong = strong;
        known = true;
        break;
      }
      if (!known) c.reads.push_back(now);
      continue;
    }
    for (const Record& o : c.reads) {
      if ((o.mask & now.mask) != 0) conflict(w, i, lane, self, o, now, true, word);
    }
    const auto covered = [&now](Record& o) {
      o.mask &= static_cast<uint8_t>(~now.mask);
      return o.mask == 0;
    };
    c.writes.erase(std::remove_if(c.writes.begin(), c.writes.end(), covered), c.writes.end());
    c.reads.erase(std::remove_if(c.reads.begin(), c.reads.end(), covered), c.reads.end());
    c.writes.push_back(now);
  }
}

std::string Races::name(const Instruction& i) { return i.text + " (line " + std::to_string(i.line) + ")"; }

void Races::conflict(const Warp& w, const Instruction& i, uint32_t lane, uint32_t self, const Record& o, const Record& now, bool read_before, uint64_t word) {
  const Thread &t = threads_[self], &other = threads_[o.thread];
  const bool crossed = o.window != now.window;
  if (o.thread == self) {
    if (!crossed || (o.strong && now.strong) || o.clock <= t.aliased || o.clock <= t.known->aliased[self]) return;
  } else {
    // A word that both poll or count in; data through the window is to be ordered all the same.
    const bool data = o.window && now.window && o.what->kind != Kind::kMultiReduction;
    if (o.strong && now.strong && !data && reaches(other, o.scope, t, now.scope)) return;
    const Clock& c = *t.known;
    const bool ordered = o.clock <= (read_before ? c.read : c.order)[o.thread];
    if (ordered && (!crossed || (o.strong && now.strong) || o.clock <= c.aliased[o.thread])) return;
  }
  ++found_;
  if (reports_.size() >= kMostReports || !known_.insert({{o.what, now.what}, 1}).second) return;
  const bool ordered = o.thread == self || o.clock <= (read_before ? t.known->read : t.known->order)[o.thread];
  char hex[32];
  snprintf(hex, sizeof hex, "0x%lx", static_cast<unsigned long>(word * 4));
  const Region* region = w.machine->memory.find(word * 4);
  reports_.push_back(std::string(ordered ? "no alias fence on both sides" : "no order") + ": " + name(*o.what) + " by rank " + std::to_string(other.rank) +
                     ", thread " + std::to_string(o.thread) + ", then " + w.where(i, lane) + ": " +
                     (region != nullptr ? region->name + "+" + std::to_string(word * 4 - region->begin) : std::string("shared ") + hex));
}

// A strong load reads what strong stores tell.
void Races::observe(uint32_t self, const Instruction& i, uint64_t at, uint64_t bytes) {
  Thread& t = threads_[self];
  const bool acquires = i.order == Order::kAcquire || i.order == Order::kAcqRel;
  const Chain* last = nullptr;
  for (uint64_t word = at / 4; word <= (at + bytes - 1) / 4; ++word) {
    const Chain* chain = cell(word).chain.get();
    if (chain == nullptr || chain == last) continue;
    last = chain;
    for (const Message& m : *chain) {
      const Thread& from = threads_[m.thread];
      if (m.thread == self || !reaches(from, m.scope, t, i.scope)) continue;
      if (t.known->read[m.thread] < m.clock) {  // the loads before it are over
        Clock& c = writable(t);
        join_all(c.read, m.known->read);
        c.read[m.thread] = m.clock;
      }
      const int near = from.block == t.block ? 0 : from.rank == t.rank ? 1 : 2;
      const auto learn = [&](const Clock& known, uint32_t thread, uint32_t clock) {
        if (t.known->order[thread] >= clock) return;
        if (acquires) {
          add(writable(t), known, thread, clock);
          return;
        }
        auto& p = t.pending[near];
        if (p == nullptr) p = std::make_shared<Clock>(threads_.size());
        else if (p->order[thread] >= clock) return;
        add(*p, known, thread, clock);
      };
      if (m.releases) learn(*m.known, m.thread, m.clock);
      else if (m.fence != nullptr && reaches(from, m.fence_scope, t, i.scope)) learn(*m.fence, m.fence_thread, m.fence_clock);
    }
  }
}

// chained: an atomic operation, which continues what was published there before.
void Races::publish(uint32_t self, const Instruction& i, uint64_t at, uint64_t bytes, bool chained) {
  Thread& t = threads_[self];
  const bool releases = i.order == Order::kRelease || i.order == Order::kAcqRel;
  Message m{self, t.own, t.known, releases, i.scope, t.fence, t.fence_thread, t.fence_clock, t.fence_scope};
  std::shared_ptr<Chain> chain;
  if (chained) {
    const auto& before = cell(at / 4).chain;
    chain = before == nullptr ? std::make_shared<Chain>() : std::make_shared<Chain>(*before);
    chain->erase(std::remove_if(chain->begin(), chain->end(),
                                [&](const Message& x) { return x.thread == self && x.scope <= m.scope && (m.releases || !x.releases); }),
                 chain->end());
  } else {
    chain = std::make_shared<Chain>();
  }
  chain->push_back(std::move(m));
  for (uint64_t word = at / 4; word <= (at + bytes - 1) / 4; ++word) cell(word).chain = chain;
}

void Races::forget(uint64_t at, uint64_t bytes) {
  for (uint64_t word = at / 4; word <= (at + bytes - 1) / 4; ++word) cell(word).chain = nullptr;
}

}  // namespace ptx
