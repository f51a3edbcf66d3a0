// Everything the library knows, behind one lock: calls are short, and what takes
// long runs on the threads of queues, which do not take it.
#ifndef EMULATED_STATE_H_
#define EMULATED_STATE_H_

#include <sys/types.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "api.h"
#include "queue.h"

constexpr uint64_t kPage = 4096, kGranularity = 2 << 20;
constexpr int kCapability = 90;  // 9.0
constexpr int kProcessors = 132, kMaxThreads = 1024, kThreadsPerProcessor = 2048;
constexpr unsigned kSharedPlain = 48 << 10, kSharedMost = 227 << 10;

class Group;

// Memory behind one memfd, shared by the handles and mappings of it; or a multicast object, which has no memory.
struct Backing {
  int fd = -1;
  uint64_t bytes = 0;
  int device = -1;        // ordinal whose limit it counts against; -1: another process's
  int handle_types = 0;   // the kinds of its exports
  bool uncached = false;  // asked for at its allocation: no cache keeps it
  std::shared_ptr<Group> group;  // of a multicast object
  ~Backing();
};

struct Context;

// A range of addresses that kernels may use.
struct Range {
  enum Kind { kAllocated, kOpened, kMapped, kHostAllocated, kHostRegistered } kind;
  uint64_t base, bytes;
  int device;             // ordinal; of host memory that of the context
  Context* context;       // that it ends with; null for mapped ranges
  std::shared_ptr<Backing> backing;
  uint64_t offset = 0;    // in the backing
  std::map<int, int> access;  // of mapped ranges, by device
  int opens = 1;          // of opened ranges
  uint64_t id;            // no other range of the process ever has it

  bool host() const { return kind == kHostAllocated || kind == kHostRegistered; }
};

struct Node {
  Op run;
  int lane;
  std::vector<int> after;
};

struct Graph {
  std::vector<Node> nodes;
  int lanes = 1;  // chains of nodes, one for each stream that took part
};

struct Stream;
struct GreenContext {  // some of the processors of a device, for its streams
  Context* context;
  unsigned processors;
};

struct Capture {
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  Stream* origin;
  int mode;
  pid_t thread;
  bool invalid = false;
  std::set<Stream*> members;
};

struct Stream {
  Context* context;
  GreenContext* green = nullptr;
  uint64_t id = 1;  // no other stream has it, also not one with the same handle
  unsigned flags = 0;
  int priority = 0;
  std::shared_ptr<Queue> queue = std::make_shared<Queue>();
  std::shared_ptr<Capture> capture;
  int lane = 0;
  std::vector<int> frontier;  // nodes of the capture that the next one comes after

  Mark mark() { return Mark{queue, queue->last()}; }
};

struct Event {
  Context* context;
  unsigned flags;
  bool recorded = false;
  Mark mark;
  std::shared_ptr<std::atomic<uint64_t>> nanoseconds = std::make_shared<std::atomic<uint64_t>>(0);
  std::shared_ptr<Capture> capture;  // recorded in it, not in a queue
  std::vector<int> frontier;
};

namespace ptx {
struct Function;
}
struct Image;
struct Function {
  Context* context;
  std::string name;
  std::shared_ptr<Image> image;
  void (*entry)(const void*, const void*);
  const ptx::Function* code = nullptr;  // interpreted, in place of entry
  size_t parameters = 0;  // bytes; 0: not known
  int max_threads = kMaxThreads;
  unsigned shared_most = kSharedPlain;
};

struct Module {
  Context* context;
  std::shared_ptr<Image> image;
  std::map<std::string, std::unique_ptr<Function>> functions;
};

struct GraphHandle {
  std::shared_ptr<Graph> graph;
};

struct GraphExec {
  std::shared_ptr<Graph> graph;
  std::vector<std::shared_ptr<Queue>> lanes;  // of all but the first
  Mark last;
};

// The primary context of a device; there are no others.
struct Context {
  int device;
  int users = 0;
  std::atomic<int> fault{0};       // the error it is lost with
  std::unique_ptr<Stream> legacy;  // the default stream
  std::set<Stream*> streams;
  std::map<uint64_t, Stream*> of_threads;  // their default streams, which are among streams
  std::vector<Mark> left;          // work of streams that were destroyed
  std::set<Event*> events;
  std::set<Module*> modules;
  std::set<Context*> peers;
};

struct Device {
  int physical;  // number on the emulated host, whatever is visible
  uint64_t used = 0;
  Context context;
};

struct State {
  std::mutex mutex;
  bool initialized = false;
  std::vector<std::unique_ptr<Device>> devices;
  std::set<std::string> without;  // abilities that are switched off
  uint64_t limit = 0;             // bytes of a device
  uint64_t arena = 0, arena_next = 0, arena_end = 0;
  std::map<uint64_t, uint64_t> reserved;  // ranges reserved by the program
  std::map<uint64_t, Range> ranges;
  std::map<AllocationHandle, std::shared_ptr<Backing>> handles;
  std::map<std::string, uint64_t> opened;  // by handle, addresses of opened ranges
  uint64_t next = 1;                       // handle or id
  std::set<std::shared_ptr<Capture>> captures;
  std::set<GraphHandle*> graphs;
  std::set<GraphExec*> execs;
};

// Leaks on purpose: threads of queues may outlive static destructors.
State& state();

using Lock = std::unique_lock<std::mutex>;

// Begins a call: takes the lock, and fails before cuInit.
#define ENTER()                 \
  Lock lock(state().mutex);     \
  if (!state().initialized) return kNotInitialized

// The same for calls that need a current context.
#define ENTER_CONTEXT(name)                        \
  ENTER();                                         \
  Context* name = nullptr;                         \
  if (int bad = current_context(&name)) return bad

// The same for calls that a capture may forbid.
#define ENTER_UNSAFE(name) \
  ENTER_CONTEXT(name);     \
  if (int bad = check_captures()) return bad

int current_context(Context** context);
bool has(const char* ability);
bool valid_device(int device);
bool alive(Context* context);
pid_t thread_id();
uint64_t thread_number();  // no other thread has it, also not a later one

// capture.cc
int check_captures();                   // of calls that are unsafe during captures
void invalidate(Stream* stream);
bool spoil_captures(Context* context);  // all of its streams; whether there is one
void leave_capture(Stream* stream);     // of a stream that ends
int record(Stream* stream, Op op);      // the next node of the capture that stream is in

// stream.cc
Stream* make_stream(Context* context, unsigned flags, int priority);
int find_stream(Stream* handle, Context* current, Stream** stream);
int enqueue(Stream* stream, Op op);     // into the capture or the queue

// memory.cc
uint64_t reserve(uint64_t bytes, uint64_t alignment);
std::shared_ptr<Backing> make_backing(uint64_t bytes, int device);
Range* range_of(uint64_t address);      // null: none
Range& add_range(Range range);
void remove_range(uint64_t base);
bool in_arena(uint64_t address);
bool usable(uint64_t address, uint64_t bytes, int device);
void release_memory(Context* context);

#endif  // EMULATED_STATE_H_
