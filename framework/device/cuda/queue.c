#include <stdint.h>

#include "scope.h"

#define STREAM(s) ((CUstream)(s))

// Portions that may run often, and those that capture may record: they leave the
// thread's mode alone.
#define ENTER                                             \
  const cuda_context* c = (const cuda_context*)context;   \
  cuda_scope scope;                                       \
  CUresult r = enter(c, &scope);                          \
  if (r != CUDA_SUCCESS) return r
#define LEAVE        \
  leave(c, &scope);  \
  return r

int cuda_launch(uintptr_t context, uintptr_t function, uintptr_t stream, uint32_t grid, uint32_t block, uint32_t shared,
                int overlap, uintptr_t arguments, size_t bytes) {
  ENTER;
  CUlaunchAttribute attribute;
  CUlaunchConfig config = {.gridDimX = grid,
                           .gridDimY = 1,
                           .gridDimZ = 1,
                           .blockDimX = block,
                           .blockDimY = 1,
                           .blockDimZ = 1,
                           .sharedMemBytes = shared,
                           .hStream = STREAM(stream)};
  if (overlap) {
    attribute = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    attribute.value.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute, config.numAttrs = 1;
  }
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, (void*)arguments, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  r = c->api->cuLaunchKernelEx(&config, (CUfunction)function, NULL, bytes > 0 ? extra : NULL);
  LEAVE;
}

int cuda_copy(uintptr_t context, uintptr_t stream, uint64_t to, uint64_t from, uint64_t bytes) {
  ENTER;
  r = c->api->cuMemcpyAsync(to, from, bytes, STREAM(stream));
  LEAVE;
}

int cuda_memset(uintptr_t context, uintptr_t stream, uint64_t to, int value, uint64_t bytes) {
  ENTER;
  r = c->api->cuMemsetD8Async(to, (unsigned char)value, bytes, STREAM(stream));
  LEAVE;
}

int cuda_write_value(uintptr_t context, uintptr_t stream, uint64_t address, uint64_t value) {
  ENTER;
  r = c->api->cuStreamWriteValue64_v2(STREAM(stream), address, value, CU_STREAM_WRITE_VALUE_DEFAULT);
  LEAVE;
}

int cuda_wait_value(uintptr_t context, uintptr_t stream, uint64_t address, uint64_t value) {
  ENTER;
  r = c->api->cuStreamWaitValue64_v2(STREAM(stream), address, value, CU_STREAM_WAIT_VALUE_GEQ);
  LEAVE;
}

int cuda_event_record(uintptr_t context, uintptr_t event, uintptr_t stream) {
  ENTER;
  r = c->api->cuEventRecord((CUevent)event, STREAM(stream));
  LEAVE;
}

// The event comes behind all that streams of the context have been given, also those that were destroyed.
int cuda_event_record_all(uintptr_t context, uintptr_t event) {
  const cuda_context* c = (const cuda_context*)context;
  if (c->api->cuCtxRecordEvent == NULL) return CUDA_ERROR_NOT_SUPPORTED;
  cuda_scope scope;
  CUresult r = enter_relaxed(c, &scope);
  if (r != CUDA_SUCCESS) return r;
  r = c->api->cuCtxRecordEvent(c->context, (CUevent)event);
  leave_relaxed(c, &scope);
  return r;
}

int cuda_event_wait(uintptr_t context, uintptr_t event, uintptr_t stream) {
  ENTER;
  r = c->api->cuStreamWaitEvent(STREAM(stream), (CUevent)event, 0);
  LEAVE;
}

int cuda_graph_launch(uintptr_t context, uintptr_t exec, uintptr_t stream) {
  ENTER;
  r = c->api->cuGraphLaunch((CUgraphExec)exec, STREAM(stream));
  LEAVE;
}

int cuda_event_query(uintptr_t context, uintptr_t event) {
  const cuda_context* c = (const cuda_context*)context;
  cuda_scope scope;
  CUresult r = enter_relaxed(c, &scope);
  if (r != CUDA_SUCCESS) return r;
  r = c->api->cuEventQuery((CUevent)event);
  leave_relaxed(c, &scope);
  return r;
}

// A thread that counts signals calls this while others may capture.
int cuda_flush_writes(uintptr_t context) {
  const cuda_context* c = (const cuda_context*)context;
  cuda_scope scope;
  CUresult r = enter_relaxed(c, &scope);
  if (r != CUDA_SUCCESS) return r;
  r = c->api->cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
  leave_relaxed(c, &scope);
  return r;
}

// The number that tells a stream from others that had its handle before; 0: the driver does not say. A stream that records
// has to be left alone: the question spoils the recording in every mode.
uint64_t cuda_stream_id(uintptr_t context, uintptr_t stream) {
  const cuda_context* c = (const cuda_context*)context;
  unsigned long long id = 0;
  cuda_scope scope;
  if (c->api->cuStreamGetId == NULL || enter(c, &scope) != CUDA_SUCCESS) return 0;
  int status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult r = c->api->cuStreamIsCapturing(STREAM(stream), &status);
  if (r == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE) r = CUDA_CAPTURING;
  if (r == CUDA_SUCCESS) r = c->api->cuStreamGetId(STREAM(stream), &id);
  leave(c, &scope);
  return r == CUDA_SUCCESS ? id + 1 : 0;
}

int cuda_stream_capturing(uintptr_t context, uintptr_t stream) {
  const cuda_context* c = (const cuda_context*)context;
  cuda_scope scope;
  CUresult r = enter_relaxed(c, &scope);
  if (r != CUDA_SUCCESS) return r;
  int status = CU_STREAM_CAPTURE_STATUS_NONE;
  r = c->api->cuStreamIsCapturing(STREAM(stream), &status);
  if (r == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE) r = CUDA_CAPTURING;
  leave_relaxed(c, &scope);
  return r;
}

// Whether a stream records has to be asked first: asking how far it is would spoil
// the recording.
int cuda_stream_query(uintptr_t context, uintptr_t stream) {
  const cuda_context* c = (const cuda_context*)context;
  cuda_scope scope;
  CUresult r = enter_relaxed(c, &scope);
  if (r != CUDA_SUCCESS) return r;
  int status = CU_STREAM_CAPTURE_STATUS_NONE;
  r = c->api->cuStreamIsCapturing(STREAM(stream), &status);
  if (r == CUDA_SUCCESS) r = status != CU_STREAM_CAPTURE_STATUS_NONE ? CUDA_CAPTURING : c->api->cuStreamQuery(STREAM(stream));
  leave_relaxed(c, &scope);
  return r;
}

cuda_status cuda_stream_sync(const cuda_context* c, uintptr_t stream) {
  BEGIN;
  int status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (CALL(cuStreamIsCapturing, STREAM(stream), &status)) {
    if (status != CU_STREAM_CAPTURE_STATUS_NONE) {
      st.code = CUDA_CAPTURING;
    } else {
      (void)CALL(cuStreamSynchronize, STREAM(stream));
    }
  }
  END;
}

cuda_status cuda_stream_create(const cuda_context* c, int priority, uintptr_t* stream) {
  BEGIN;
  CUstream s = NULL;
  if (CALL(cuStreamCreateWithPriority, &s, CU_STREAM_NON_BLOCKING, priority)) *stream = (uintptr_t)s;
  END;
}

cuda_status cuda_stream_destroy(const cuda_context* c, uintptr_t stream) {
  BEGIN;
  (void)CALL(cuStreamDestroy_v2, STREAM(stream));
  END;
}

cuda_status cuda_event_create(const cuda_context* c, int timing, uintptr_t* event) {
  BEGIN;
  CUevent e = NULL;
  if (CALL(cuEventCreate, &e, timing ? 0 : CU_EVENT_DISABLE_TIMING)) *event = (uintptr_t)e;
  END;
}

cuda_status cuda_event_destroy(const cuda_context* c, uintptr_t event) {
  BEGIN;
  (void)CALL(cuEventDestroy_v2, (CUevent)event);
  END;
}

cuda_status cuda_event_sync(const cuda_context* c, uintptr_t event) {
  BEGIN;
  (void)CALL(cuEventSynchronize, (CUevent)event);
  END;
}

cuda_status cuda_event_elapsed(const cuda_context* c, uintptr_t start, uintptr_t end, float* milliseconds) {
  BEGIN;
  (void)CALL(cuEventElapsedTime, milliseconds, (CUevent)start, (CUevent)end);
  END;
}

// The mode of the thread stays as the application has it: the capture is its own.
cuda_status cuda_capture_begin(const cuda_context* c, uintptr_t stream, int mode) {
  cuda_scope scope;
  cuda_status st = {enter(c, &scope), "cuCtxSetCurrent"};
  if (st.code != CUDA_SUCCESS) return st;
  (void)CALL(cuStreamBeginCapture_v2, STREAM(stream), mode);
  leave(c, &scope);
  return st;
}

cuda_status cuda_capture_end(const cuda_context* c, uintptr_t stream, uintptr_t* exec, uint64_t* nodes) {
  BEGIN;
  CUgraph graph = NULL;
  CUgraphExec e = NULL;
  size_t count = 0;
  if (CALL(cuStreamEndCapture, STREAM(stream), &graph)) {
    if (CALL(cuGraphGetNodes, graph, NULL, &count) && CALL(cuGraphInstantiateWithFlags, &e, graph, 0)) {
      *exec = (uintptr_t)e, *nodes = count;
    }
    c->api->cuGraphDestroy(graph);
  }
  END;
}

cuda_status cuda_graph_destroy(const cuda_context* c, uintptr_t exec) {
  BEGIN;
  (void)CALL(cuGraphExecDestroy, (CUgraphExec)exec);
  END;
}
