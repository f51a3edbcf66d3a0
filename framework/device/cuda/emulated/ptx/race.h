// The race detector: happens-before by vector clocks, with scopes and proxies, as the memory model of PTX has them.
//
// Two accesses to the same bytes, of which at least one writes, have to be ordered, or both be strong (relaxed or more,
// volatile) with scopes that include each other. These order:
//
//   - bar.sync and bar.red, all threads of a block;
//   - a release (or a fence and a strong store) whose value an acquire (or a strong load and a fence) reads, also
//     through atomic operations between them; both scopes have to include the other thread;
//   - the end of a kernel, for the next one on its stream: at its start, or, where the launches overlap, behind
//     griddepcontrol.wait. The first kernel's writes are then released to the whole system;
//   - that a thread has read before something is overwritten: also a relaxed store and a relaxed load, because a load
//     whose value was used is over (docs/memory-model.md).
//
// Accesses by the window and by a rank's own address need an alias fence on either side of the signal that orders them.
// Loads and stores through the window are relaxed, and are ordered like plain ones among each other.
#ifndef EMULATED_PTX_RACE_H_
#define EMULATED_PTX_RACE_H_

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "counted.h"
#include "machine.h"

namespace ptx {

// The knowledge of a thread about all threads, by number. A clock that others refer to does not change.
struct Clock : Counted<Clock> {
  // All in one piece: everything up to there happened before; loads up to there are over; and, where there are windows,
  // one alias fence lies between, two of them do.
  enum Part { kOrder, kRead, kFenced, kAliased };
  std::vector<uint32_t> all;
  uint32_t threads = 0;
  uint64_t state = 0;                      // a number of this content alone
  uint64_t joined = 0, joined_reads = 0;   // the last contents that it took in

  uint32_t* part(Part p) { return all.data() + static_cast<size_t>(p) * threads; }
  const uint32_t* part(Part p) const { return all.data() + static_cast<size_t>(p) * threads; }
  uint32_t* order() { return part(kOrder); }
  uint32_t* read() { return part(kRead); }
  const uint32_t* order() const { return part(kOrder); }
  const uint32_t* read() const { return part(kRead); }
  void reach(uint32_t thread, uint32_t clock);   // all work of this thread up to there
  void join(const Clock& c);
  void join_reads(const Clock& c);
  void recycle() {}
};

// One detector watches one run after the other, and keeps its memory.
class Races {
 public:
  // From the machine. windows: there may be accesses through one.
  void begin(uint64_t threads, bool windows);
  void begin(const Grid& g);
  void end(const Grid& g);
  void follow(Warp& w, uint32_t lanes);
  void leave(Warp& w, uint32_t lanes);
  void barrier(const Grid& g, uint64_t block, uint64_t blocks);
  void fence(Warp& w, const Instruction& i, uint32_t lanes);
  void fresh(uint64_t begin, uint64_t end);
  // From instructions, before they touch memory.
  void load(const Warp& w, const Instruction& i, uint32_t lane, uint64_t at, uint64_t bytes);
  void store(const Warp& w, const Instruction& i, uint32_t lane, uint64_t at, uint64_t bytes);
  void update(const Warp& w, const Instruction& i, uint32_t lane, uint64_t at, uint64_t bytes);
  void multimem(const Warp& w, const Instruction& i, uint32_t lane, uint64_t at, uint64_t bytes);
  void after_multimem(const Warp& w, uint32_t lane);

  // The findings, each pair of instructions once.
  const std::vector<std::string>& reports() const { return reports_; }
  uint64_t found() const { return found_; }

 private:
  // An access that later ones are compared with.
  struct Record {
    uint32_t thread, clock;
    const Instruction* what;
    uint8_t mask;     // bytes of the word
    bool strong, window;
    Scope scope;
  };
  // The news in a strong store, or in a chain of atomic operations, for its readers.
  struct Message {
    uint32_t thread, clock;
    Ref<Clock> known;
    bool releases;
    Scope scope;
    Ref<Clock> fence;                     // the knowledge at a fence before it…
    uint32_t fence_thread, fence_clock;   // …and a clock in it that nobody learns otherwise
    Scope fence_scope;
  };
  struct Chain : Counted<Chain> {
    std::vector<Message> messages;
    void recycle() { messages.clear(); }
  };
  // The accesses to a word, and the news in it.
  struct Cell {
    std::vector<Record> writes, reads;
    size_t next = 0;   // where the thread behind the last one that read is likely to be
    Ref<Chain> chain;
    void clear();
  };
  static constexpr uint64_t kPageWords = 1024, kRecent = 64;
  struct Page {
    bool used = false;
    Cell cells[kPageWords];
  };
  struct Thread {
    uint32_t rank = 0, block = 0;       // block: number among all
    uint32_t own = 1;                   // its own clock
    uint32_t aliased = 0;               // own clock at its last alias fence
    Ref<Clock> known;
    Ref<Clock> pending[3];  // read by relaxed loads: of the block, of the rank, of others
    Ref<Clock> fence;
    uint32_t fence_thread = 0, fence_clock = 0;
    Scope fence_scope = Scope::kSys;
  };

  Cell& cell(uint64_t word);
  Cell& found_cell(uint64_t page, uint64_t word);
  Ref<Clock> new_clock();
  Clock& changed(Clock& c);
  Clock& writable(Thread& t);
  void released(Thread& t, const Grid& before);
  bool reaches(const Thread& a, Scope sa, const Thread& b, Scope sb) const;
  void access(const Warp& w, const Instruction& i, uint32_t lane, uint64_t at, uint64_t bytes, bool writes, bool window);
  void conflict(const Warp& w, const Instruction& i, uint32_t lane, uint32_t self, const Record& before, const Record& now, bool read_before, uint64_t word);
  void observe(uint32_t self, const Instruction& i, uint64_t at, uint64_t bytes);
  void publish(uint32_t self, const Instruction& i, uint64_t at, uint64_t bytes, bool chained);
  void forget(uint64_t at, uint64_t bytes);
  static void add(Clock& to, const Clock& from, uint32_t thread, uint32_t clock);
  static std::string name(const Instruction& i);

  Pool<Clock> clocks_;   // pools outlive what refers to them
  Pool<Chain> chains_;
  std::vector<Thread> threads_;
  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;
  std::vector<Page*> used_;
  struct Recent {
    uint64_t page = ~0ull;
    Page* at = nullptr;
  };
  Recent recent_[kRecent];
  std::map<const Grid*, Ref<Clock>> ends_;
  std::map<std::pair<const Instruction*, const Instruction*>, int> known_;
  std::vector<std::string> reports_;
  uint64_t found_ = 0;
  uint64_t states_ = 0;
  uint32_t blocks_ = 0;
  bool windows_ = false;
};

}  // namespace ptx

#endif  // EMULATED_PTX_RACE_H_
