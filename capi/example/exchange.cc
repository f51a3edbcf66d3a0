// A kernel of the program: each rank stores its numbers in the peer's memory, and waits for those of the peer.
#include <mscclpp/device.h>

#include "exchange.h"

using namespace mscclpp;

MSCCLPP_IMAGE()

MSCCLPP_KERNEL(exchange, struct exchange, args) {
  const MemoryChannel& channel = reinterpret_cast<const MemoryChannel&>(args.channel);
  uint32_t* const mine = reinterpret_cast<uint32_t*>(args.memory);
  for (uint32_t i = global_thread(); i < EXCHANGE_COUNT; i += global_threads()) mine[i] = 1000000 * (args.rank + 1) + i;
  block_sync();
  channel.put(EXCHANGE_COUNT * sizeof(uint32_t), 0, EXCHANGE_COUNT * sizeof(uint32_t), thread_id(), block_dim());
  block_sync();
  if (thread_id() != 0) return;
  channel.signal();
  channel.wait();  // for what the peer has stored here; it ends early if the communicator fails
}
