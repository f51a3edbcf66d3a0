// The argument of both kernels. matrix.go has the Go twin.
#ifndef FUSED_H_
#define FUSED_H_

#include <mscclpp/layout.h>

// Peers that one rank can have.
#define FUSED_PEERS 7

// C = A times the transposed B. All are f16 in rows without gaps. Every rank has some
// rows of A, all of B, and room for all of C.
struct FusedArgs {
  const void* a;      // rows x k: this rank's
  const void* b;      // n x k
  void* c;            // all rows of C x n; what the channels lead to in the peers
  uint32_t* done;     // one word for each block of this rank's rows: tiles that are finished. Zero between launches
  uint64_t first;     // the row of C in which this rank's begin
  uint32_t rows;      // of this rank: a multiple of the tile, as n
  uint32_t n;
  uint32_t k;         // a multiple of the step
  uint32_t peers;     // entries below, from the rank after this one on; 0: a multiplication and nothing else
  mscclpp::MemoryChannelHandle tiles[FUSED_PEERS];  // signaled once for each block of rows
  mscclpp::MemoryChannelHandle ready[FUSED_PEERS];  // signaled once a launch: its C may be overwritten
};

#endif
