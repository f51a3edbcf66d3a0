#include <stdint.h>

#include "scope.h"

#define STREAM(s) ((hipStream_t)(s))

// The list of parameters has this order, and its end is no null.
static hip_status launched(const hip_device* d, hipFunction_t kernel, hipStream_t stream, uint32_t grid, uint32_t block, uint32_t shared,
                           const void* arguments, size_t bytes) {
  hip_status st = {0};
  void* extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, (void*)arguments, HIP_LAUNCH_PARAM_BUFFER_SIZE, &bytes, HIP_LAUNCH_PARAM_END};
  (void)CALL(hipModuleLaunchKernel, kernel, grid, 1, 1, block, 1, 1, shared, stream, NULL, bytes > 0 ? extra : NULL);
  return st;
}

// The data path. One call does it all; arguments are copied by the library before it returns. Launches do not overlap.
hip_status hip_launch(hip_device* d, const mscclpp_device_launch* l) {
  BEGIN_HOT;
  st = launched(d, (hipFunction_t)l->kernel, STREAM(l->stream), l->grid, l->block, l->shared, l->arguments, l->bytes);
  END_HOT;
}

hip_status hip_copy(hip_device* d, hip_handle stream, uint64_t to, uint64_t from, uint64_t bytes) {
  BEGIN_HOT;
  (void)CALL(hipMemcpyAsync, POINTER(to), POINTER(from), bytes, hipMemcpyDefault, STREAM(stream));
  END_HOT;
}

hip_status hip_set(hip_device* d, hip_handle stream, uint64_t to, uint8_t value, uint64_t bytes) {
  BEGIN_HOT;
  (void)CALL(hipMemsetAsync, POINTER(to), value, bytes, STREAM(stream));
  END_HOT;
}

// A kernel of ours that takes a word and a value. The runtime's own operations are kernels as well, and captures do not record
// them: they would run at once.
static hip_status of_word(const hip_device* d, hipFunction_t kernel, hip_handle stream, uint64_t address, uint64_t value) {
  if (kernel == NULL) return says(HIP_SAYS_NO_WORDS, 0);
  const struct {
    uint64_t address, value;
  } arguments = {address, value};
  BEGIN_HOT;
  st = launched(d, kernel, STREAM(stream), 1, 1, 0, &arguments, sizeof arguments);
  END_HOT;
}

hip_status hip_write_word(hip_device* d, hip_handle stream, uint64_t address, uint64_t value) {
  return of_word(d, d->word, stream, address, value);
}

hip_status hip_wait_word(hip_device* d, hip_handle stream, uint64_t address, uint64_t value) {
  return of_word(d, d->wait, stream, address, value);
}

hip_status hip_event_record(hip_device* d, hip_handle event, hip_handle stream) {
  BEGIN_HOT;
  (void)CALL(hipEventRecord, (hipEvent_t)event, STREAM(stream));
  END_HOT;
}

// In a captured stream the flag makes the event an operation of the graph. Without it launches do not mark the event.
hip_status hip_event_record_each(hip_device* d, hip_handle event, hip_handle stream) {
  if (d->api->hipEventRecordWithFlags == NULL) return says(HIP_SAYS_NO_GRAPH_TIMES, 0);
  BEGIN_HOT;
  (void)CALL(hipEventRecordWithFlags, (hipEvent_t)event, STREAM(stream), hipEventRecordExternal);
  END_HOT;
}

hip_status hip_event_wait(hip_device* d, hip_handle event, hip_handle stream) {
  BEGIN_HOT;
  (void)CALL(hipStreamWaitEvent, STREAM(stream), (hipEvent_t)event, 0);
  END_HOT;
}

hip_status hip_graph_launch(hip_device* d, hip_handle graph, hip_handle stream) {
  BEGIN_HOT;
  (void)CALL(hipGraphLaunch, (hipGraphExec_t)graph, STREAM(stream));
  END_HOT;
}

hip_status hip_event_query(hip_device* d, hip_handle event) {
  BEGIN;
  if (!CALL(hipEventQuery, (hipEvent_t)event) && st.code == hipErrorNotReady) st.code = MSCCLPP_DEVICE_NOT_READY;
  END;
}

// Asks whether a stream records. That comes before how far it is, which would spoil the recording.
static hip_status asked(const hip_device* d, hip_handle stream) {
  hip_status st = {0};
  int status = hipStreamCaptureStatusNone;
  if (CALL(hipStreamIsCapturing, STREAM(stream), &status) && status != hipStreamCaptureStatusNone) st.code = MSCCLPP_DEVICE_CAPTURING;
  return st;
}

hip_status hip_stream_capturing(hip_device* d, hip_handle stream) {
  BEGIN;
  st = asked(d, stream);
  END;
}

hip_status hip_stream_query(hip_device* d, hip_handle stream) {
  BEGIN;
  st = asked(d, stream);
  if (st.code == hipSuccess && !CALL(hipStreamQuery, STREAM(stream)) && st.code == hipErrorNotReady) st.code = MSCCLPP_DEVICE_NOT_READY;
  END;
}

hip_status hip_stream_sync(hip_device* d, hip_handle stream) {
  BEGIN;
  st = asked(d, stream);
  if (st.code == hipSuccess) (void)CALL(hipStreamSynchronize, STREAM(stream));
  END;
}

// The runtime has at most four queues of the hardware for each priority (GPU_MAX_HW_QUEUES), which all streams of that priority in a process
// share: a kernel that waits holds up what is behind it in its queue. 0 is the priority that streams without one have.
hip_status hip_stream_create(hip_device* d, int32_t priority, hip_handle* stream) {
  BEGIN;
  hipStream_t s = NULL;
  if (CALL(hipStreamCreateWithPriority, &s, hipStreamNonBlocking, priority)) *stream = (uintptr_t)s;
  END;
}

hip_status hip_stream_destroy(hip_device* d, hip_handle stream) {
  BEGIN;
  (void)CALL(hipStreamDestroy, STREAM(stream));
  END;
}

hip_status hip_event_create(hip_device* d, int32_t timing, hip_handle* event) {
  BEGIN;
  hipEvent_t e = NULL;
  if (CALL(hipEventCreateWithFlags, &e, timing ? 0 : hipEventDisableTiming)) *event = (uintptr_t)e;
  END;
}

hip_status hip_event_destroy(hip_device* d, hip_handle event) {
  BEGIN;
  (void)CALL(hipEventDestroy, (hipEvent_t)event);
  END;
}

hip_status hip_event_sync(hip_device* d, hip_handle event) {
  BEGIN;
  (void)CALL(hipEventSynchronize, (hipEvent_t)event);
  END;
}

hip_status hip_event_elapsed(hip_device* d, hip_handle start, hip_handle end, uint64_t* nanoseconds) {
  BEGIN;
  float milliseconds = 0;
  if (CALL(hipEventElapsedTime, &milliseconds, (hipEvent_t)start, (hipEvent_t)end)) {
    *nanoseconds = milliseconds > 0 ? (uint64_t)((double)milliseconds * 1e6) : 0;
  }
  END;
}

// The mode of the thread stays as the application has it: the capture is its own.
hip_status hip_capture_begin(hip_device* d, hip_handle stream, int32_t mode) {
  _Static_assert((int)MSCCLPP_DEVICE_CAPTURE_GLOBAL == (int)hipStreamCaptureModeGlobal && (int)MSCCLPP_DEVICE_CAPTURE_RELAXED == (int)hipStreamCaptureModeRelaxed, "modes");
  BEGIN_HOT;
  (void)CALL(hipStreamBeginCapture, STREAM(stream), mode);
  END_HOT;
}

hip_status hip_capture_end(hip_device* d, hip_handle stream, hip_handle* made, uint64_t* nodes) {
  BEGIN;
  hipGraph_t graph = NULL;
  hipGraphExec_t e = NULL;
  size_t count = 0;
  if (CALL(hipStreamEndCapture, STREAM(stream), &graph)) {
    if (CALL(hipGraphGetNodes, graph, NULL, &count) && CALL(hipGraphInstantiateWithFlags, &e, graph, 0)) {
      *made = (uintptr_t)e, *nodes = count;
    }
    d->api->hipGraphDestroy(graph);
  }
  END;
}

hip_status hip_graph_destroy(hip_device* d, hip_handle graph) {
  BEGIN;
  (void)CALL(hipGraphExecDestroy, (hipGraphExec_t)graph);
  END;
}
