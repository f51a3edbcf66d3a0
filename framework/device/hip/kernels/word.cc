// The kernel that stores a word for the host, behind all work before it on its stream. It stands for hipStreamWriteValue64, which
// is a kernel as well, and which captures do not record.
#include <mscclpp/device.h>

struct WordArgs {
  uint64_t* address;
  uint64_t value;
};

MSCCLPP_KERNEL(mscclpp_hip_word, WordArgs, a) {
  if (mscclpp::thread_id() == 0) mscclpp::store_release(a.address, a.value);
}
