// Devices, errors, modules and launches.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mutex>
#include <string>
#include <vector>

#include "hip.h"
#include "machine.h"

namespace {

constexpr int kUnits = 304, kShared = 64 << 10, kWave = 64;

thread_local int t_current;
std::once_flag g_once;
std::vector<Context*>* g_contexts;
int g_failed;
// The registers that flush writes of adapters: stores into them stay.
alignas(64) volatile uint32_t g_flush[2];

const char* arch() {
  const char* name = getenv("HIP_EMULATED_ARCH");
  return name != nullptr && *name != 0 ? name : "gfx942:sramecc+:xnack-";
}

void start() {
  int count = 0;
  g_contexts = new std::vector<Context*>;
  // HIP_VISIBLE_DEVICES comes first, and where it is not set, CUDA_VISIBLE_DEVICES, which is the core's.
  if (const char* list = getenv("HIP_VISIBLE_DEVICES"); list != nullptr && *list != 0) setenv("CUDA_VISIBLE_DEVICES", list, 1);
  if ((g_failed = cuInit(0)) != 0 || (g_failed = cuDeviceGetCount(&count)) != 0) return;
  for (int i = 0; i < count && g_failed == 0; ++i) {
    Context* c = nullptr;
    g_failed = cuDevicePrimaryCtxRetain(&c, i);
    g_contexts->push_back(c);
  }
  if (g_failed == 0) g_failed = machine_connect(arch());
}

int ready() {
  std::call_once(g_once, start);
  return g_failed;
}

bool is_older() { return strncmp(arch(), "gfx90a", 6) == 0; }

// Fewer units mean fewer blocks of kernels, which take turns where their code is interpreted.
int units() {
  const char* text = getenv("HIP_EMULATED_UNITS");
  const int n = text != nullptr ? atoi(text) : 0;
  return n > 0 ? n : is_older() ? 110 : kUnits;
}

int attribute(int which) {
  switch (which) {
    case 3: case 10: case 10011: case 10016: return 1;  // maps host memory, cooperative launches, large bar, fine grain
    case 23: return 9;
    case 61: return is_older() ? 0 : 4;
    case 56: return 1024;
    case 63: return units();
    case 74: return kShared;
    case 87: return kWave;
    case 89: return 1;
    case 10013: return 1;
    case 10017: return 100000;
  }
  return -1;
}

}  // namespace

int hip_devices() { return ready() == 0 ? static_cast<int>(g_contexts->size()) : 0; }

int& hip_current() { return t_current; }

int hip_enter() {
  if (int bad = ready()) return bad;
  return cuCtxSetCurrent((*g_contexts)[static_cast<size_t>(t_current)]);
}

int hip_version() {
  const char* text = getenv("HIP_EMULATED_VERSION");
  int major = 6, minor = 4;
  if (text != nullptr && *text != 0) sscanf(text, "%d.%d", &major, &minor);
  return major * 10000000 + minor * 100000 + 43;
}

bool hip_has(const char* ability) {
  const char* list = getenv("HIP_EMULATED_WITHOUT");
  return list == nullptr || ("," + std::string(list) + ",").find("," + std::string(ability) + ",") == std::string::npos;
}

HIP int hipInit(unsigned flags) { return flags != 0 ? kInvalidValue : ready(); }

HIP int hipRuntimeGetVersion(int* version) {
  if (version == nullptr) return kInvalidValue;
  *version = hip_version();
  return kSuccess;
}

HIP int hipGetDeviceCount(int* count) {
  if (count == nullptr) return kInvalidValue;
  const int bad = ready();
  *count = hip_devices();
  return bad;
}

HIP int hipGetDevice(int* device) {
  if (device == nullptr) return kInvalidValue;
  *device = t_current;
  return kSuccess;
}

HIP int hipSetDevice(int device) {
  if (device < 0 || device >= hip_devices()) return kInvalidDevice;
  t_current = device;
  return kSuccess;
}

HIP int hipDeviceGetName(char* name, int bytes, int device) {
  if (name == nullptr || bytes <= 0 || device < 0 || device >= hip_devices()) return kInvalidDevice;
  snprintf(name, static_cast<size_t>(bytes), "Emulated Instinct");
  return kSuccess;
}

// Digits as text, and no number.
HIP int hipDeviceGetUuid(Uuid* uuid, int device) {
  if (device < 0 || device >= hip_devices()) return kInvalidDevice;
  Uuid core;
  if (int bad = cuDeviceGetUuid_v2(&core, device)) return bad;
  static const char digits[] = "0123456789abcdef";
  for (int i = 0; i < 8; ++i) {
    uuid->bytes[2 * i] = static_cast<unsigned char>(digits[core.bytes[8 + i] >> 4]);
    uuid->bytes[2 * i + 1] = static_cast<unsigned char>(digits[core.bytes[8 + i] & 15]);
  }
  return kSuccess;
}

HIP int hipDeviceGetPCIBusId(char* id, int bytes, int device) {
  if (device < 0 || device >= hip_devices()) return kInvalidDevice;
  return cuDeviceGetPCIBusId(id, bytes, device);
}

// The register's address is wider than all other values.
HIP int hipDeviceGetAttribute(int* value, int which, int device) {
  if (value == nullptr) return kInvalidValue;
  if (device < 0 || device >= hip_devices()) return kInvalidDevice;
  if (which == 10005 || which == 10006) {
    volatile uint32_t* address = hip_has("flush") ? &g_flush[which - 10005] : nullptr;
    memcpy(value, &address, sizeof address);
    return kSuccess;
  }
  const int v = attribute(which);
  if (v < 0) return kInvalidValue;
  *value = v;
  return kSuccess;
}

HIP int hipDeviceCanAccessPeer(int* can, int device, int peer) {
  if (hip_devices() == 0) return kNoDevice;
  return cuDeviceCanAccessPeer(can, device, peer);
}

HIP int hipDeviceEnablePeerAccess(int peer, unsigned flags) {
  HIP_ENTER();
  if (peer < 0 || peer >= hip_devices()) return kInvalidDevice;
  return cuCtxEnablePeerAccess((*g_contexts)[static_cast<size_t>(peer)], flags);
}

HIP int hipDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 1;
  if (greatest != nullptr) *greatest = -1;
  return kSuccess;
}

// Two layouts under two names: the older one has 792 bytes, the later one 1472, and a caller that takes one for the other has its
// memory overwritten.
HIP int hipGetDeviceProperties(void* properties, int device) {
  if (properties == nullptr || device < 0 || device >= hip_devices()) return kInvalidDevice;
  memset(properties, 0, 792);
  snprintf(static_cast<char*>(properties), 256, "Emulated Instinct");
  snprintf(static_cast<char*>(properties) + 396, 256, "%s", arch());
  return kSuccess;
}

HIP int hipGetDevicePropertiesR0600(void* properties, int device) {
  if (properties == nullptr || device < 0 || device >= hip_devices()) return kInvalidDevice;
  memset(properties, 0x5a, 1472);
  snprintf(static_cast<char*>(properties), 256, "Emulated Instinct");
  snprintf(static_cast<char*>(properties) + 1160, 256, "%s", arch());
  return kSuccess;
}

HIP int hipModuleLoadData(Module** module, const void* image) {
  HIP_ENTER();
  if (image == nullptr) return kInvalidValue;
  const auto* header = static_cast<const unsigned char*>(image);
  if (memcmp(header, "\177ELF", 4) != 0) return kInvalidImage;
  if (header[18] != 224) return kNoBinaryForGpu;
  // The processor that a code object is for: the lowest byte of its flags.
  if (header[48] != (is_older() ? 0x3f : 0x4c)) return kNoBinaryForGpu;
  return cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}

HIP int hipModuleUnload(Module* module) {
  HIP_ENTER();
  return cuModuleUnload(module);
}

HIP int hipModuleGetFunction(Function** function, Module* module, const char* name) {
  HIP_ENTER();
  if (int bad = cuModuleGetFunction(function, module, name)) return bad;
  return cuFuncSetAttribute(*function, 8, kShared);
}

HIP int hipFuncGetAttribute(int* value, int which, Function* function) {
  HIP_ENTER();
  return cuFuncGetAttribute(value, which, function);
}

HIP int hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function* function, int block, size_t shared) {
  HIP_ENTER();
  int threads = 0;
  if (blocks == nullptr || block <= 0 || block > 1024) return kInvalidValue;
  if (int bad = cuFuncGetAttribute(&threads, 0, function)) return bad;
  *blocks = block > threads || shared > kShared ? 0 : 2;
  return kSuccess;
}

// The grid is in blocks. A list of one block of parameters has exactly this order, and HIP's end.
HIP int hipModuleLaunchKernel(Function* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                              unsigned block_z, unsigned shared, Stream* stream, void** parameters, void** extra) {
  HIP_ENTER();
  void* core[5] = {};
  if (extra != nullptr) {
    const auto is = [extra](int at, uintptr_t what) { return reinterpret_cast<uintptr_t>(extra[at]) == what; };
    if (parameters != nullptr || !is(0, 1) || !is(2, 2) || !is(4, 3)) return kInvalidValue;
    memcpy(core, extra, 4 * sizeof *core);
  }
  if (shared > kShared) return kInvalidValue;
  const LaunchConfig config = {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, nullptr, 0};
  return cuLaunchKernelEx(&config, function, parameters, extra != nullptr ? core : nullptr);
}

HIP const char* hipGetErrorName(int code) {
  switch (code) {
    case 0: return "hipSuccess";
    case 1: return "hipErrorInvalidValue";
    case 2: return "hipErrorOutOfMemory";
    case 100: return "hipErrorNoDevice";
    case 101: return "hipErrorInvalidDevice";
    case 200: return "hipErrorInvalidImage";
    case 201: return "hipErrorInvalidContext";
    case 209: return "hipErrorNoBinaryForGpu";
    case 217: return "hipErrorPeerAccessUnsupported";
    case 400: return "hipErrorInvalidHandle";
    case 401: return "hipErrorIllegalState";
    case 500: return "hipErrorNotFound";
    case 600: return "hipErrorNotReady";
    case 700: return "hipErrorIllegalAddress";
    case 704: return "hipErrorPeerAccessAlreadyEnabled";
    case 719: return "hipErrorLaunchFailure";
    case 801: return "hipErrorNotSupported";
  }
  return code >= 900 && code <= 907 ? "hipErrorStreamCapture" : "hipErrorUnknown";
}

HIP const char* hipGetErrorString(int code) { return code == 0 ? "no error" : "emulated: see the name"; }
