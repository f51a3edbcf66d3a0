// The toy accelerator: what its parts know of each other.
//
// Its processors are threads. Its memory is a file in memory for each allocation, mapped without permission to load or store
// while the device is idle: a host that takes an address of the device for one of its own faults at once. Its kernels are
// shared objects for this processor. It is slow, and shows every rule of mscclpp/device_backend.h.
#ifndef TOY_H_
#define TOY_H_

#include <mscclpp/device_backend.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace toy {

// Codes of the toy's own.
enum { kBadAddress = 1, kBadHandle = 2, kBadImage = 3, kBadCapture = 4 };

using Status = mscclpp_device_status;
inline Status answer(int32_t code, const char* call) { return Status{code, 0, code == 0 ? nullptr : call}; }

constexpr int kDevices = 4;
constexpr uint32_t kProcessors = 8;
constexpr uint32_t kMostThreads = 1024;
constexpr uint32_t kSharedMost = 64 << 10;

// ---- Memory: memory.cc ----

// Access makes the memory of all devices of this process accessible while it lives.
struct Access {
  Access();
  ~Access();
};

// Whether a range is memory that kernels may address.
bool known(uint64_t address, uint64_t bytes);

// ---- Work: queue.cc ----

struct Device;
struct Recording;

// A point in a stream that can be waited for.
struct Mark {
  std::mutex mutex;
  std::condition_variable reached;
  bool done = false;
  uint64_t at = 0;  // nanoseconds
  void reach();
  void wait();
};

struct Operation {
  std::function<void()> work;              // one of these three is set
  std::shared_ptr<Mark> reach, await;
};

struct Stream {
  explicit Stream(Device* d);
  ~Stream();
  Device* device;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Operation> queue;
  bool busy = false, ending = false;
  std::shared_ptr<Recording> recording;  // while it is captured
  size_t branch = 0;                     // of the recording
  std::thread thread;
  void run();
};

// The recording of a capture: a list of operations for each stream that takes part.
struct Recording {
  std::mutex mutex;
  Stream* origin = nullptr;
  std::vector<std::vector<Operation>> branches;
  std::vector<Stream*> streams;
  std::set<Mark*> marks;  // that it records
};

struct Event {
  std::mutex mutex;
  std::shared_ptr<Mark> last;
  std::shared_ptr<Recording> recording;  // of which last is a part
};

struct Device {
  int index = 0;
  uint64_t memory = uint64_t{4} << 30;  // that one process gets
  bool pairs = false;                    // links join devices 0 and 1, and 2 and 3, and not all of them
  std::atomic<bool> lost{false};
  std::mutex mutex;  // for what follows
  std::set<Stream*> streams;
  std::unique_ptr<Stream> standard;  // stream 0
  std::set<Event*> events;
  std::set<struct Module*> modules;
  std::set<struct Graph*> graphs;
  int leaving = 0;  // streams that were destroyed and still work
  std::condition_variable left;
};

// Performs an operation, with the memory of the device accessible.
void perform(Device* d, const Operation& o);
// Adds an operation to a stream, or to the recording of one that is captured.
Status enqueue(Device* d, mscclpp_device_handle stream, Operation o, const char* call);
// The stream of a handle, nullptr if there is none.
Stream* stream_of(Device* d, mscclpp_device_handle h);
// Starts a thread with all signals blocked.
std::thread start(std::function<void()> f);
uint64_t now();

inline Device* of(mscclpp_device* d) { return reinterpret_cast<Device*>(d); }

// ---- Entries of the table, by file ----

void fill_memory(mscclpp_device_backend* t);
void fill_queue(mscclpp_device_backend* t);
void fill_event(mscclpp_device_backend* t);
void fill_graph(mscclpp_device_backend* t);
void fill_kernel(mscclpp_device_backend* t);

}  // namespace toy

#endif
