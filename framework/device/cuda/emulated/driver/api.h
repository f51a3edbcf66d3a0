// The part of the driver's interface that this library answers, declared anew: the
// code under test has its own declarations, and a difference between the two is
// meant to show.
#ifndef EMULATED_API_H_
#define EMULATED_API_H_

#include <stddef.h>
#include <stdint.h>

#define API extern "C" __attribute__((visibility("default")))

enum Result {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kMulticastFull = 47,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNoBinaryForGpu = 209,
  kPeerAccessUnsupported = 217,
  kInvalidPtx = 218,
  kInvalidHandle = 400,
  kIllegalState = 401,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchFailed = 719,
  kPeerAccessAlreadyEnabled = 704,
  kPeerAccessNotEnabled = 705,
  kContextIsDestroyed = 709,
  kHostMemoryAlreadyRegistered = 712,
  kHostMemoryNotRegistered = 713,
  kCooperativeLaunchTooLarge = 720,
  kInvalidClusterSize = 912,
  kNotPermitted = 800,
  kNotSupported = 801,
  kSystemNotReady = 802,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kCaptureMerge = 902,
  kCaptureUnmatched = 903,
  kCaptureUnjoined = 904,
  kCaptureIsolation = 905,
  kCaptureImplicit = 906,
  kCapturedEvent = 907,
  kCaptureWrongThread = 908,
  kUnknown = 999
};

typedef int DeviceId;
typedef unsigned long long DevicePtr;
typedef unsigned long long AllocationHandle;

struct Uuid {
  unsigned char bytes[16];
};

struct IpcHandle {
  unsigned char bytes[64];
};
static_assert(sizeof(IpcHandle) == 64, "a handle that travels");

struct Location {
  int type;  // 1: device
  int id;
};

struct AllocationProp {
  int type;          // 1: pinned
  int handle_types;  // 1: descriptor, 8: fabric
  Location location;
  void* windows;
  struct {
    unsigned char compression;
    unsigned char gpu_direct_rdma;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
};
static_assert(sizeof(AllocationProp) == 32, "layout of CUmemAllocationProp");

struct MulticastProp {
  unsigned devices;
  size_t bytes;
  unsigned long long handle_types;
  unsigned long long flags;
};
static_assert(sizeof(MulticastProp) == 32, "layout of CUmulticastObjectProp");

struct AccessDesc {
  Location location;
  int flags;  // 0: none, 1: read, 3: read and write
};
static_assert(sizeof(AccessDesc) == 12, "layout of CUmemAccessDesc");

struct LaunchAttribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    int number;
    struct { unsigned x, y, z; } cluster;
  } value;
};
static_assert(sizeof(LaunchAttribute) == 72, "layout of CUlaunchAttribute");

struct Stream;
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared;
  Stream* stream;
  LaunchAttribute* attributes;
  unsigned count;
};
static_assert(sizeof(LaunchConfig) == 56, "layout of CUlaunchConfig");

constexpr int kHandleDescriptor = 1, kHandleFabric = 8;
constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventDisableTiming = 2;
constexpr unsigned kEventRecordExternal = 1;
enum CaptureMode { kModeGlobal = 0, kModeThreadLocal = 1, kModeRelaxed = 2 };
enum CaptureStatus { kStatusNone = 0, kStatusActive = 1, kStatusInvalidated = 2 };

#endif  // EMULATED_API_H_
