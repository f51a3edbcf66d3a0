// libamdhip64 without a GPU. Its functions are HIP's, with the differences to CUDA's that programs stumble over; what they do is
// done by the emulated driver of package cuda/emulated, which is linked into this library and not visible in it.
#ifndef EMULATED_HIP_H_
#define EMULATED_HIP_H_

#include "api.h"

#define HIP extern "C" __attribute__((visibility("default")))

struct Context;
struct Event;
struct Function;
struct GraphExec;
struct GraphHandle;
struct Module;

extern "C" {
int cuInit(unsigned);
int cuDeviceGetCount(int*);
int cuDeviceGetUuid_v2(Uuid*, DeviceId);
int cuDeviceGetPCIBusId(char*, int, DeviceId);
int cuDeviceCanAccessPeer(int*, DeviceId, DeviceId);
int cuDevicePrimaryCtxRetain(Context**, DeviceId);
int cuCtxSetCurrent(Context*);
int cuCtxSynchronize();
int cuCtxEnablePeerAccess(Context*, unsigned);
int cuMemGetInfo_v2(size_t*, size_t*);
int cuMemAlloc_v2(DevicePtr*, size_t);
int cuMemFree_v2(DevicePtr);
int cuMemHostAlloc(void**, size_t, unsigned);
int cuMemFreeHost(void*);
int cuMemHostRegister_v2(void*, size_t, unsigned);
int cuMemHostUnregister(void*);
int cuMemHostGetDevicePointer_v2(DevicePtr*, void*, unsigned);
int cuPointerGetAttribute(void*, int, DevicePtr);
int cuIpcGetMemHandle(IpcHandle*, DevicePtr);
int cuIpcOpenMemHandle_v2(DevicePtr*, IpcHandle, unsigned);
int cuIpcCloseMemHandle(DevicePtr);
int cuMemGetAllocationGranularity(size_t*, const AllocationProp*, int);
int cuMemCreate(AllocationHandle*, size_t, const AllocationProp*, unsigned long long);
int cuMemRelease(AllocationHandle);
int cuMemAddressReserve(DevicePtr*, size_t, size_t, DevicePtr, unsigned long long);
int cuMemAddressFree(DevicePtr, size_t);
int cuMemMap(DevicePtr, size_t, size_t, AllocationHandle, unsigned long long);
int cuMemUnmap(DevicePtr, size_t);
int cuMemSetAccess(DevicePtr, size_t, const AccessDesc*, size_t);
int cuMemExportToShareableHandle(void*, AllocationHandle, int, unsigned long long);
int cuMemImportFromShareableHandle(AllocationHandle*, void*, int);
int cuMemGetHandleForAddressRange(void*, DevicePtr, size_t, int, unsigned long long);
int cuStreamCreateWithPriority(Stream**, unsigned, int);
int cuStreamDestroy_v2(Stream*);
int cuStreamQuery(Stream*);
int cuStreamSynchronize(Stream*);
int cuStreamWaitEvent(Stream*, Event*, unsigned);
int cuMemcpyAsync(DevicePtr, DevicePtr, size_t, Stream*);
int cuMemcpyHtoDAsync_v2(DevicePtr, const void*, size_t, Stream*);
int cuMemcpyDtoHAsync_v2(void*, DevicePtr, size_t, Stream*);
int cuMemsetD8Async(DevicePtr, unsigned char, size_t, Stream*);
int cuEventCreate(Event**, unsigned);
int cuEventDestroy_v2(Event*);
int cuEventRecord(Event*, Stream*);
int cuEventRecordWithFlags(Event*, Stream*, unsigned);
int cuEventQuery(Event*);
int cuEventSynchronize(Event*);
int cuEventElapsedTime(float*, Event*, Event*);
int cuThreadExchangeStreamCaptureMode(int*);
int cuStreamIsCapturing(Stream*, int*);
int cuStreamBeginCapture_v2(Stream*, int);
int cuStreamEndCapture(Stream*, GraphHandle**);
int cuGraphGetNodes(GraphHandle*, void**, size_t*);
int cuGraphInstantiateWithFlags(GraphExec**, GraphHandle*, unsigned long long);
int cuGraphLaunch(GraphExec*, Stream*);
int cuGraphExecDestroy(GraphExec*);
int cuGraphDestroy(GraphHandle*);
int cuModuleLoadDataEx(Module**, const void*, unsigned, int*, void**);
int cuModuleUnload(Module*);
int cuModuleGetFunction(Function**, Module*, const char*);
int cuFuncGetAttribute(int*, int, Function*);
int cuFuncSetAttribute(Function*, int, int);
int cuLaunchKernelEx(const LaunchConfig*, Function*, void**, void**);
}

// The number of devices, and the one that is current on this thread.
int hip_devices();
int& hip_current();
// Makes the core's context of the current device that of the thread. 0, or an error.
int hip_enter();
// 10000000 * major + 100000 * minor, as HIP_EMULATED_VERSION says: "6.4" unless it is set.
int hip_version();
// Whether HIP_EMULATED_WITHOUT does not name an ability: uncached, dmabuf, flush.
bool hip_has(const char* ability);

#define HIP_ENTER() \
  if (int bad = hip_enter()) return bad

#endif  // EMULATED_HIP_H_
