// The kernels of the suite for devices: right for any grid and any block.
#include <mscclpp/device.h>

struct ConformArgs {
  uint64_t* words;  // count of them, to each of which value is added; may be null
  uint64_t* latch;   // null, or a word that is awaited first: the kernel begins when it is not 0
  uint64_t count;
  uint64_t value;
};

MSCCLPP_KERNEL(conform_add, ConformArgs, args) {
  using namespace mscclpp;
  if (block_id() != 0) return;
  if (args.latch != nullptr) {
    if (thread_id() == 0) {
      while (load_acquire(args.latch) == 0) {
      }
    }
    block_sync();
  }
  for (uint64_t i = thread_id(); i < args.count; i += block_dim()) args.words[i] += args.value;
}

// Stores a word that others poll, with all stores before it.
MSCCLPP_KERNEL(conform_release, ConformArgs, args) {
  using namespace mscclpp;
  if (block_id() == 0 && thread_id() == 0) store_release(args.latch, args.value);
}
