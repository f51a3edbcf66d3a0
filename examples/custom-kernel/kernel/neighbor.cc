// Every rank sends its values to the next one and adds what it gets to its own.
// Right for any number of threads in one block, one included.
#include <mscclpp/device.h>

#include "neighbor.h"

MSCCLPP_KERNEL(add_neighbor, NeighborArgs, args) {
  using namespace mscclpp;
  const MemoryChannel& next = static_cast<const MemoryChannel&>(args.next);
  const MemoryChannel& previous = static_cast<const MemoryChannel&>(args.previous);
  const uint32_t thread = thread_id(), threads = block_dim();

  // All threads copy; when they are done, one of them says so.
  next.put(args.inbox, 0, args.count * sizeof(float), thread, threads);
  block_sync();
  bool ok = true;
  if (thread == 0) {
    next.signal();
    ok = previous.wait();
  }
  // A wait fails when the job is being ended: leave at once, all threads alike.
  if (!block_sync_and(ok)) return;

  const char* own = static_cast<const char*>(next.src);
  const void* const inputs[2] = {own, own + args.inbox};
  const auto input = [&](uint32_t i) { return i == 0 ? inputs[0] : inputs[1]; };
  reduce_n<float>(static_cast<char*>(next.src) + args.result, input, 2, args.count, reduction(kSum), thread, threads);

  // The inbox may be filled again once the previous rank knows that it was read.
  block_sync();
  if (thread == 0) {
    previous.signal();
    ok = next.wait();
  }
  block_sync_and(ok);
}
