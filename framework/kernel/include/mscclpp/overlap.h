// Kernels that begin while the one before them on the stream still runs
// (programmatic dependent launch; device.Launch.Overlap asks for it). Only the launch
// itself overlaps: before await_previous has returned, such a kernel touches no memory
// that an earlier one may read or write.
//
// Every thread of every block of such a kernel calls await_previous, also one that
// has nothing to do. Then the end of a kernel means that all before it have ended, even
// if several in a row have called release_next early.
//
// Where the hardware cannot do it (before sm_90, AMD, CPUs) both do nothing, and
// launches are in order by themselves.
#ifndef MSCCLPP_OVERLAP_H_
#define MSCCLPP_OVERLAP_H_

#include "target.h"

#if MSCCLPP_TARGET_CUDA && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define MSCCLPP_OVERLAPS 1
#endif

namespace mscclpp {

// Returns when all earlier kernels of the stream have ended; their data is visible.
MSCCLPP_DEVICE void await_previous() {
#if MSCCLPP_OVERLAPS
  asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}

// Lets the next kernel of the stream begin once all blocks have called this or have
// ended. It orders no memory. Blocks of the next kernel occupy the device while they
// wait, so they must not keep out a kernel for which another one of the same device
// waits.
MSCCLPP_DEVICE void release_next() {
#if MSCCLPP_OVERLAPS
  asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
#endif
}

}  // namespace mscclpp
#endif  // MSCCLPP_OVERLAP_H_
