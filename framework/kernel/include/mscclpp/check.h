// The checking emulator: runs kernels with every thread as a fiber, blocks as sets of
// fibers, and all ranks of a job in one process that shares memory.
//
// A test is a program. It includes this file before any kernel, is compiled with
// -DMSCCLPP_CHECK, and names its tests at the end:
//
//	#include <mscclpp/check.h>
//	#include "my_kernels.h"
//
//	static void exchange(mscclpp::check::Job& job) {
//	  float* in[2] = {job.alloc<float>(100), job.alloc<float>(100)};
//	  auto link = job.link(0, in[0], 1, in[1]);
//	  job.launch(0, 2, 8, my_kernel, MyArgs{link.a, …});  // rank, blocks, threads
//	  job.launch(1, 2, 8, my_kernel, MyArgs{link.b, …});
//	  job.run();
//	  job.expect(in[1][3] == 7, "element 3 is %g", in[1][3]);
//	}
//	MSCCLPP_CHECK_MAIN({"exchange", exchange})
//
// Run it as `prog [--test NAME] [--seeds N] [--seed S] [--bug K]`. Without options
// every test runs once, threads in turn. --seeds N runs it under N schedules that
// switch threads at every ordered operation; the seed of a failure replays it.
// Built with -fsanitize=thread, missing releases, acquires and barriers are data
// races; with -fsanitize=address, accesses outside of memory are found.
//
// The emulator cannot see faults inside inline PTX, device scope where system scope
// is needed, reordering by hardware, or whether blocks fit on a device.
#ifndef MSCCLPP_CHECK_H_
#define MSCCLPP_CHECK_H_

#if !defined(MSCCLPP_CHECK)
#error "compile checking programs with -DMSCCLPP_CHECK"
#endif

#include "check_schedule.h"
#include "device.h"

namespace mscclpp {
namespace check {

// The hooks that device headers call.
MSCCLPP_CHECK_QUIET inline uint32_t thread_id() { return Schedule::current->id; }
MSCCLPP_CHECK_QUIET inline uint32_t block_dim() { return Schedule::current->block->dim; }
MSCCLPP_CHECK_QUIET inline uint32_t block_id() { return Schedule::current->block->id; }
MSCCLPP_CHECK_QUIET inline uint32_t grid_dim() { return Schedule::current->block->grid; }
inline bool block_sync(bool ok, Where where) { return Schedule::now->barrier(ok, where); }
MSCCLPP_CHECK_QUIET inline uint64_t block_share(uint64_t value, Where where) {
  if (thread_id() == 0) Schedule::current->block->word = value;
  block_sync(true, where);
  return Schedule::current->block->word;
}
MSCCLPP_CHECK_QUIET inline void point() {
  if (Schedule::current != nullptr) Schedule::now->point();
}
MSCCLPP_CHECK_QUIET inline void poll(uint32_t channel, uint32_t peer, uint64_t expected, uint64_t seen, Where where) {
  Schedule::now->poll(channel, peer, expected, seen, where);
}
MSCCLPP_CHECK_QUIET inline void fence_release(const void* word) { Schedule::order_release(const_cast<void*>(word)); }
MSCCLPP_CHECK_QUIET inline void fence_acquire(const void* word) { Schedule::order_acquire(const_cast<void*>(word)); }
MSCCLPP_CHECK_QUIET inline void progress() { Schedule::now->progressed(); }
MSCCLPP_CHECK_QUIET inline void left() {
  Schedule::now->left();
  Schedule::now->progressed();
}

// Two ends of a memory channel. Data that a's kernel puts arrives in b's memory.
struct Link {
  MemoryChannelHandle a, b;
};

// A ring with the consumer's side.
struct Ring {
  FifoHandle handle;
  uint64_t taken = 0;

  // Takes the oldest trigger, in the order that a proxy has to keep: parity, then
  // payload, then the slot is free.
  bool take(Trigger& t) {
    Trigger* slot = handle.triggers + (taken & handle.mask);
    const uint64_t parity = (taken >> handle.shift & 1) != 0 ? 0 : kTriggerParity;
    const uint64_t snd = load_acquire(&slot->snd);
    if ((snd & kTriggerParity) != parity) return false;
    t.fst = load_relaxed(&slot->fst);
    t.snd = snd & ~kTriggerParity;
    store_release(handle.tail, ++taken);
    return true;
  }
};

// One run of one test: memory, kernels, and everything else that takes part.
class Job {
 public:
  const int bug;  // for programs that plant bugs: which one, 0 for none

  Job(Schedule::Mode mode, uint64_t seed, int bug) : bug(bug), schedule_(mode, seed) {}
  ~Job() {
    for (void* p : memory_) ::free(p);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Zeroed memory that every rank can reach. It ends where it says: an access past
  // the end is found by AddressSanitizer.
  template <class T>
  T* alloc(size_t n) {
    void* p = nullptr;
    if (posix_memalign(&p, 64, n * sizeof(T) + (n == 0)) != 0) {
      perror("check: memory");
      exit(kUsage);
    }
    memset(p, 0, n * sizeof(T));
    memory_.push_back(p);
    return static_cast<T*>(p);
  }

  // The wait control of a rank; its kernels find it in the handles made here.
  WaitControl* control(uint32_t rank) {
    while (controls_.size() <= rank) controls_.push_back(alloc<WaitControl>(1));
    return controls_[rank];
  }

  Link link(uint32_t a, void* memory_a, uint32_t b, void* memory_b) {
    uint64_t* to_a = alloc<uint64_t>(1);
    uint64_t* to_b = alloc<uint64_t>(1);
    const uint32_t id = ++channels_;
    Link l;
    l.a = MemoryChannelHandle{{to_a, alloc<uint64_t>(1), to_b, control(a), b, id}, memory_b, memory_a, memory_a};
    l.b = MemoryChannelHandle{{to_b, alloc<uint64_t>(1), to_a, control(b), a, id}, memory_a, memory_b, memory_b};
    return l;
  }

  // A ring of a power of two of slots.
  Ring ring(uint32_t rank, uint32_t slots) {
    Ring r;
    uint32_t shift = 0;
    while (1u << shift < slots) ++shift;
    r.handle = FifoHandle{alloc<Trigger>(slots), alloc<uint64_t>(1), alloc<uint64_t>(1), alloc<uint64_t>(1),
                          alloc<uint32_t>(1), nullptr, control(rank), slots - 1, shift};
    return r;
  }

  // The end of member rank of an emulated window of ranks copies; memory holds them
  // in a row, each of stride bytes with the barrier's counter at byte flag.
  SwitchChannelHandle window(uint32_t rank, uint32_t ranks, void* memory, uint64_t stride, uint64_t flag) {
    return SwitchChannelHandle{static_cast<char*>(memory) + rank * stride, memory, stride, stride, flag,
                               alloc<uint64_t>(1), control(rank), rank, ranks};
  }

  // Adds a kernel to the next run.
  template <class Args>
  void launch(uint32_t rank, uint32_t grid, uint32_t block, void (*kernel)(const Args*, const LaunchShape*), const Args& args) {
    auto copy = std::make_shared<Args>(args);
    const LaunchShape shape = {grid, block, 0, 0};
    for (uint32_t b = 0; b < grid; ++b) {
      Block* where = newBlock(rank, b, grid, block);
      for (uint32_t t = 0; t < block; ++t) {
        schedule_.add(where, t, false, [kernel, copy, shape] { kernel(copy.get(), &shape); });
      }
    }
  }

  // Adds something that works beside the kernels, a proxy or the host: step is
  // called over and over and says whether it did anything. The run ends when all
  // kernels are done and step has nothing to do.
  void beside(uint32_t rank, std::function<bool()> step) {
    schedule_.add(newBlock(rank, 0, 1, 1), 0, true, [step] {
      for (;;) {
        if (step()) {
          progress();
          point();
        } else {
          poll(0, 0, 0, 0, Where{"beside", 0});
        }
      }
    });
  }

  // Runs all that was launched to its end; more can be launched after it.
  void run() {
    schedule_.run();
    blocks_.clear();
  }

  __attribute__((format(printf, 3, 4))) void expect(bool ok, const char* format, ...) {
    if (ok) return;
    va_list list;
    va_start(list, format);
    fprintf(stderr, "wrong: ");
    vfprintf(stderr, format, list);
    va_end(list);
    schedule_.fail(kWrong, ".");
  }

  // Reproducible: belongs to the seed.
  uint32_t random(uint32_t below) { return schedule_.random().below(below); }

 private:
  Block* newBlock(uint32_t rank, uint32_t id, uint32_t grid, uint32_t dim) {
    blocks_.push_back(std::make_unique<Block>());
    Block* b = blocks_.back().get();
    b->rank = rank;
    b->id = id;
    b->grid = grid;
    b->dim = dim;
    return b;
  }

  Schedule schedule_;
  std::vector<void*> memory_;
  std::vector<WaitControl*> controls_;
  std::vector<std::unique_ptr<Block>> blocks_;
  uint32_t channels_ = 0;
};

struct Test {
  const char* name;
  void (*body)(Job&);
};

inline int main(int argc, char** argv, std::initializer_list<Test> tests) {
  const char* only = nullptr;
  uint64_t seeds = 0, seed = 0;
  int bug = 0;
  bool one = false;
  for (int i = 1; i < argc; ++i) {
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (strcmp(argv[i], "--list") == 0) {
      for (const Test& t : tests) printf("%s\n", t.name);
      return kPassed;
    }
    if (value == nullptr) {
      fprintf(stderr, "%s: %s: expected --list, or --test NAME, --seeds N, --seed S, --bug K\n", argv[0], argv[i]);
      return kUsage;
    }
    ++i;
    if (strcmp(argv[i - 1], "--test") == 0) only = value;
    else if (strcmp(argv[i - 1], "--seeds") == 0) seeds = strtoull(value, nullptr, 10);
    else if (strcmp(argv[i - 1], "--seed") == 0) seed = strtoull(value, nullptr, 10), one = true;
    else if (strcmp(argv[i - 1], "--bug") == 0) bug = static_cast<int>(strtol(value, nullptr, 10));
    else {
      fprintf(stderr, "%s: %s: unknown option\n", argv[0], argv[i - 1]);
      return kUsage;
    }
  }
  uint32_t ran = 0;
  for (const Test& t : tests) {
    if (only != nullptr && strcmp(only, t.name) != 0) continue;
    ++ran;
    if (seeds == 0 && !one) {
      Job job(Schedule::kPlain, 0, bug);
      t.body(job);
      continue;
    }
    const uint64_t first = one ? seed : 1, last = one ? seed : seeds;
    for (uint64_t s = first; s <= last; ++s) {
      Job job(Schedule::kSeeds, s, bug);
      t.body(job);
    }
  }
  if (ran == 0) {
    fprintf(stderr, "%s: no test %s\n", argv[0], only != nullptr ? only : "at all");
    return kUsage;
  }
  return kPassed;
}

}  // namespace check
}  // namespace mscclpp

#define MSCCLPP_CHECK_MAIN(...) \
  int main(int argc, char** argv) { return ::mscclpp::check::main(argc, argv, {__VA_ARGS__}); }

#endif  // MSCCLPP_CHECK_H_
