// The machine that executes decoded images: grids of blocks of warps, on a seeded schedule or beside other machines.
//
// The threads of a warp that stand at the same instruction execute it together, as on the hardware: that is what keeps
// the stores of one warp to one line together. Those that branch apart are groups of their own, which take turns, until
// they meet again where all ways from the branch do.
#ifndef EMULATED_PTX_MACHINE_H_
#define EMULATED_PTX_MACHINE_H_

#include <functional>
#include <set>

#include "program.h"

namespace ptx {

constexpr uint32_t kWarp = 32;

class Races;
class Machine;
struct Block;
struct Grid;

// A range of addresses that kernels may use. A window has a copy for each member, and no memory of its own.
struct Region {
  uint64_t begin = 0, end = 0;
  int rank = 0;
  std::string name;
  std::vector<char*> copies;
  bool window() const { return !copies.empty(); }
};

// The memory of a machine. find returns null where there is none.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual const Region* find(uint64_t address) = 0;
  // Whether addresses without a region are an error, or somebody else finds out.
  virtual bool strict() const { return true; }
};

struct Frame {
  const Function* function;
  int pc;
  uint32_t base;
};

enum class State : uint8_t { kReady, kMeeting, kBarrier, kVote, kGridWait, kCluster };

// The place where threads that a branch sent apart meet again.
struct Meeting {
  int pc;
  size_t depth;        // of callers
  uint32_t expected;   // lanes
};

struct Group {
  uint32_t lanes = 0;
  State state = State::kReady;
  Frame at{};
  std::vector<Frame> callers;
  std::vector<std::shared_ptr<Meeting>> meetings;  // the next one last
};

struct Warp {
  Machine* machine = nullptr;
  Block* block = nullptr;
  uint32_t first = 0;        // number of its first thread in the block
  uint32_t all = 0;          // its lanes
  std::vector<Group> groups;
  size_t now = 0;            // the group that runs
  uint32_t cluster_waits = 0;  // waits for its cluster that have ended
  uint32_t alone = 0;        // instructions while threads wait to meet others
  const Program* program = nullptr;
  const uint64_t* constants = nullptr;
  std::vector<uint64_t> registers;   // [register][lane]
  std::vector<uint32_t> undefined;   // lanes, by register
  uint64_t* r = nullptr;     // of the frame that runs
  uint32_t* u = nullptr;
  const Region* recent = nullptr;
  bool queued = false;

  uint64_t thread_number(uint32_t lane) const;  // in the machine, for the race detector
  std::string where(const Instruction& i, uint32_t lane) const;
  [[noreturn]] void fail(const Instruction& i, uint32_t lane, const std::string& why) const;
};

// A barrier in shared memory: a phase ends with so many arrivals, and when as many bytes have come as they expect.
struct Mbarrier {
  uint32_t count = 0, pending = 0, phase = 0;
  int64_t bytes = 0;
  std::vector<std::pair<uint64_t, uint32_t>> stores;  // of this phase
};

struct Block {
  Grid* grid = nullptr;
  uint32_t id = 0;
  std::vector<Warp> warps;
  std::unique_ptr<char[]> shared;
  uint64_t shared_begin = 0, shared_end = 0;
  std::map<uint64_t, Mbarrier> mbarriers;  // by address
  uint32_t threads = 0, waiting = 0, left = 0;
  bool barrier_and = true;
  const Instruction* barrier = nullptr;
  bool released = false;     // the next grid may begin, as far as this block is concerned
};

struct Launch {
  const Program* program = nullptr;
  const Function* entry = nullptr;
  uint32_t grid = 1, block = 1, shared = 0, cluster = 1;
  bool overlap = false;
  int rank = 0;
  std::vector<char> arguments;
};

// Blocks that run at the same time.
struct Cluster {
  uint32_t arrived = 0, phase = 0;
};

struct Grid {
  Launch launch;
  uint64_t first_thread = 0;     // number in the machine
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<Cluster> clusters;
  std::vector<char> arguments;   // aligned
  uint32_t blocks_released = 0, blocks_done = 0;
  Grid* before = nullptr;        // on the stream
  bool begun = false, done = false;
  uint64_t args_begin() const;
};

inline uint64_t Warp::thread_number(uint32_t lane) const {
  const Grid& g = *block->grid;
  return g.first_thread + static_cast<uint64_t>(block->id) * g.launch.block + first + lane;
}

struct Options {
  uint64_t seed = 1;
  uint64_t most = 4000000000ull;     // instructions of threads, before it counts as no progress
  std::function<void()> yield;       // between turns, where others run beside
};

struct Counts {
  uint64_t instructions = 0;   // of threads
  uint64_t warp_instructions = 0, turns = 0, multimem = 0;
};

class Machine {
 public:
  Machine(Memory& memory, Races* races = nullptr) : memory(memory), races(races) {}

  // Enqueues a launch on stream number `stream` of its rank.
  void add(Launch launch, int stream = 0);
  // Executes all, in an order that the seed decides. Throws Error: what is wrong, where.
  Counts run(const Options& options);

  Memory& memory;
  Races* const races;
  Counts counts;
  uint64_t clock = 1000;       // nanoseconds
  bool real_time = false;      // kernels read the time of the host

  uint64_t time();
  const Region& region(Warp& w, const Instruction& i, uint32_t lane, uint64_t address, uint64_t bytes);

 private:
  friend struct Warp;
  // The rank, block or warp that gets fewer turns than others; -1: any.
  struct Laggard {
    int rank = -1, block = -1, warp = -1;
    bool is(const Warp& w) const;
  };
  Laggard choose_laggard(uint64_t seed);
  void begin(Grid& g);
  void begin_ready();
  void turn(Warp& w, uint32_t most);
  bool choose(Warp& w);
  void meet(Warp& w);
  void part(Warp& w);
  void merge(Warp& w);
  void branch(Warp& w, const Instruction& i, uint32_t taken);
  void call(Warp& w, const Instruction& i);
  void leave(Warp& w, const Instruction& i, uint32_t lanes, bool returns);
  void barrier(Warp& w, const Instruction& i);
  void vote(Warp& w, const Instruction& i);
  void shuffle(Warp& w, const Instruction& i);
  void grid_control(Warp& w, const Instruction& i);
  void cluster(Warp& w, const Instruction& i);
  void finish_block(Block& b);
  void ready(Warp& w);
  std::string stuck() const;
  uint64_t random() {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return random_;
  }

  std::vector<std::unique_ptr<Grid>> grids_;
  std::map<std::pair<int, int>, Grid*> last_;
  std::vector<Warp*> runnable_;
  uint64_t random_ = 1, threads_ = 0;
};

// Operands.
struct Source {
  const uint64_t* at;
  size_t step;
  uint64_t operator[](uint32_t lane) const { return at[lane * step]; }
};
inline Source source(const Warp& w, Operand o) {
  if (o.at >= 0) return {w.r + static_cast<size_t>(o.at) * kWarp, 1};
  return {w.constants + ~o.at, 0};
}
inline uint32_t undefined(const Warp& w, Operand o) { return o.at >= 0 ? w.u[o.at] : 0; }
inline uint64_t* target(Warp& w, Operand o) { return w.r + static_cast<size_t>(o.at) * kWarp; }
inline void define(Warp& w, Operand o, uint32_t lanes, uint32_t undefined) {
  uint32_t& u = w.u[o.at];
  u = (u & ~lanes) | (undefined & lanes);
}

template <class F>
inline void each_lane(uint32_t lanes, F f) {
  if (lanes == ~0u) {
    for (uint32_t l = 0; l < kWarp; ++l) f(l);
    return;
  }
  for (uint32_t m = lanes; m != 0; m &= m - 1) f(static_cast<uint32_t>(__builtin_ctz(m)));
}

}  // namespace ptx

#endif  // EMULATED_PTX_MACHINE_H_
