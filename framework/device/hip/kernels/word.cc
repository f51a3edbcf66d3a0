// The kernels that store a word for the host, behind all work before it on its stream, and that wait for one, before all work
// behind it. They stand for hipStreamWriteValue64 and hipStreamWaitValue64, which are kernels as well, and which captures do not
// record.
#include <mscclpp/device.h>

struct WordArgs {
  uint64_t* address;
  uint64_t value;
};

namespace {

MSCCLPP_DEVICE void between_looks() {
#if MSCCLPP_TARGET_HIP
  MSCCLPP_BETWEEN_POLLS()
#else
  const struct timespec moment = {0, 20000};  // a processor that stands for the GPU has other threads to run
  nanosleep(&moment, nullptr);
#endif
}

}  // namespace

MSCCLPP_KERNEL(mscclpp_hip_word, WordArgs, a) {
  if (mscclpp::thread_id() == 0) mscclpp::store_release(a.address, a.value);
}

// The wait has no end but the word, as the runtime's own: the host stores it in every case, also when it gives up.
MSCCLPP_KERNEL(mscclpp_hip_wait, WordArgs, a) {
  if (mscclpp::thread_id() != 0) return;
  while (static_cast<int64_t>(mscclpp::load_relaxed(a.address) - a.value) < 0) between_looks();
  mscclpp::fence_system();
}
