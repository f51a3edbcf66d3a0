#include <unistd.h>

#include "test.h"

static CUgraphExec instantiate(CUgraph g) {
  CUgraphExec e;
  OK(cuGraphInstantiateWithFlags(&e, g, 0));
  OK(cuGraphDestroy(g));
  return e;
}

static int status(CUstream s) {
  int v;
  OK(cuStreamIsCapturing(s, &v));
  return v;
}

TEST(graphs_replay_in_order) {
  use();
  Word a, b;
  CUstream s = new_stream();
  CUgraph g;
  size_t nodes = 0;
  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL), 401);
  OK(cuStreamWriteValue64_v2(s, a.at, 3, 0));
  OK(cuMemcpyAsync(b.at, a.at, 8, s));
  OK(cuMemsetD8Async(a.at, 0, 8, s));
  EXPECT(status(s), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  OK(cuStreamEndCapture(s, &g));
  EXPECT(status(s), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT(b.get(), 0);  // nothing has run
  OK(cuGraphGetNodes(g, nullptr, &nodes));
  EXPECT(nodes, 3);
  CUgraphExec e = instantiate(g);
  for (int i = 0; i < 100; ++i) {
    b.set(0);
    OK(cuGraphLaunch(e, s));
    OK(cuStreamSynchronize(s));
    EXPECT(b.get(), 3);
    EXPECT(a.get(), 0);
  }
  OK(cuGraphExecDestroy(e));
  EXPECT(cuGraphLaunch(e, s), CUDA_ERROR_INVALID_VALUE);
}

// An external event is a node: each launch takes the time anew, and another stream does not join the capture by it.
TEST(graphs_take_times) {
  use();
  Word go;
  CUstream s = new_stream(), t = new_stream();
  CUevent base, start, end;
  CUgraph g;
  size_t nodes = 0;
  float ms = -1, before = -1;
  for (CUevent* e : {&base, &start, &end}) OK(cuEventCreate(e, 0));
  EXPECT(cuEventRecordWithFlags(start, s, CU_EVENT_RECORD_EXTERNAL), 401);
  EXPECT(cuEventRecordWithFlags(start, s, 2), CUDA_ERROR_INVALID_VALUE);
  OK(cuEventRecordWithFlags(base, t, 0));
  OK(cuStreamSynchronize(t));
  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(cuEventRecordWithFlags(start, s, CU_EVENT_RECORD_EXTERNAL));
  OK(cuStreamWaitValue64_v2(s, go.at, 1, 0));
  OK(cuEventRecordWithFlags(end, s, CU_EVENT_RECORD_EXTERNAL));
  OK(cuStreamEndCapture(s, &g));
  OK(cuGraphGetNodes(g, nullptr, &nodes));
  EXPECT(nodes, 3);
  CUgraphExec e = instantiate(g);
  EXPECT(cuEventElapsedTime(&ms, base, start), 400);  // not launched
  for (int i = 0; i < 3; ++i) {
    go.set(0);
    OK(cuGraphLaunch(e, s));
    for (int look = 0; look < 60000 && (cuEventElapsedTime(&ms, base, start) != 0 || ms <= before); ++look) usleep(500);  // until this launch has begun
    usleep(2000);
    go.set(1);
    OK(cuStreamSynchronize(s));
    OK(cuEventElapsedTime(&ms, start, end));
    EXPECT(ms >= 1 && ms < 60000, true);
    OK(cuEventElapsedTime(&ms, base, start));
    EXPECT(ms > before, true);
    before = ms;
  }
  OK(cuGraphExecDestroy(e));
}

// Two branches that wait for each other, which needs them to run at the same time.
TEST(branches_run_beside_each_other) {
  use();
  Word y, z;
  CUstream s = new_stream(), t = new_stream();
  CUevent fork, join;
  CUgraph g;
  OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(cuEventRecord(fork, s));
  OK(cuStreamWaitEvent(t, fork, 0));
  EXPECT(status(t), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  OK(cuStreamWaitValue64_v2(s, y.at, 1, 0));
  OK(cuStreamWriteValue64_v2(s, z.at, 1, 0));
  OK(cuStreamWriteValue64_v2(t, y.at, 1, 0));
  OK(cuStreamWaitValue64_v2(t, z.at, 1, 0));
  OK(cuEventRecord(join, t));
  EXPECT(cuEventQuery(join), 907);
  EXPECT(cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);  // by the query

  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(cuEventRecord(fork, s));
  OK(cuStreamWaitEvent(t, fork, 0));
  OK(cuStreamWaitValue64_v2(s, y.at, 1, 0));
  OK(cuStreamWriteValue64_v2(s, z.at, 1, 0));
  OK(cuStreamWriteValue64_v2(t, y.at, 1, 0));
  OK(cuStreamWaitValue64_v2(t, z.at, 1, 0));
  OK(cuEventRecord(join, t));
  OK(cuStreamWaitEvent(s, join, 0));
  OK(cuMemsetD8Async(y.at, 0, 8, s));
  OK(cuMemsetD8Async(z.at, 0, 8, s));
  OK(cuStreamEndCapture(s, &g));
  EXPECT(status(t), CU_STREAM_CAPTURE_STATUS_NONE);
  CUgraphExec e = instantiate(g);
  for (int i = 0; i < 50; ++i) OK(cuGraphLaunch(e, i % 2 == 0 ? s : t));
  OK(cuStreamSynchronize(s));
  OK(cuStreamSynchronize(t));
  EXPECT(y.get() + z.get(), 0);
}

TEST(branches_have_to_be_joined) {
  use();
  Word x;
  CUstream s = new_stream(), t = new_stream();
  CUevent fork;
  CUgraph g;
  OK(cuEventCreate(&fork, 0));
  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuEventRecord(fork, s));
  OK(cuStreamWaitEvent(t, fork, 0));
  OK(cuStreamWriteValue64_v2(t, x.at, 1, 0));
  EXPECT(cuStreamEndCapture(s, &g), 904);
  EXPECT(g == nullptr, true);
  EXPECT(status(t), CU_STREAM_CAPTURE_STATUS_NONE);
}

// Which calls a capture forbids, by its mode and by that of the thread.
TEST(unsafe_calls_end_captures) {
  CUcontext c = use();
  CUstream s = new_stream();
  const struct {
    int capture, thread;
    bool same_thread, forbidden;
  } cases[] = {
      {0, 0, true, true},  {0, 0, false, true},  {0, 1, true, true},  {0, 1, false, false}, {0, 2, true, false}, {0, 2, false, false},
      {1, 0, true, true},  {1, 0, false, false}, {1, 1, true, true},  {1, 2, true, false},  {2, 0, true, false}, {2, 0, false, false},
  };
  for (auto& k : cases) {
    OK(cuStreamBeginCapture_v2(s, k.capture));
    auto call = [&] {
      OK(cuCtxSetCurrent(c));
      int mode = k.thread;
      CUdeviceptr p = 0;
      OK(cuThreadExchangeStreamCaptureMode(&mode));
      EXPECT(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
      EXPECT(cuMemAlloc_v2(&p, 8), k.forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS);
      OK(cuThreadExchangeStreamCaptureMode(&mode));
    };
    if (k.same_thread) {
      call();
    } else {
      std::thread(call).join();
    }
    EXPECT(status(s), k.forbidden ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CUgraph g;
    EXPECT(cuStreamEndCapture(s, &g), k.forbidden ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
    if (!k.forbidden) OK(cuGraphDestroy(g));
  }
}

TEST(waiting_ends_a_capture) {
  use();
  Word w;
  CUstream s = new_stream();
  CUgraph g;
  for (int mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED}) {
    OK(cuStreamBeginCapture_v2(s, mode));
    EXPECT(cuStreamSynchronize(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT(cuStreamWriteValue64_v2(s, w.at, 1, 0), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT(cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT(cuStreamEndCapture(s, &g), 401);
  }
}

TEST(captures_belong_to_threads) {
  CUcontext c = use();
  CUstream s = new_stream();
  CUgraph g;
  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  std::thread([&] {
    CUgraph other;
    OK(cuCtxSetCurrent(c));
    EXPECT(cuStreamEndCapture(s, &other), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  }).join();
  OK(cuStreamEndCapture(s, &g));
}

TEST(default_stream_and_captures) {
  use();
  Word w;
  CUstream blocking = new_stream(0);
  CUgraph g;
  EXPECT(cuStreamBeginCapture_v2(nullptr, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  OK(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT(cuStreamWriteValue64_v2(nullptr, w.at, 1, 0), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT(cuStreamEndCapture(blocking, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST(work_outside_is_not_captured) {
  use();
  Word w;
  CUstream s = new_stream(), t = new_stream();
  CUevent e;
  CUgraph g;
  OK(cuEventCreate(&e, 0));
  OK(cuEventRecord(e, t));
  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT(cuStreamWaitEvent(s, e, 0), 905);
  EXPECT(cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
