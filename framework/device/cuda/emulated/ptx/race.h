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

#include "machine.h"

namespace ptx {

// The knowledge of a thread about all threads, by number.
struct Clock {
  std::vector<uint32_t> order;   // everything up to there happened before
  std::vector<uint32_t> read;    // loads up to there are over
  std::vector<uint32_t> fenced, aliased;  // and one alias fence, two of them, lie between

  explicit Clock(size_t threads) : order(threads), read(threads), fenced(threads), aliased(threads) {}
  void join(const Clock& c);
};

class Races {
 public:
  // From the machine.
  void size(uint64_t threads);
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
    std::shared_ptr<const Clock> known;
    bool releases;
    Scope scope;
    std::shared_ptr<const Clock> fence;   // the knowledge at a fence before it…
    uint32_t fence_thread, fence_clock;   // …and a clock in it that nobody learns otherwise
    Scope fence_scope;
  };
  using Chain = std::vector<Message>;
  struct Cell {
    std::vector<Record> writes, reads;
    std::shared_ptr<Chain> chain;
  };
  struct Thread {
    uint32_t rank = 0, block = 0;       // block: number among all
    uint32_t own = 1;                   // its own clock
    uint32_t aliased = 0;               // own clock at its last alias fence
    std::shared_ptr<Clock> known;
    std::shared_ptr<Clock> pending[3];  // read by relaxed loads: of the block, of the rank, of others
    std::shared_ptr<const Clock> fence;
    uint32_t fence_thread = 0, fence_clock = 0;
    Scope fence_scope = Scope::kSys;
  };

  Cell& cell(uint64_t word);
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

  std::vector<Thread> threads_;
  std::unordered_map<uint64_t, std::unique_ptr<Cell[]>> pages_;
  uint64_t recent_page_ = ~0ull;
  Cell* recent_ = nullptr;
  std::map<const Grid*, std::shared_ptr<Clock>> ends_;
  std::map<std::pair<const Instruction*, const Instruction*>, int> known_;
  std::vector<std::string> reports_;
  uint64_t found_ = 0;
  uint32_t blocks_ = 0;
  bool windows_ = false;   // there was an access through one
};

}  // namespace ptx

#endif  // EMULATED_PTX_RACE_H_
