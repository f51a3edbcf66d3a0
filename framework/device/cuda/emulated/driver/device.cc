// The library, its devices and their contexts.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "machine.h"
#include "state.h"

namespace {

constexpr uint64_t kArenaBytes = 4ull << 40;

thread_local Context* t_current;
thread_local std::vector<Context*> t_below;  // contexts that were current when another was pushed

// The devices that CUDA_VISIBLE_DEVICES leaves, in its order: as with the driver, the list ends
// at the first entry that names nothing, and names nothing twice.
std::vector<int> visible(int count) {
  std::vector<int> out;
  const char* list = getenv("CUDA_VISIBLE_DEVICES");
  if (list == nullptr) {
    for (int i = 0; i < count; ++i) out.push_back(i);
    return out;
  }
  for (const std::string& item : split(list)) {
    int found = -1;
    for (int i = 0; i < count; ++i) {
      if (item == std::to_string(i) || (item.size() > 4 && uuid_text(i).compare(0, item.size(), item) == 0)) found = i;
    }
    if (found < 0) break;
    if (std::find(out.begin(), out.end(), found) != out.end()) return {};
    out.push_back(found);
  }
  return out;
}

int attribute(int which) {
  const int vmm = has("vmm"), memops = has("memops");
  switch (which) {
    case 1: case 2: case 3: return kMaxThreads;  // of a block; its first two extents
    case 4: return 64;
    case 5: return 2147483647;
    case 6: case 7: return 65535;
    case 8: return kSharedPlain;
    case 10: return 32;
    case 12: case 82: return 65536;  // registers
    case 13: return 1000000;         // kHz
    case 16: return kProcessors;
    case 19: case 31: case 41: return 1;  // maps host memory, concurrent kernels, unified addresses
    case 33: return kFirstBus;            // the number of the device is added
    case 38: return 50 << 20;
    case 39: return kThreadsPerProcessor;
    case 40: return 3;
    case 75: return kCapability / 10;
    case 76: return kCapability % 10;
    case 78: return 1;
    case 81: return kSharedMost + 1024;
    case 90: case 91: case 95: return 1;
    case 92: case 93: case 94: case 122: case 123: return memops;
    case 97: return kSharedMost;
    case 98: return 1;
    case 99: return has("register");
    case 102: case 103: return vmm;
    case 106: return 32;
    case 110: case 124: return has("dmabuf");
    case 111: return 1024;
    case 116: return has("dmabuf");
    case 117: return has("flush");
    case 118: return has("ordered") ? 200 : 0;  // for all GPUs, or not at all
    case 132: return vmm && has("multicast");
    case 128: return vmm;  // says yes, and refuses, as machines without the service do
  }
  return 0;
}

}  // namespace

State& state() {
  static State* s = new State;
  return *s;
}

bool has(const char* ability) { return state().without.count(ability) == 0; }

bool valid_device(int device) { return device >= 0 && static_cast<size_t>(device) < state().devices.size(); }

bool alive(Context* context) {
  for (auto& d : state().devices) {
    if (&d->context == context) return context->users > 0;
  }
  return false;
}

int current_context(Context** context) {
  if (t_current == nullptr) return kInvalidContext;
  if (!alive(t_current)) return kContextIsDestroyed;
  *context = t_current;
  return t_current->fault;
}

uint64_t thread_number() {
  static std::atomic<uint64_t> last{0};
  thread_local const uint64_t own = ++last;
  return own;
}

pid_t thread_id() { return static_cast<pid_t>(syscall(SYS_gettid)); }

API int cuInit(unsigned flags) {
  if (flags != 0) return kInvalidValue;
  State& s = state();
  Lock lock(s.mutex);
  if (s.initialized) return kSuccess;
  const std::vector<int> list = visible(machine_gpus());
  if (list.empty()) return kNoDevice;
  void* arena = mmap(nullptr, kArenaBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (arena == MAP_FAILED) return kOutOfMemory;
  s.arena = s.arena_next = reinterpret_cast<uint64_t>(arena);
  s.arena_end = s.arena + kArenaBytes;
  s.limit = machine_memory();
  for (const std::string& ability : machine_lacks()) s.without.insert(ability);
  for (int physical : list) {
    auto d = std::make_unique<Device>();
    d->physical = physical;
    d->context.device = static_cast<int>(s.devices.size());
    s.devices.push_back(std::move(d));
  }
  s.initialized = true;
  return kSuccess;
}

API int cuDriverGetVersion(int* version) {
  if (version == nullptr) return kInvalidValue;
  *version = static_cast<int>(number("CUDA_EMULATED_VERSION", 13000));
  return kSuccess;
}

API int cuDeviceGetCount(int* count) {
  ENTER();
  if (count == nullptr) return kInvalidValue;
  *count = static_cast<int>(state().devices.size());
  return kSuccess;
}

API int cuDeviceGet(DeviceId* device, int ordinal) {
  ENTER();
  if (device == nullptr) return kInvalidValue;
  if (!valid_device(ordinal)) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

API int cuDeviceGetName(char* name, int bytes, DeviceId device) {
  ENTER();
  if (name == nullptr || bytes <= 0) return kInvalidValue;
  if (!valid_device(device)) return kInvalidDevice;
  snprintf(name, static_cast<size_t>(bytes), "Emulated GPU");
  return kSuccess;
}

API int cuDeviceGetUuid_v2(Uuid* uuid, DeviceId device) {
  ENTER();
  if (uuid == nullptr) return kInvalidValue;
  if (!valid_device(device)) return kInvalidDevice;
  *uuid = uuid_of(state().devices[device]->physical);
  return kSuccess;
}

API int cuDeviceGetPCIBusId(char* id, int bytes, DeviceId device) {
  ENTER();
  if (id == nullptr || bytes <= 0) return kInvalidValue;
  if (!valid_device(device)) return kInvalidDevice;
  const int n = snprintf(id, static_cast<size_t>(bytes), "0000:%02X:00.0", kFirstBus + state().devices[device]->physical);
  return n < bytes ? kSuccess : kInvalidValue;
}

API int cuDeviceGetAttribute(int* value, int which, DeviceId device) {
  ENTER();
  if (value == nullptr || which < 1 || which > 145) return kInvalidValue;
  if (!valid_device(device)) return kInvalidDevice;
  *value = attribute(which) + (which == 33 ? state().devices[device]->physical : 0);
  return kSuccess;
}

API int cuDeviceCanAccessPeer(int* can, DeviceId device, DeviceId peer) {
  ENTER();
  if (can == nullptr) return kInvalidValue;
  if (!valid_device(device) || !valid_device(peer)) return kInvalidDevice;
  *can = device != peer && has("peer");
  return kSuccess;
}

API int cuDevicePrimaryCtxRetain(Context** context, DeviceId device) {
  ENTER();
  if (context == nullptr) return kInvalidValue;
  if (!valid_device(device)) return kInvalidDevice;
  Context& c = state().devices[device]->context;
  if (c.users++ == 0) {
    c.legacy = std::make_unique<Stream>();
    c.legacy->context = &c;
  }
  *context = &c;
  return kSuccess;
}

// The last release ends the context with all that is in it, once its work is done.
API int cuDevicePrimaryCtxRelease_v2(DeviceId device) {
  ENTER();
  if (!valid_device(device)) return kInvalidDevice;
  Context& c = state().devices[device]->context;
  if (c.users == 0) return kInvalidContext;
  if (--c.users > 0) return kSuccess;
  std::vector<Mark> work = {c.legacy->mark()};
  c.legacy->queue->close();
  for (Stream* s : c.streams) {
    leave_capture(s);
    work.push_back(s->mark());
    s->queue->close();
    delete s;
  }
  for (Event* e : c.events) delete e;
  for (Module* m : c.modules) delete m;
  c.streams.clear();
  c.of_threads.clear();
  c.events.clear();
  c.modules.clear();
  c.peers.clear();
  c.legacy.reset();
  lock.unlock();
  for (const Mark& m : work) m.wait();
  lock.lock();
  if (c.users == 0) {
    release_memory(&c);
    c.fault = 0;
  }
  return kSuccess;
}

API int cuDevicePrimaryCtxGetState(DeviceId device, unsigned* flags, int* active) {
  ENTER();
  if (!valid_device(device)) return kInvalidDevice;
  if (flags == nullptr || active == nullptr) return kInvalidValue;
  *flags = 0;
  *active = state().devices[device]->context.users > 0;
  return kSuccess;
}

API int cuCtxGetCurrent(Context** context) {
  ENTER();
  if (context == nullptr) return kInvalidValue;
  *context = t_current;
  return kSuccess;
}

API int cuCtxGetDevice(int* device) {
  ENTER_CONTEXT(current);
  if (device == nullptr) return kInvalidValue;
  *device = current->device;
  return kSuccess;
}

API int cuCtxPushCurrent_v2(Context* context) {
  ENTER();
  if (context == nullptr || !alive(context)) return kInvalidContext;
  t_below.push_back(t_current);
  t_current = context;
  return kSuccess;
}

API int cuCtxPopCurrent_v2(Context** context) {
  ENTER();
  if (t_current == nullptr) return kInvalidContext;
  if (context != nullptr) *context = t_current;
  t_current = t_below.empty() ? nullptr : t_below.back();
  if (!t_below.empty()) t_below.pop_back();
  return kSuccess;
}

API int cuCtxSetCurrent(Context* context) {
  ENTER();
  if (context != nullptr && !alive(context)) return kInvalidContext;
  t_current = context;
  return kSuccess;
}

API int cuCtxEnablePeerAccess(Context* peer, unsigned flags) {
  ENTER_CONTEXT(current);
  if (flags != 0) return kInvalidValue;
  if (peer == nullptr || !alive(peer)) return kInvalidContext;
  if (peer == current) return kInvalidDevice;
  if (!has("peer")) return kPeerAccessUnsupported;
  return current->peers.insert(peer).second ? kSuccess : kPeerAccessAlreadyEnabled;
}

API int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  ENTER_CONTEXT(current);
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return kSuccess;
}
