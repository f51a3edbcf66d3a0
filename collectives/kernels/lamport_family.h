// Reductions by packets without a flag, compiled once for each type that has a NaN, with -DMSCCLPP_TYPE=<number of the
// type>, into images of the family "lamport". For processors they are beside those of reduce_family.h.
#ifndef MSCCLPP_COLLECTIVES_LAMPORT_FAMILY_H_
#define MSCCLPP_COLLECTIVES_LAMPORT_FAMILY_H_

#include "lamport.h"

// f32, f16, bf16, f64, e4m3 and e5m2.
#define MSCCLPP_HAS_NAN (MSCCLPP_TYPE <= 3 || MSCCLPP_TYPE == 10 || MSCCLPP_TYPE == 11)

namespace mscclpp {
namespace collectives {

#if MSCCLPP_GPU_KERNELS && MSCCLPP_HAS_NAN
MSCCLPP_KERNEL(mscclpp_allreduce_oneshot_lamport, LLArgs, args) { MSCCLPP_LAMPORT(lamport_allreduce, Element, args) }
#if MSCCLPP_TYPE <= 2  // types that are often reduced
MSCCLPP_KERNEL(mscclpp_reducescatter_direct_lamport, LLArgs, args) { MSCCLPP_LAMPORT(lamport_reducescatter, Element, args) }
MSCCLPP_KERNEL(mscclpp_reduce_direct_lamport, LLArgs, args) { MSCCLPP_LAMPORT(lamport_reduce, Element, args) }
#endif
#endif

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_LAMPORT_FAMILY_H_
