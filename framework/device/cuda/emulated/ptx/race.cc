#include "race.h"

#include <algorithm>

namespace ptx {
namespace {

constexpr size_t kMostReports = 50;

// The greater of each pair, by the widest words that the processor has: a clock has an entry for each thread.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((target_clones("avx2", "default"), optimize("O3")))
#endif
void join_all(uint32_t* __restrict to, const uint32_t* __restrict from, size_t n) {
  for (size_t k = 0; k < n; ++k) to[k] = to[k] < from[k] ? from[k] : to[k];
}

}  // namespace

void Clock::reach(uint32_t thread, uint32_t clock) {
  order()[thread] = std::max(order()[thread], clock);
  read()[thread] = std::max(read()[thread], clock);
}

// The clock that it took in last is there already: nothing in it gets less.
void Clock::join(const Clock& c) {
  if (&c == this || joined == c.state) return;
  joined = c.state;
  join_all(all.data(), c.all.data(), all.size());
}

void Clock::join_reads(const Clock& c) {
  if (&c == this || joined_reads == c.state) return;
  joined_reads = c.state;
  join_all(read(), c.read(), threads);
}

void Races::Cell::clear() {
  writes.clear();
  reads.clear();
  next = 0;
  chain = nullptr;
}

// A run begins, of so many threads.
void Races::begin(uint64_t threads, bool windows) {
  for (Page* p : used_) {
    for (Cell& c : p->cells) c.clear();
    p->used = false;
  }
  used_.clear();
  ends_.clear();
  known_.clear();
  reports_.clear();
  threads_.assign(threads, Thread());
  for (auto& r : recent_) r = {};
  found_ = 0;
  blocks_ = 0;
  windows_ = windows;
}

Races::Cell& Races::cell(uint64_t word) {
  const uint64_t page = word / kPageWords;
  const auto& r = recent_[page % kRecent];
  return r.page == page ? r.at->cells[word % kPageWords] : found_cell(page, word);
}

Races::Cell& Races::found_cell(uint64_t page, uint64_t word) {
  auto& slot = pages_[page];
  if (slot == nullptr) slot = std::make_unique<Page>();
  if (!slot->used) {
    slot->used = true;
    used_.push_back(slot.get());
  }
  recent_[page % kRecent] = {page, slot.get()};
  return slot->cells[word % kPageWords];
}

// A clock that knows nothing.
Ref<Clock> Races::new_clock() {
  Ref<Clock> c = clocks_.take();
  c->threads = static_cast<uint32_t>(threads_.size());
  c->all.assign(threads_.size() * (windows_ ? 4 : 2), 0);
  c->joined = c->joined_reads = 0;
  c->state = ++states_;
  return c;
}

// Its content is about to change.
Clock& Races::changed(Clock& c) {
  c.state = ++states_;
  return c;
}

// The thread's own copy of what it knows.
Clock& Races::writable(Thread& t) {
  if (!t.known.alone()) {
    Ref<Clock> copy = clocks_.take();
    copy->threads = t.known->threads;
    copy->all = t.known->all;
    copy->joined = t.known->joined;
    copy->joined_reads = t.known->joined_reads;
    t.known = std::move(copy);
  }
  return changed(*t.known);
}

bool Races::reaches(const Thread& a, Scope sa, const Thread& b, Scope sb) const {
  const Scope narrow = std::min(sa, sb);
  return narrow == Scope::kSys || (narrow == Scope::kGpu ? a.rank == b.rank : a.block == b.block);
}

void Races::add(Clock& to, const Clock& from, uint32_t thread, uint32_t clock) {
  to.join(from);
  to.reach(thread, clock);
}

void Races::begin(const Grid& g) {
  const bool behind = g.before != nullptr && g.before->done;
  const auto start = behind ? ends_[g.before] : new_clock();
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
  t.fence_clock = t.fence->order()[t.fence_thread];
  t.fence_scope = Scope::kSys;
}

void Races::leave(Warp& w, uint32_t lanes) {
  auto& end = ends_[w.block->grid];
  if (end == nullptr) end = new_clock();
  Clock& c = changed(*end);
  each_lane(lanes, [&](uint32_t l) {
    const auto self = static_cast<uint32_t>(w.thread_number(l));
    const Thread& t = threads_[self];
    c.join(*t.known);
    c.order()[self] = c.read()[self] = t.own;
  });
}

void Races::end(const Grid& g) {
  Clock& c = changed(*ends_[&g]);
  if (g.before != nullptr && ends_.count(g.before) == 1) c.join(*ends_[g.before]);
  if (!windows_) return;
  std::copy_n(c.order(), c.threads, c.part(Clock::kFenced));
  std::copy_n(c.order(), c.threads, c.part(Clock::kAliased));
}

void Races::barrier(const Grid& g, uint64_t block, uint64_t blocks) {
  const Ref<Clock> all = new_clock();
  const uint64_t first = g.first_thread + block * g.launch.block, end = first + blocks * g.launch.block;
  for (uint64_t k = first; k < end; ++k) {
    all->join(*threads_[k].known);
    all->order()[k] = all->read()[k] = threads_[k].own;
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
      t.aliased = t.own++;
      if (!windows_) return;
      Clock& c = writable(t);
      std::copy_n(c.part(Clock::kFenced), c.threads, c.part(Clock::kAliased));
      std::copy_n(c.order(), c.threads, c.part(Clock::kFenced));
      c.part(Clock::kFenced)[self] = t.aliased;
      c.joined = 0;  // these may be less than they were
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
    if (page != pages_.end()) page->second->cells[word % kPageWords].clear();
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
      size_t at_record = c.next < c.reads.size() ? c.next : 0;  // threads that poll come by turns
      for (size_t n = c.reads.size(); n > 0 && !known; --n, at_record = at_record + 1 == c.reads.size() ? 0 : at_record + 1) {
        Record& o = c.reads[at_record];
        if (o.thread != self || o.window != window || (o.mask & ~now.mask) != 0) continue;
        const bool strong = o.strong && now.strong;
        o = now;
        o.strong = strong;
        known = true;
      }
      if (known) c.next = at_record;
      else c.reads.push_back(now);
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
    if (!crossed || (o.strong && now.strong) || o.clock <= t.aliased || o.clock <= t.known->part(Clock::kAliased)[self]) return;
  } else {
    // A word that both poll or count in; data through the window is to be ordered all the same.
    const bool data = o.window && now.window && o.what->kind != Kind::kMultiReduction;
    if (o.strong && now.strong && !data && reaches(other, o.scope, t, now.scope)) return;
    const Clock& c = *t.known;
    const bool ordered = o.clock <= (read_before ? c.read() : c.order())[o.thread];
    if (ordered && (!crossed || (o.strong && now.strong) || o.clock <= c.part(Clock::kAliased)[o.thread])) return;
  }
  ++found_;
  if (reports_.size() >= kMostReports || !known_.insert({{o.what, now.what}, 1}).second) return;
  const bool ordered = o.thread == self || o.clock <= (read_before ? t.known->read() : t.known->order())[o.thread];
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
    for (const Message& m : chain->messages) {
      const Thread& from = threads_[m.thread];
      if (m.thread == self || !reaches(from, m.scope, t, i.scope)) continue;
      if (t.known->read()[m.thread] < m.clock) {  // the loads before it are over
        Clock& c = writable(t);
        c.join_reads(*m.known);
        c.read()[m.thread] = m.clock;
      }
      const int near = from.block == t.block ? 0 : from.rank == t.rank ? 1 : 2;
      const auto learn = [&](const Clock& known, uint32_t thread, uint32_t clock) {
        if (t.known->order()[thread] >= clock) return;
        if (acquires) {
          add(writable(t), known, thread, clock);
          return;
        }
        auto& p = t.pending[near];
        if (p == nullptr) p = new_clock();
        else if (p->order()[thread] >= clock) return;
        add(changed(*p), known, thread, clock);
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
  const Ref<Chain> chain = chains_.take();
  if (chained && cell(at / 4).chain != nullptr) {
    for (const Message& x : cell(at / 4).chain->messages) {
      if (x.thread != self || x.scope > m.scope || (x.releases && !m.releases)) chain->messages.push_back(x);
    }
  }
  chain->messages.push_back(std::move(m));
  for (uint64_t word = at / 4; word <= (at + bytes - 1) / 4; ++word) cell(word).chain = chain;
}

void Races::forget(uint64_t at, uint64_t bytes) {
  for (uint64_t word = at / 4; word <= (at + bytes - 1) / 4; ++word) cell(word).chain = nullptr;
}

}  // namespace ptx
