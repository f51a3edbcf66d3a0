// Streams, events and graphs.
#include "hip.h"

#define FORWARD(name, core, parameters, ...) \
  HIP int name parameters {                  \
    HIP_ENTER();                             \
    return core(__VA_ARGS__);                \
  }

FORWARD(hipStreamDestroy, cuStreamDestroy_v2, (Stream* stream), stream)
FORWARD(hipStreamQuery, cuStreamQuery, (Stream* stream), stream)
FORWARD(hipStreamSynchronize, cuStreamSynchronize, (Stream* stream), stream)
FORWARD(hipStreamWaitEvent, cuStreamWaitEvent, (Stream* stream, Event* event, unsigned flags), stream, event, flags)
FORWARD(hipEventDestroy, cuEventDestroy_v2, (Event* event), event)
FORWARD(hipEventRecord, cuEventRecord, (Event* event, Stream* stream), event, stream)
FORWARD(hipEventQuery, cuEventQuery, (Event* event), event)
FORWARD(hipEventSynchronize, cuEventSynchronize, (Event* event), event)
FORWARD(hipEventElapsedTime, cuEventElapsedTime, (float* milliseconds, Event* start, Event* end), milliseconds, start, end)
FORWARD(hipThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, (int* mode), mode)
FORWARD(hipStreamIsCapturing, cuStreamIsCapturing, (Stream* stream, int* status), stream, status)
FORWARD(hipStreamBeginCapture, cuStreamBeginCapture_v2, (Stream* stream, int mode), stream, mode)
FORWARD(hipStreamEndCapture, cuStreamEndCapture, (Stream* stream, GraphHandle** graph), stream, graph)
FORWARD(hipGraphGetNodes, cuGraphGetNodes, (GraphHandle* graph, void** nodes, size_t* count), graph, nodes, count)
FORWARD(hipGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, (GraphExec** exec, GraphHandle* graph, unsigned long long flags), exec, graph, flags)
FORWARD(hipGraphLaunch, cuGraphLaunch, (GraphExec* exec, Stream* stream), exec, stream)
FORWARD(hipGraphExecDestroy, cuGraphExecDestroy, (GraphExec* exec), exec)
FORWARD(hipGraphDestroy, cuGraphDestroy, (GraphHandle* graph), graph)

HIP int hipDeviceSynchronize() {
  HIP_ENTER();
  return cuCtxSynchronize();
}

HIP int hipStreamCreateWithPriority(Stream** stream, unsigned flags, int priority) {
  HIP_ENTER();
  return cuStreamCreateWithPriority(stream, flags, priority > 0 ? 0 : priority);
}

// The flag of external events has no effect on streams that are not captured, where the core refuses it.
HIP int hipEventRecordWithFlags(Event* event, Stream* stream, unsigned flags) {
  HIP_ENTER();
  if (flags > 1) return kInvalidValue;
  int capturing = 0;
  if (int bad = cuStreamIsCapturing(stream, &capturing)) return bad;
  return cuEventRecordWithFlags(event, stream, capturing != 0 ? flags : 0);
}

HIP int hipEventCreateWithFlags(Event** event, unsigned flags) {
  HIP_ENTER();
  return cuEventCreate(event, flags & 3);
}

// The kind may be left to the library, 4: it finds out by the addresses.
HIP int hipMemcpyAsync(void* to, const void* from, size_t bytes, int kind, Stream* stream) {
  HIP_ENTER();
  int known = 0;
  const DevicePtr t = reinterpret_cast<DevicePtr>(to), f = reinterpret_cast<DevicePtr>(from);
  if (kind != 4) return kInvalidValue;
  if (cuPointerGetAttribute(&known, 2, f) != kSuccess) return cuMemcpyHtoDAsync_v2(t, from, bytes, stream);
  if (cuPointerGetAttribute(&known, 2, t) != kSuccess) return cuMemcpyDtoHAsync_v2(to, f, bytes, stream);
  return cuMemcpyAsync(t, f, bytes, stream);
}

HIP int hipMemsetAsync(void* to, int value, size_t bytes, Stream* stream) {
  HIP_ENTER();
  return cuMemsetD8Async(reinterpret_cast<DevicePtr>(to), static_cast<unsigned char>(value), bytes, stream);
}
