#include <unistd.h>

#include "test.h"

// A stream that waits for a word does not hold up the program, nor other streams.
TEST(streams_run_beside_each_other) {
  use();
  Word go, done;
  CUstream a = new_stream(), b = new_stream();
  OK(cuStreamWaitValue64_v2(a, go.at, 5, CU_STREAM_WAIT_VALUE_GEQ));
  OK(cuStreamWriteValue64_v2(a, done.at, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
  EXPECT(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
  OK(cuStreamQuery(b));
  OK(cuStreamWriteValue64_v2(b, go.at, 5, CU_STREAM_WRITE_VALUE_DEFAULT));
  OK(cuStreamSynchronize(a));
  EXPECT(done.get(), 1);
  OK(cuStreamQuery(a));
}

TEST(order_within_a_stream) {
  use();
  Word w;
  CUstream s = new_stream();
  for (uint64_t i = 1; i <= 10000; ++i) OK(cuStreamWriteValue64_v2(s, w.at, i, 0));
  OK(cuStreamSynchronize(s));
  EXPECT(w.get(), 10000);
}

TEST(default_stream_waits_for_blocking_streams) {
  use();
  Word go, w;
  CUstream blocking = new_stream(0), free = new_stream();
  OK(cuStreamWaitValue64_v2(blocking, go.at, 1, 0));
  OK(cuStreamWriteValue64_v2(blocking, w.at, 1, 0));
  OK(cuStreamWriteValue64_v2(nullptr, w.at, 2, 0));
  OK(cuStreamWriteValue64_v2(blocking, w.at, 3, 0));
  EXPECT(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  OK(cuStreamQuery(free));
  OK(cuStreamWriteValue64_v2(free, go.at, 1, 0));
  OK(cuStreamSynchronize(nullptr));
  OK(cuStreamSynchronize(blocking));
  EXPECT(w.get(), 3);
}

TEST(events_order_streams) {
  use();
  Word go, w;
  CUstream a = new_stream(), b = new_stream();
  CUevent start, end, silent;
  float ms = -1;
  OK(cuEventCreate(&start, 0));
  OK(cuEventCreate(&end, 0));
  OK(cuEventCreate(&silent, CU_EVENT_DISABLE_TIMING));
  OK(cuStreamWaitEvent(b, start, 0));  // not recorded yet: nothing to wait for
  OK(cuEventQuery(start));
  EXPECT(cuEventElapsedTime(&ms, start, end), 400);
  OK(cuEventRecord(start, a));
  OK(cuStreamWaitValue64_v2(a, go.at, 1, 0));
  OK(cuStreamWriteValue64_v2(a, w.at, 1, 0));
  OK(cuEventRecord(end, a));
  OK(cuEventRecord(silent, a));
  OK(cuStreamWaitEvent(b, end, 0));
  OK(cuStreamWriteValue64_v2(b, w.at, 2, 0));
  EXPECT(cuEventQuery(end), CUDA_ERROR_NOT_READY);
  EXPECT(cuEventElapsedTime(&ms, start, end), CUDA_ERROR_NOT_READY);
  EXPECT(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
  go.set(1);
  OK(cuEventSynchronize(end));
  OK(cuStreamSynchronize(b));
  EXPECT(w.get(), 2);
  OK(cuEventElapsedTime(&ms, start, end));
  EXPECT(ms >= 0 && ms < 60000, true);
  EXPECT(cuEventElapsedTime(&ms, start, silent), 400);
  OK(cuEventDestroy_v2(end));
  EXPECT(cuEventQuery(end), 400);
}

TEST(destroyed_streams_finish) {
  use();
  Word go, w;
  CUstream s = new_stream();
  OK(cuStreamWaitValue64_v2(s, go.at, 1, 0));
  OK(cuStreamWriteValue64_v2(s, w.at, 1, 0));
  OK(cuStreamDestroy_v2(s));
  EXPECT(cuStreamQuery(s), 400);
  go.set(1);
  while (w.get() == 0) usleep(100);
}

TEST(words_are_compared) {
  use();
  Word w;
  CUstream s = new_stream();
  w.set(6);
  OK(cuStreamWaitValue64_v2(s, w.at, 6, 1));
  OK(cuStreamWaitValue64_v2(s, w.at, 2, 2));
  OK(cuStreamWaitValue64_v2(s, w.at, 1, 3));
  OK(cuStreamWaitValue64_v2(s, w.at, ~0ull, 0));  // cyclic: 6 comes after -1
  OK(cuStreamSynchronize(s));
  OK(cuStreamWaitValue64_v2(s, w.at, 7, 0));
  EXPECT(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
  w.set(7);
  OK(cuStreamSynchronize(s));
  EXPECT(cuStreamWaitValue64_v2(s, w.at + 4, 7, 0), CUDA_ERROR_INVALID_VALUE);
}

// Memory that the program passes may change as soon as the call is back.
TEST(ordinary_memory_is_taken_at_once) {
  use();
  Word go;
  CUdeviceptr p;
  CUstream s = new_stream();
  char text[8] = "before";
  OK(cuMemAlloc_v2(&p, 8));
  OK(cuStreamWaitValue64_v2(s, go.at, 1, 0));
  OK(cuMemcpyHtoDAsync_v2(p, text, 8, s));
  strcpy(text, "after");
  go.set(1);
  OK(cuMemcpyDtoHAsync_v2(text, p, 8, s));  // waits
  EXPECT(strcmp(text, "before"), 0);
  OK(cuMemcpyAsync(p + 4, p, 4, s));
  EXPECT(cuMemcpyAsync(p + 4, p, 5, s), CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuMemcpyHtoDAsync_v2(p, nullptr, 8, s), CUDA_ERROR_INVALID_VALUE);
  OK(cuStreamSynchronize(s));
  EXPECT(memcmp(download(p, 8).data(), "befobefo", 8), 0);
}

TEST(free_waits_for_the_device) {
  use();
  Word go;
  CUdeviceptr p;
  CUstream s = new_stream();
  OK(cuMemAlloc_v2(&p, 8));
  OK(cuStreamWaitValue64_v2(s, go.at, 1, 0));
  OK(cuStreamWriteValue64_v2(s, p, 1, 0));
  std::atomic<bool> freed{false};
  CUcontext c;
  OK(cuCtxGetCurrent(&c));
  std::thread t([&] {
    OK(cuCtxSetCurrent(c));
    OK(cuMemFree_v2(p));
    freed = true;
  });
  usleep(20000);
  EXPECT(freed, false);
  go.set(1);
  t.join();
}
