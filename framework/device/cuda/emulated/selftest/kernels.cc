#include "test.h"

const char kPtx[] = R"(
.version 7.8
.target sm_90
.address_size 64
.visible .entry copies_word(
	.param .align 8 .b8 copies_word_param_0[24]
)
.maxntid 512, 1, 1
{
	ret;
}
.visible .entry spins(.param .u64 word, .param .u32 until)
{
	ret;
}
)";

namespace {

struct Copy {
  uint64_t *to, *from;
  uint64_t add;
};

CUresult launch(CUfunction f, CUstream s, unsigned grid, unsigned block, void* data, size_t bytes, unsigned shared = 0) {
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, data, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  CUlaunchAttribute overlap{};
  overlap.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  overlap.value.programmaticStreamSerializationAllowed = 1;
  const CUlaunchConfig config = {grid, 1, 1, block, 1, 1, shared, s, &overlap, 1};
  return cuLaunchKernelEx(&config, f, nullptr, extra);
}

CUmodule load(const char* image, CUresult want, std::string* log) {
  CUmodule m = nullptr;
  std::vector<char> text(512);
  int options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {text.data(), reinterpret_cast<void*>(text.size())};
  EXPECT(cuModuleLoadDataEx(&m, image, 2, options, values), want);
  *log = text.data();
  return m;
}

}  // namespace

// Loading spoils the captures that its thread has not said it does not concern.
TEST(loading_in_a_capture) {
  use();
  std::string log;
  CUgraph g;
  CUstream s = new_stream();
  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  load(kPtx, 900, &log);
  EXPECT(cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  CUmodule m = load(kPtx, CUDA_SUCCESS, &log);
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  OK(cuStreamEndCapture(s, &g));
  OK(cuGraphDestroy(g));
  OK(cuModuleUnload(m));
}

TEST(kernels_run_in_order) {
  use();
  std::string log;
  CUmodule m = load(kPtx, CUDA_SUCCESS, &log);
  CUfunction f, none;
  OK(cuModuleGetFunction(&f, m, "copies_word"));
  EXPECT(cuModuleGetFunction(&none, m, "missing"), CUDA_ERROR_NOT_FOUND);
  int most;
  OK(cuFuncGetAttribute(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f));
  EXPECT(most, 512);
  Word a, b;
  CUstream s = new_stream();
  Copy args = {reinterpret_cast<uint64_t*>(b.at), reinterpret_cast<uint64_t*>(a.at), 1};
  OK(cuStreamWriteValue64_v2(s, a.at, 41, 0));
  OK(launch(f, s, 32, 512, &args, sizeof args));
  args = {};  // taken at the launch
  OK(cuStreamSynchronize(s));
  EXPECT(b.get(), 42);
  EXPECT(launch(f, s, 32, 513, &args, sizeof args), CUDA_ERROR_INVALID_VALUE);
  EXPECT(launch(f, s, 0, 1, &args, sizeof args), CUDA_ERROR_INVALID_VALUE);
  EXPECT(launch(f, s, 1, 1, &args, sizeof args - 8), CUDA_ERROR_INVALID_VALUE);
  EXPECT(launch(f, s, 1, 1, &args, sizeof args, 64 << 10), CUDA_ERROR_INVALID_VALUE);
  OK(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 64 << 10));
  args = {reinterpret_cast<uint64_t*>(b.at), reinterpret_cast<uint64_t*>(a.at), 2};
  OK(launch(f, s, 1, 1, &args, sizeof args, 64 << 10));
  OK(cuStreamSynchronize(s));
  EXPECT(b.get(), 43);
  int blocks;
  OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 512, 0));
  EXPECT(blocks, 4);
  use(1);
  EXPECT(launch(f, s, 1, 1, &args, sizeof args), 400);  // the stream is of another context
  use(0);
  OK(cuModuleUnload(m));
  EXPECT(cuModuleUnload(m), 400);
  EXPECT(launch(f, s, 1, 1, &args, sizeof args), 400);
}

// Kernels that spin on each other run at the same time, and in graphs.
TEST(kernels_wait_for_each_other) {
  use();
  std::string log;
  CUmodule m = load(kPtx, CUDA_SUCCESS, &log);
  CUfunction spins, copies;
  OK(cuModuleGetFunction(&spins, m, "spins"));
  OK(cuModuleGetFunction(&copies, m, "copies_word"));
  Word flag, one, out;
  CUstream s = new_stream(), t = new_stream();
  struct {
    uint64_t word;
    uint32_t until, pad;
  } wait = {flag.at, 1, 0};
  Copy args = {reinterpret_cast<uint64_t*>(flag.at), reinterpret_cast<uint64_t*>(one.at), 1};
  OK(launch(spins, s, 4, 32, &wait, 12));
  EXPECT(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
  OK(launch(copies, t, 4, 32, &args, sizeof args));
  OK(cuStreamSynchronize(s));

  CUgraph g;
  CUgraphExec e;
  args.to = reinterpret_cast<uint64_t*>(out.at);
  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(launch(copies, s, 4, 32, &args, sizeof args));
  args = {};
  OK(cuStreamEndCapture(s, &g));
  OK(cuGraphInstantiateWithFlags(&e, g, 0));
  for (uint64_t i = 0; i < 1000; ++i) {
    OK(cuStreamWriteValue64_v2(s, one.at, i, 0));
    OK(cuGraphLaunch(e, s));
  }
  OK(cuStreamSynchronize(s));
  EXPECT(out.get(), 1000);
}

// A kernel that touches freed memory loses its device, and no other.
TEST(faults_lose_the_device) {
  CUcontext other = use(1);
  use(0);
  std::string log;
  CUmodule m = load(kPtx, CUDA_SUCCESS, &log);
  CUfunction f;
  OK(cuModuleGetFunction(&f, m, "copies_word"));
  CUstream s = new_stream(), t = new_stream();
  CUdeviceptr p;
  Word never;
  OK(cuMemAlloc_v2(&p, 8));
  OK(cuMemFree_v2(p));
  OK(cuStreamWaitValue64_v2(t, never.at, 1, 0));  // ends with the device
  Copy args = {reinterpret_cast<uint64_t*>(p), reinterpret_cast<uint64_t*>(p), 1};
  OK(launch(f, s, 1, 1, &args, sizeof args));
  EXPECT(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT(cuStreamSynchronize(t), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT(cuMemAlloc_v2(&p, 8), CUDA_ERROR_ILLEGAL_ADDRESS);
  OK(cuCtxSetCurrent(other));
  OK(cuMemAlloc_v2(&p, 8));
  OK(cuDevicePrimaryCtxRelease_v2(0));
  use(0);
  OK(cuMemAlloc_v2(&p, 8));
}

TEST(images_that_do_not_load) {
  use();
  std::string log;
  load("no ptx at all", CUDA_ERROR_INVALID_PTX, &log);
  EXPECT(log.find("fatal") != std::string::npos, true);
  load(".version 7.8\n.target sm_90\n.visible .entry other()\n{\n}\n", CUDA_ERROR_NO_BINARY_FOR_GPU, &log);
  EXPECT(log.find("CUDA_EMULATED_IMAGES") != std::string::npos, true);
}

TEST(errors_have_names) {
  const char* text;
  OK(cuGetErrorName(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, &text));
  EXPECT(strcmp(text, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"), 0);
  OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
  EXPECT(strcmp(text, "out of memory"), 0);
  EXPECT(cuGetErrorName(12345, &text), CUDA_ERROR_INVALID_VALUE);
}
