#include <stdint.h>

#include "scope.h"

#define STREAM(s) ((CUstream)(s))

// The data path. One call does it all; arguments are copied by the driver before it returns.
cuda_status cuda_launch(cuda_context* c, const mscclpp_device_launch* l) {
  BEGIN_HOT;
  CUlaunchAttribute attributes[2];
  CUlaunchConfig config = {.gridDimX = l->grid,
                           .gridDimY = 1,
                           .gridDimZ = 1,
                           .blockDimX = l->block,
                           .blockDimY = 1,
                           .blockDimZ = 1,
                           .sharedMemBytes = l->shared,
                           .hStream = STREAM(l->stream)};
  const unsigned cluster = l->flags >> MSCCLPP_DEVICE_LAUNCH_CLUSTER & 0xff;
  if (c->facts.major >= 9) {
    config.attrs = attributes;
    if ((l->flags & MSCCLPP_DEVICE_LAUNCH_OVERLAP) != 0) {
      CUlaunchAttribute* a = &attributes[config.numAttrs++];
      *a = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
      a->value.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster > 1) {
      CUlaunchAttribute* a = &attributes[config.numAttrs++];
      *a = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
      a->value.clusterDim.x = cluster, a->value.clusterDim.y = a->value.clusterDim.z = 1;
    }
    if (config.numAttrs == 0) config.attrs = NULL;
  }
  size_t bytes = l->bytes;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, (void*)l->arguments, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  (void)CALL(cuLaunchKernelEx, &config, (CUfunction)l->kernel, NULL, bytes > 0 ? extra : NULL);
  END_HOT;
}

cuda_status cuda_copy(cuda_context* c, cuda_handle stream, uint64_t to, uint64_t from, uint64_t bytes) {
  BEGIN_HOT;
  (void)CALL(cuMemcpyAsync, to, from, bytes, STREAM(stream));
  END_HOT;
}

cuda_status cuda_set(cuda_context* c, cuda_handle stream, uint64_t to, uint8_t value, uint64_t bytes) {
  BEGIN_HOT;
  (void)CALL(cuMemsetD8Async, to, value, bytes, STREAM(stream));
  END_HOT;
}

cuda_status cuda_write_word(cuda_context* c, cuda_handle stream, uint64_t address, uint64_t value) {
  BEGIN_HOT;
  (void)CALL(cuStreamWriteValue64_v2, STREAM(stream), address, value, CU_STREAM_WRITE_VALUE_DEFAULT);
  END_HOT;
}

cuda_status cuda_wait_word(cuda_context* c, cuda_handle stream, uint64_t address, uint64_t value) {
  BEGIN_HOT;
  (void)CALL(cuStreamWaitValue64_v2, STREAM(stream), address, value, CU_STREAM_WAIT_VALUE_GEQ);
  END_HOT;
}

cuda_status cuda_event_record(cuda_context* c, cuda_handle event, cuda_handle stream) {
  BEGIN_HOT;
  (void)CALL(cuEventRecord, (CUevent)event, STREAM(stream));
  END_HOT;
}

// The driver takes the flag for streams that are captured alone.
cuda_status cuda_event_record_each(cuda_context* c, cuda_handle event, cuda_handle stream) {
  BEGIN_HOT;
  (void)CALL(cuEventRecordWithFlags, (CUevent)event, STREAM(stream), CU_EVENT_RECORD_EXTERNAL);
  END_HOT;
}

// The event comes behind all that streams of the context have been given, also those that were destroyed.
cuda_status cuda_event_record_all(cuda_context* c, cuda_handle event) {
  if (c->api->cuCtxRecordEvent == NULL) return worded(CUDA_WORDS_NO_MARK, 0);
  BEGIN;
  if (!CALL(cuCtxRecordEvent, c->context, (CUevent)event) && (st.code == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED || st.code == CUDA_ERROR_NOT_SUPPORTED)) {
    st = worded(CUDA_WORDS_NO_MARK, 0);
  }
  END;
}

cuda_status cuda_event_wait(cuda_context* c, cuda_handle event, cuda_handle stream) {
  BEGIN_HOT;
  (void)CALL(cuStreamWaitEvent, STREAM(stream), (CUevent)event, 0);
  END_HOT;
}

cuda_status cuda_graph_launch(cuda_context* c, cuda_handle graph, cuda_handle stream) {
  BEGIN_HOT;
  (void)CALL(cuGraphLaunch, (CUgraphExec)graph, STREAM(stream));
  END_HOT;
}

cuda_status cuda_event_query(cuda_context* c, cuda_handle event) {
  BEGIN;
  if (!CALL(cuEventQuery, (CUevent)event) && st.code == CUDA_ERROR_NOT_READY) st.code = MSCCLPP_DEVICE_NOT_READY;
  END;
}

// A thread that counts signals calls this while others may capture.
cuda_status cuda_flush_writes(cuda_context* c) {
  if ((c->facts.rdma_flush & CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST) == 0) return worded(CUDA_WORDS_NO_FLUSH, 0);
  BEGIN;
  (void)CALL(cuFlushGPUDirectRDMAWrites, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
  END;
}

// A stream that records has to be left alone: the question spoils the recording in every mode.
uint64_t cuda_stream_id(cuda_context* c, cuda_handle stream) {
  unsigned long long id = 0;
  cuda_scope scope;
  if (c->api->cuStreamGetId == NULL || enter(c, &scope) != CUDA_SUCCESS) return 0;
  int status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult r = c->api->cuStreamIsCapturing(STREAM(stream), &status);
  const int known = r == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE && c->api->cuStreamGetId(STREAM(stream), &id) == CUDA_SUCCESS;
  leave(c, &scope);
  return known ? id + 1 : 0;
}

// A green context has some of the processors. The question leaves streams alone that record.
uint32_t cuda_stream_processors(cuda_context* c, cuda_handle stream) {
  CUgreenCtx green = NULL;
  CUdevResource part = {.sm = {0}};
  cuda_scope scope;
  if (c->api->cuStreamGetGreenCtx == NULL || c->api->cuGreenCtxGetDevResource == NULL || enter(c, &scope) != CUDA_SUCCESS) return 0;
  const int known = c->api->cuStreamGetGreenCtx(STREAM(stream), &green) == CUDA_SUCCESS && green != NULL &&
                    c->api->cuGreenCtxGetDevResource(green, &part, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS;
  leave(c, &scope);
  return known ? part.sm.processors : 0;
}

// Asks whether a stream records. That comes before how far it is, which would spoil the recording.
static cuda_status asked(const cuda_context* c, cuda_handle stream) {
  cuda_status st = {0};
  int status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (CALL(cuStreamIsCapturing, STREAM(stream), &status) && status != CU_STREAM_CAPTURE_STATUS_NONE) st.code = MSCCLPP_DEVICE_CAPTURING;
  return st;
}

cuda_status cuda_stream_capturing(cuda_context* c, cuda_handle stream) {
  BEGIN;
  st = asked(c, stream);
  END;
}

cuda_status cuda_stream_query(cuda_context* c, cuda_handle stream) {
  BEGIN;
  st = asked(c, stream);
  if (st.code == CUDA_SUCCESS && !CALL(cuStreamQuery, STREAM(stream)) && st.code == CUDA_ERROR_NOT_READY) st.code = MSCCLPP_DEVICE_NOT_READY;
  END;
}

cuda_status cuda_stream_sync(cuda_context* c, cuda_handle stream) {
  BEGIN;
  st = asked(c, stream);
  if (st.code == CUDA_SUCCESS) (void)CALL(cuStreamSynchronize, STREAM(stream));
  END;
}

cuda_status cuda_stream_create(cuda_context* c, int32_t priority, cuda_handle* stream) {
  BEGIN;
  CUstream s = NULL;
  if (CALL(cuStreamCreateWithPriority, &s, CU_STREAM_NON_BLOCKING, priority)) *stream = (uintptr_t)s;
  END;
}

cuda_status cuda_stream_destroy(cuda_context* c, cuda_handle stream) {
  BEGIN;
  (void)CALL(cuStreamDestroy_v2, STREAM(stream));
  END;
}

cuda_status cuda_event_create(cuda_context* c, int32_t timing, cuda_handle* event) {
  BEGIN;
  CUevent e = NULL;
  if (CALL(cuEventCreate, &e, timing ? 0 : CU_EVENT_DISABLE_TIMING)) *event = (uintptr_t)e;
  END;
}

cuda_status cuda_event_destroy(cuda_context* c, cuda_handle event) {
  BEGIN;
  (void)CALL(cuEventDestroy_v2, (CUevent)event);
  END;
}

cuda_status cuda_event_sync(cuda_context* c, cuda_handle event) {
  BEGIN;
  (void)CALL(cuEventSynchronize, (CUevent)event);
  END;
}

// The driver knows it to about half a microsecond.
cuda_status cuda_event_elapsed(cuda_context* c, cuda_handle start, cuda_handle end, uint64_t* nanoseconds) {
  BEGIN;
  float milliseconds = 0;
  if (CALL(cuEventElapsedTime, &milliseconds, (CUevent)start, (CUevent)end)) {
    *nanoseconds = milliseconds > 0 ? (uint64_t)((double)milliseconds * 1e6) : 0;
  }
  END;
}

// The mode of the thread stays as the application has it: the capture is its own.
cuda_status cuda_capture_begin(cuda_context* c, cuda_handle stream, int32_t mode) {
  _Static_assert((int)MSCCLPP_DEVICE_CAPTURE_GLOBAL == (int)CU_STREAM_CAPTURE_MODE_GLOBAL && (int)MSCCLPP_DEVICE_CAPTURE_RELAXED == (int)CU_STREAM_CAPTURE_MODE_RELAXED, "modes");
  BEGIN_HOT;
  (void)CALL(cuStreamBeginCapture_v2, STREAM(stream), mode);
  END_HOT;
}

cuda_status cuda_capture_end(cuda_context* c, cuda_handle stream, cuda_handle* made, uint64_t* nodes) {
  BEGIN;
  CUgraph graph = NULL;
  CUgraphExec e = NULL;
  size_t count = 0;
  if (CALL(cuStreamEndCapture, STREAM(stream), &graph)) {
    if (CALL(cuGraphGetNodes, graph, NULL, &count) && CALL(cuGraphInstantiateWithFlags, &e, graph, 0)) {
      *made = (uintptr_t)e, *nodes = count;
    }
    c->api->cuGraphDestroy(graph);
  }
  END;
}

cuda_status cuda_graph_destroy(cuda_context* c, cuda_handle graph) {
  BEGIN;
  (void)CALL(cuGraphExecDestroy, (CUgraphExec)graph);
  END;
}
