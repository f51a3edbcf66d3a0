// HIP's types and numbers, as far as this package uses them. They are part of the binary interface of libamdhip64 5.7 to 7, so
// nothing of the vendor's has to be installed to build. Differences between these versions are settled at run time: see memory.c and share.c.
#ifndef MSCCLPP_HIP_TYPES_H_
#define MSCCLPP_HIP_TYPES_H_

#include <stddef.h>
#include <stdint.h>

typedef int hipError_t;
typedef void* hipDeviceptr_t;
typedef struct ihipModule_t* hipModule_t;
typedef struct ihipModuleSymbol_t* hipFunction_t;
typedef struct ihipStream_t* hipStream_t;
typedef struct ihipEvent_t* hipEvent_t;
typedef struct ihipGraph* hipGraph_t;
typedef struct hipGraphExec* hipGraphExec_t;
typedef struct ihipMemGenericAllocationHandle* hipMemGenericAllocationHandle_t;

typedef struct {
  char bytes[16];  // digits of a hexadecimal number, as text
} hipUUID;

typedef struct {
  char reserved[64];
} hipIpcMemHandle_t;

typedef struct {
  int type;
  int id;
} hipMemLocation;

// As from 5.7 on. Before, requestedHandleType came behind the location.
typedef struct {
  int type;
  int requestedHandleType;
  hipMemLocation location;
  void* win32HandleMetaData;
  struct {
    unsigned char compressionType;
    unsigned char gpuDirectRDMACapable;
    unsigned short usage;
  } allocFlags;
} hipMemAllocationProp;

typedef struct {
  hipMemLocation location;
  int flags;
} hipMemAccessDesc;

_Static_assert(sizeof(hipMemAllocationProp) == 32 && offsetof(hipMemAllocationProp, allocFlags) == 24, "hipMemAllocationProp");
_Static_assert(sizeof(hipMemAccessDesc) == 12, "hipMemAccessDesc");

// Results that are not simply passed on.
enum {
  hipSuccess = 0,
  hipErrorInvalidValue = 1,
  hipErrorOutOfMemory = 2,
  hipErrorNotInitialized = 3,
  hipErrorDeinitialized = 4,
  hipErrorInsufficientDriver = 35,
  hipErrorNoDevice = 100,
  hipErrorInvalidDevice = 101,
  hipErrorInvalidImage = 200,
  hipErrorInvalidContext = 201,  // of hipIpcOpenMemHandle: the handle is of this process
  hipErrorNoBinaryForGpu = 209,
  hipErrorECCNotCorrectable = 214,
  hipErrorPeerAccessUnsupported = 217,
  hipErrorInvalidKernelFile = 218,
  hipErrorOperatingSystem = 304,
  hipErrorNotFound = 500,
  hipErrorNotReady = 600,
  hipErrorIllegalAddress = 700,
  hipErrorLaunchTimeOut = 702,
  hipErrorPeerAccessAlreadyEnabled = 704,
  hipErrorContextIsDestroyed = 709,
  hipErrorAssert = 710,
  hipErrorLaunchFailure = 719,
  hipErrorNotSupported = 801,
  hipErrorStreamCaptureUnsupported = 900,
  hipErrorUnknown = 999,
  hipErrorRuntimeMemory = 1052,
  hipErrorRuntimeOther = 1053
};

// Attributes of devices.
enum {
  hipDeviceAttributeComputeCapabilityMajor = 23,
  hipDeviceAttributeComputeCapabilityMinor = 61,
  hipDeviceAttributeMultiprocessorCount = 63,
  hipDeviceAttributeMaxSharedMemoryPerBlock = 74,
  hipDeviceAttributeWarpSize = 87,
  hipDeviceAttributeVirtualMemoryManagementSupported = 89,
  hipDeviceAttributeHdpMemFlushCntl = 10005  // an address, 8 bytes, where all others are an int
};

// Attributes of addresses.
enum {
  HIP_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
  HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
  HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
  HIP_POINTER_ATTRIBUTE_RANGE_SIZE = 12
};

// Memory.
enum {
  hipDeviceMallocDefault = 0,
  hipDeviceMallocFinegrained = 1,
  // 2 is hipMallocSignalMemory: 8 bytes of the host.
  hipDeviceMallocUncached = 3,
  hipHostMallocPortable = 1,
  hipHostMallocMapped = 2,
  hipHostMallocCoherent = 0x40000000,
  hipHostRegisterPortable = 1,
  hipHostRegisterMapped = 2,
  hipMemAllocationTypePinned = 1,
  hipMemAllocationTypeUncached = 0x40000000,  // from 7 on
  hipMemLocationTypeDevice = 1,
  hipMemAccessFlagsProtReadWrite = 3,
  hipMemHandleTypePosixFileDescriptor = 1,
  hipMemAllocationGranularityMinimum = 0,
  hipMemRangeHandleTypeDmaBufFd = 1
};

// Streams, events, captures, kernels.
enum {
  hipMemcpyDefault = 4,
  hipStreamNonBlocking = 1,
  hipEventDisableTiming = 2,
  hipEventRecordExternal = 1,
  hipStreamCaptureModeGlobal = 0,
  hipStreamCaptureModeRelaxed = 2,
  hipStreamCaptureStatusNone = 0,
  HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
  HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
  HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
  HIP_FUNC_ATTRIBUTE_NUM_REGS = 4
};

// The ends of a list of launch parameters. CUDA's is 0, and HIP refuses a list that ends so.
#define HIP_LAUNCH_PARAM_BUFFER_POINTER ((void*)1)
#define HIP_LAUNCH_PARAM_BUFFER_SIZE ((void*)2)
#define HIP_LAUNCH_PARAM_END ((void*)3)

#endif
