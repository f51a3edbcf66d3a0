// libnvidia-ml.so.1 of the emulated machine: the functions with which package topo
// finds GPUs, and no others. All GPUs hang on one NVLink switch, unless the machine
// is without "nvlink" or "peer".
#include <stdio.h>
#include <string.h>

#include <atomic>

#include "machine.h"

namespace {

enum Return { kOk = 0, kUninitialized = 1, kInvalidArgument = 2, kUnsupported = 3, kNoGpu = 6, kTooSmall = 7 };

struct Pci {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char text[32];
};
static_assert(sizeof(Pci) == 68, "layout of nvmlPciInfo_t");

struct Memory {
  unsigned long long total, free, used;
};

constexpr unsigned kLinks = 18, kLinkVersion = 4, kSwitch = 2;
std::atomic<int> g_started;  // by how many of the process: the last that stops it ends it

// Handles are numbers from 1.
typedef uintptr_t Handle;

bool has(const char* ability) {
  for (const std::string& lacking : machine_lacks()) {
    if (lacking == ability) return false;
  }
  return true;
}

int check(Handle h) {
  if (g_started <= 0) return kUninitialized;
  return h >= 1 && h <= static_cast<Handle>(machine_gpus()) ? kOk : kInvalidArgument;
}

int check_link(Handle h, unsigned link) {
  if (int bad = check(h)) return bad;
  if (!has("nvlink") || !has("peer")) return kUnsupported;
  return link < kLinks ? kOk : kInvalidArgument;
}

int put(const std::string& text, char* to, unsigned bytes) {
  if (to == nullptr) return kInvalidArgument;
  if (text.size() >= bytes) return kTooSmall;
  memcpy(to, text.c_str(), text.size() + 1);
  return kOk;
}

}  // namespace

API int nvmlInit_v2() {
  if (machine_gpus() == 0) return kNoGpu;
  ++g_started;
  return kOk;
}

API int nvmlShutdown() {
  if (g_started.fetch_sub(1) <= 0) {
    ++g_started;
    return kUninitialized;
  }
  return kOk;
}

API const char* nvmlErrorString(int code) {
  switch (code) {
    case kOk: return "Success";
    case kUninitialized: return "Uninitialized";
    case kInvalidArgument: return "Invalid Argument";
    case kUnsupported: return "Not Supported";
    case kNoGpu: return "Not Found";
    case kTooSmall: return "Insufficient Size";
  }
  return "Unknown Error";
}

API int nvmlDeviceGetCount_v2(unsigned* count) {
  if (g_started <= 0) return kUninitialized;
  *count = static_cast<unsigned>(machine_gpus());
  return kOk;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle* device) {
  *device = index + 1;
  return check(*device);
}

API int nvmlDeviceGetPciInfo_v3(Handle device, Pci* pci) {
  if (int bad = check(device)) return bad;
  *pci = Pci{};
  pci->bus = kFirstBus + static_cast<unsigned>(device) - 1;
  snprintf(pci->legacy, sizeof pci->legacy, "0000:%02X:00.0", pci->bus);
  snprintf(pci->text, sizeof pci->text, "00000000:%02X:00.0", pci->bus);
  return kOk;
}

API int nvmlDeviceGetName(Handle device, char* name, unsigned bytes) {
  if (int bad = check(device)) return bad;
  return put("Emulated GPU", name, bytes);
}

API int nvmlDeviceGetUUID(Handle device, char* uuid, unsigned bytes) {
  if (int bad = check(device)) return bad;
  return put(uuid_text(static_cast<int>(device) - 1), uuid, bytes);
}

API int nvmlDeviceGetCudaComputeCapability(Handle device, int* major, int* minor) {
  if (int bad = check(device)) return bad;
  *major = 9;
  *minor = 0;
  return kOk;
}

API int nvmlDeviceGetMemoryInfo(Handle device, Memory* memory) {
  if (int bad = check(device)) return bad;
  *memory = Memory{machine_memory(), machine_memory(), 0};
  return kOk;
}

API int nvmlDeviceGetCpuAffinity(Handle device, unsigned, unsigned long*) {
  const int bad = check(device);
  return bad != kOk ? bad : kUnsupported;
}

API int nvmlDeviceGetMigMode(Handle device, unsigned*, unsigned*) {
  const int bad = check(device);
  return bad != kOk ? bad : kUnsupported;
}

API int nvmlDeviceGetNvLinkState(Handle device, unsigned link, int* active) {
  if (int bad = check_link(device, link)) return bad;
  *active = 1;
  return kOk;
}

API int nvmlDeviceGetNvLinkVersion(Handle device, unsigned link, unsigned* version) {
  if (int bad = check_link(device, link)) return bad;
  *version = kLinkVersion;
  return kOk;
}

API int nvmlDeviceGetNvLinkRemoteDeviceType(Handle device, unsigned link, int* kind) {
  if (int bad = check_link(device, link)) return bad;
  *kind = kSwitch;
  return kOk;
}

API int nvmlDeviceGetNvLinkRemotePciInfo_v2(Handle device, unsigned link, Pci*) {
  const int bad = check_link(device, link);
  return bad != kOk ? bad : kUnsupported;
}

// Status 5: the driver does not allow it.
API int nvmlDeviceGetP2PStatus(Handle device, Handle peer, int, int* status) {
  if (int bad = check(device)) return bad;
  if (int bad = check(peer)) return bad;
  *status = has("peer") ? 0 : 5;
  return kOk;
}
