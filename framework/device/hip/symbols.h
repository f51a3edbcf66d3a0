// The functions of libamdhip64 that this package calls: all of them, and no others. Each name has one version, so it is looked up
// as it is. Define HIP_SYMBOL(name, arguments) before the include; every function returns hipError_t. Types are in types.h.
//
// All are in 5.7 and later, but for those of HIP_LATER_SYMBOL, which are NULL where the library has none. There are no contexts:
// each thread has a current device.

// Library and devices.
HIP_SYMBOL(hipInit, (unsigned flags))
HIP_SYMBOL(hipRuntimeGetVersion, (int* version))
HIP_SYMBOL(hipGetDeviceCount, (int* count))
HIP_SYMBOL(hipGetDevice, (int* device))
HIP_SYMBOL(hipSetDevice, (int device))
HIP_SYMBOL(hipDeviceGetName, (char* name, int bytes, int device))
HIP_SYMBOL(hipDeviceGetUuid, (hipUUID* uuid, int device))
HIP_SYMBOL(hipDeviceGetPCIBusId, (char* id, int bytes, int device))
HIP_SYMBOL(hipDeviceGetAttribute, (int* value, int attribute, int device))
HIP_SYMBOL(hipDeviceCanAccessPeer, (int* can, int device, int peer))
HIP_SYMBOL(hipDeviceEnablePeerAccess, (int peer, unsigned flags))
HIP_SYMBOL(hipDeviceGetStreamPriorityRange, (int* least, int* greatest))
// The layout of their result is that of the name: R0600 in 6.0 and later, and the older one under the plain name, in all versions.
HIP_SYMBOL(hipGetDeviceProperties, (void* properties, int device))
HIP_LATER_SYMBOL(hipGetDevicePropertiesR0600, (void* properties, int device))

// Memory.
HIP_SYMBOL(hipMemGetInfo, (size_t* free, size_t* total))
HIP_SYMBOL(hipExtMallocWithFlags, (void** address, size_t bytes, unsigned flags))
HIP_SYMBOL(hipFree, (void* address))
HIP_SYMBOL(hipHostMalloc, (void** address, size_t bytes, unsigned flags))
HIP_SYMBOL(hipHostFree, (void* address))
HIP_SYMBOL(hipHostRegister, (void* address, size_t bytes, unsigned flags))
HIP_SYMBOL(hipHostUnregister, (void* address))
HIP_SYMBOL(hipHostGetDevicePointer, (void** address, void* host, unsigned flags))
HIP_SYMBOL(hipPointerGetAttribute, (void* value, int attribute, hipDeviceptr_t address))

// Memory that other processes open.
HIP_SYMBOL(hipIpcGetMemHandle, (hipIpcMemHandle_t* handle, void* address))
HIP_SYMBOL(hipIpcOpenMemHandle, (void** address, hipIpcMemHandle_t handle, unsigned flags))
HIP_SYMBOL(hipIpcCloseMemHandle, (void* address))
HIP_SYMBOL(hipMemGetAllocationGranularity, (size_t* bytes, const hipMemAllocationProp* properties, int option))
HIP_SYMBOL(hipMemCreate, (hipMemGenericAllocationHandle_t* handle, size_t bytes, const hipMemAllocationProp* properties, unsigned long long flags))
HIP_SYMBOL(hipMemRelease, (hipMemGenericAllocationHandle_t handle))
HIP_SYMBOL(hipMemAddressReserve, (void** address, size_t bytes, size_t alignment, void* hint, unsigned long long flags))
HIP_SYMBOL(hipMemAddressFree, (void* address, size_t bytes))
HIP_SYMBOL(hipMemMap, (void* address, size_t bytes, size_t offset, hipMemGenericAllocationHandle_t handle, unsigned long long flags))
HIP_SYMBOL(hipMemUnmap, (void* address, size_t bytes))
HIP_SYMBOL(hipMemSetAccess, (void* address, size_t bytes, const hipMemAccessDesc* access, size_t count))
HIP_SYMBOL(hipMemExportToShareableHandle, (void* shareable, hipMemGenericAllocationHandle_t handle, int type, unsigned long long flags))
HIP_SYMBOL(hipMemImportFromShareableHandle, (hipMemGenericAllocationHandle_t* handle, void* shareable, int type))
HIP_LATER_SYMBOL(hipMemGetHandleForAddressRange, (void* handle, hipDeviceptr_t address, size_t bytes, int type, unsigned long long flags))  // 7.0

// Streams, and what is enqueued on them. Words are stored by a kernel of ours: hipStreamWriteValue64 is not recorded by captures.
HIP_SYMBOL(hipStreamCreateWithPriority, (hipStream_t* stream, unsigned flags, int priority))
HIP_SYMBOL(hipStreamDestroy, (hipStream_t stream))
HIP_SYMBOL(hipStreamQuery, (hipStream_t stream))
HIP_SYMBOL(hipStreamSynchronize, (hipStream_t stream))
HIP_SYMBOL(hipStreamWaitEvent, (hipStream_t stream, hipEvent_t event, unsigned flags))
HIP_SYMBOL(hipMemcpyAsync, (void* to, const void* from, size_t bytes, int kind, hipStream_t stream))
HIP_SYMBOL(hipMemsetAsync, (void* to, int value, size_t bytes, hipStream_t stream))

// Events.
HIP_SYMBOL(hipEventCreateWithFlags, (hipEvent_t* event, unsigned flags))
HIP_SYMBOL(hipEventDestroy, (hipEvent_t event))
HIP_SYMBOL(hipEventRecord, (hipEvent_t event, hipStream_t stream))
HIP_LATER_SYMBOL(hipEventRecordWithFlags, (hipEvent_t event, hipStream_t stream, unsigned flags))  // in 6.4 and later
HIP_SYMBOL(hipEventQuery, (hipEvent_t event))
HIP_SYMBOL(hipEventSynchronize, (hipEvent_t event))
HIP_SYMBOL(hipEventElapsedTime, (float* milliseconds, hipEvent_t start, hipEvent_t end))

// Graphs.
HIP_SYMBOL(hipThreadExchangeStreamCaptureMode, (int* mode))
HIP_SYMBOL(hipStreamIsCapturing, (hipStream_t stream, int* status))
HIP_SYMBOL(hipStreamBeginCapture, (hipStream_t stream, int mode))
HIP_SYMBOL(hipStreamEndCapture, (hipStream_t stream, hipGraph_t* graph))
HIP_SYMBOL(hipGraphGetNodes, (hipGraph_t graph, void** nodes, size_t* count))
HIP_SYMBOL(hipGraphInstantiateWithFlags, (hipGraphExec_t* exec, hipGraph_t graph, unsigned long long flags))
HIP_SYMBOL(hipGraphLaunch, (hipGraphExec_t exec, hipStream_t stream))
HIP_SYMBOL(hipGraphExecDestroy, (hipGraphExec_t exec))
HIP_SYMBOL(hipGraphDestroy, (hipGraph_t graph))

// Modules and kernels.
HIP_SYMBOL(hipModuleLoadData, (hipModule_t* module, const void* image))
HIP_SYMBOL(hipModuleUnload, (hipModule_t module))
HIP_SYMBOL(hipModuleGetFunction, (hipFunction_t* function, hipModule_t module, const char* name))
HIP_SYMBOL(hipFuncGetAttribute, (int* value, int attribute, hipFunction_t function))
HIP_SYMBOL(hipModuleOccupancyMaxActiveBlocksPerMultiprocessor, (int* blocks, hipFunction_t function, int block, size_t shared))
HIP_SYMBOL(hipModuleLaunchKernel, (hipFunction_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                                   unsigned shared, hipStream_t stream, void** parameters, void** extra))
