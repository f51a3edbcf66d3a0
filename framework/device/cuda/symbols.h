// The functions of the driver library that this package calls: all of them, and
// no others. Each is looked up by exactly this name, so that a version of a
// function is a choice made here. Define CUDA_SYMBOL(name, arguments) before the
// include; every function returns CUresult. Types are in types.h.
//
// All are in drivers for CUDA 11.8 (520) and later, but for those of CUDA_LATER_SYMBOL,
// which are NULL where the driver has none.

// Library and devices.
CUDA_SYMBOL(cuInit, (unsigned flags))
CUDA_SYMBOL(cuDriverGetVersion, (int* version))
CUDA_SYMBOL(cuGetErrorName, (CUresult error, const char** name))
CUDA_SYMBOL(cuGetErrorString, (CUresult error, const char** text))
CUDA_SYMBOL(cuDeviceGetCount, (int* count))
CUDA_SYMBOL(cuDeviceGet, (CUdevice* device, int ordinal))
CUDA_SYMBOL(cuDeviceGetName, (char* name, int bytes, CUdevice device))
CUDA_SYMBOL(cuDeviceGetUuid_v2, (CUuuid* uuid, CUdevice device))
CUDA_SYMBOL(cuDeviceGetPCIBusId, (char* id, int bytes, CUdevice device))
CUDA_SYMBOL(cuDeviceGetAttribute, (int* value, int attribute, CUdevice device))
CUDA_SYMBOL(cuDeviceCanAccessPeer, (int* can, CUdevice device, CUdevice peer))

// Contexts.
CUDA_SYMBOL(cuDevicePrimaryCtxRetain, (CUcontext* context, CUdevice device))
CUDA_SYMBOL(cuDevicePrimaryCtxRelease_v2, (CUdevice device))
CUDA_SYMBOL(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned* flags, int* active))
CUDA_SYMBOL(cuCtxGetCurrent, (CUcontext* context))
CUDA_SYMBOL(cuCtxSetCurrent, (CUcontext context))
CUDA_SYMBOL(cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags))
CUDA_SYMBOL(cuCtxGetStreamPriorityRange, (int* least, int* greatest))
CUDA_LATER_SYMBOL(cuStreamGetId, (CUstream stream, unsigned long long* id))  // 12.0
CUDA_LATER_SYMBOL(cuCtxRecordEvent, (CUcontext context, CUevent event))  // 12.5
CUDA_LATER_SYMBOL(cuStreamGetGreenCtx, (CUstream stream, CUgreenCtx* context))  // 12.4
CUDA_LATER_SYMBOL(cuGreenCtxGetDevResource, (CUgreenCtx context, CUdevResource* resource, int type))

// Memory.
CUDA_SYMBOL(cuMemGetInfo_v2, (size_t* free, size_t* total))
CUDA_SYMBOL(cuMemAlloc_v2, (CUdeviceptr* address, size_t bytes))
CUDA_SYMBOL(cuMemFree_v2, (CUdeviceptr address))
CUDA_SYMBOL(cuMemHostAlloc, (void** address, size_t bytes, unsigned flags))
CUDA_SYMBOL(cuMemFreeHost, (void* address))
CUDA_SYMBOL(cuMemHostRegister_v2, (void* address, size_t bytes, unsigned flags))
CUDA_SYMBOL(cuMemHostUnregister, (void* address))
CUDA_SYMBOL(cuMemHostGetDevicePointer_v2, (CUdeviceptr* address, void* host, unsigned flags))
CUDA_SYMBOL(cuPointerGetAttribute, (void* value, int attribute, CUdeviceptr address))

// Memory as handles, which other processes can import.
CUDA_SYMBOL(cuMemGetAllocationGranularity, (size_t* bytes, const CUmemAllocationProp* properties, int option))
CUDA_SYMBOL(cuMemCreate, (CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties, unsigned long long flags))
CUDA_SYMBOL(cuMemRelease, (CUmemGenericAllocationHandle handle))
CUDA_SYMBOL(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle* handle, void* address))
CUDA_SYMBOL(cuMemAddressReserve, (CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags))
CUDA_SYMBOL(cuMemAddressFree, (CUdeviceptr address, size_t bytes))
CUDA_SYMBOL(cuMemMap, (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags))
CUDA_SYMBOL(cuMemUnmap, (CUdeviceptr address, size_t bytes))
CUDA_SYMBOL(cuMemSetAccess, (CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access, size_t count))
CUDA_SYMBOL(cuMemExportToShareableHandle, (void* shareable, CUmemGenericAllocationHandle handle, int type, unsigned long long flags))
CUDA_SYMBOL(cuMemImportFromShareableHandle, (CUmemGenericAllocationHandle* handle, void* shareable, int type))
// Multicast objects, since 12.1.
CUDA_LATER_SYMBOL(cuMulticastCreate, (CUmemGenericAllocationHandle* handle, const CUmulticastObjectProp* properties))
CUDA_LATER_SYMBOL(cuMulticastAddDevice, (CUmemGenericAllocationHandle handle, CUdevice device))
CUDA_LATER_SYMBOL(cuMulticastBindMem, (CUmemGenericAllocationHandle handle, size_t offset, CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes, unsigned long long flags))
CUDA_LATER_SYMBOL(cuMulticastBindAddr, (CUmemGenericAllocationHandle handle, size_t offset, CUdeviceptr address, size_t bytes, unsigned long long flags))
CUDA_LATER_SYMBOL(cuMulticastUnbind, (CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, size_t bytes))
CUDA_LATER_SYMBOL(cuMulticastGetGranularity, (size_t* bytes, const CUmulticastObjectProp* properties, int option))
CUDA_SYMBOL(cuFlushGPUDirectRDMAWrites, (int target, int scope))
CUDA_SYMBOL(cuMemGetHandleForAddressRange, (void* handle, CUdeviceptr address, size_t bytes, int type, unsigned long long flags))
CUDA_SYMBOL(cuIpcGetMemHandle, (CUipcMemHandle* handle, CUdeviceptr address))
CUDA_SYMBOL(cuIpcOpenMemHandle_v2, (CUdeviceptr* address, CUipcMemHandle handle, unsigned flags))
CUDA_SYMBOL(cuIpcCloseMemHandle, (CUdeviceptr address))

// Streams, and what is enqueued on them.
CUDA_SYMBOL(cuStreamCreateWithPriority, (CUstream* stream, unsigned flags, int priority))
CUDA_SYMBOL(cuStreamDestroy_v2, (CUstream stream))
CUDA_SYMBOL(cuStreamQuery, (CUstream stream))
CUDA_SYMBOL(cuStreamSynchronize, (CUstream stream))
CUDA_SYMBOL(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))
CUDA_SYMBOL(cuStreamWriteValue64_v2, (CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags))
CUDA_SYMBOL(cuStreamWaitValue64_v2, (CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags))
CUDA_SYMBOL(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))
CUDA_SYMBOL(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void* from, size_t bytes, CUstream stream))
CUDA_SYMBOL(cuMemcpyDtoHAsync_v2, (void* to, CUdeviceptr from, size_t bytes, CUstream stream))
CUDA_SYMBOL(cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t count, CUstream stream))

// Events.
CUDA_SYMBOL(cuEventCreate, (CUevent* event, unsigned flags))
CUDA_SYMBOL(cuEventDestroy_v2, (CUevent event))
CUDA_SYMBOL(cuEventRecord, (CUevent event, CUstream stream))
CUDA_SYMBOL(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags))
CUDA_SYMBOL(cuEventQuery, (CUevent event))
CUDA_SYMBOL(cuEventSynchronize, (CUevent event))
CUDA_SYMBOL(cuEventElapsedTime, (float* milliseconds, CUevent start, CUevent end))

// Graphs.
CUDA_SYMBOL(cuThreadExchangeStreamCaptureMode, (int* mode))
CUDA_SYMBOL(cuStreamIsCapturing, (CUstream stream, int* status))
CUDA_SYMBOL(cuStreamBeginCapture_v2, (CUstream stream, int mode))
CUDA_SYMBOL(cuStreamEndCapture, (CUstream stream, CUgraph* graph))
CUDA_SYMBOL(cuGraphGetNodes, (CUgraph graph, void** nodes, size_t* count))
CUDA_SYMBOL(cuGraphInstantiateWithFlags, (CUgraphExec* exec, CUgraph graph, unsigned long long flags))
CUDA_SYMBOL(cuGraphLaunch, (CUgraphExec exec, CUstream stream))
CUDA_SYMBOL(cuGraphExecDestroy, (CUgraphExec exec))
CUDA_SYMBOL(cuGraphDestroy, (CUgraph graph))

// Modules and kernels.
CUDA_SYMBOL(cuModuleLoadDataEx, (CUmodule* module, const void* image, unsigned count, int* options, void** values))
CUDA_SYMBOL(cuModuleUnload, (CUmodule module))
CUDA_SYMBOL(cuModuleGetFunction, (CUfunction* function, CUmodule module, const char* name))
CUDA_SYMBOL(cuFuncGetAttribute, (int* value, int attribute, CUfunction function))
CUDA_SYMBOL(cuFuncSetAttribute, (CUfunction function, int attribute, int value))
CUDA_SYMBOL(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int* blocks, CUfunction function, int block, size_t shared))
CUDA_SYMBOL(cuLaunchKernelEx, (const CUlaunchConfig* config, CUfunction function, void** arguments, void** extra))
