// The argument of the kernel. main.go has the Go twin.
#ifndef NEIGHBOR_H_
#define NEIGHBOR_H_

#include <mscclpp/layout.h>

struct NeighborArgs {
  mscclpp::MemoryChannelHandle next;      // to the rank after this one
  mscclpp::MemoryChannelHandle previous;  // to the rank before
  uint64_t count;                         // floats
  uint64_t inbox;                         // byte offsets in every rank's memory: what the previous rank sent…
  uint64_t result;                        // …and own + inbox; own values are at 0
};

#endif
