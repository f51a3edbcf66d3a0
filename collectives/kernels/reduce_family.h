// The kernels that know element types: all-reduce, reduce-scatter and reduce. A
// transport with memory channels compiles this file once for each type, with
// -DMSCCLPP_TYPE=<number of the type>, into images of the family "reduce", or in the
// parts of parts.h.
#ifndef MSCCLPP_COLLECTIVES_REDUCE_FAMILY_H_
#define MSCCLPP_COLLECTIVES_REDUCE_FAMILY_H_

#include "allreduce_chunk.h"
#include "allreduce_packets.h"
#include "allreduce_ring.h"
#include "allreduce_switch.h"
#include "chain_reduce.h"
#include "pipeline.h"
#include "ll_reduce.h"
#include "parts.h"
#include "pull.h"
#include "reducescatter.h"
#include "rooted.h"
#include "steps.h"
#include "stream_reduce.h"
#include "zerocopy.h"

// Of types that are rarely reduced, images for GPUs have but one kernel for small and
// two for large messages, beside those of PUSHED_SUMS: they are in version control, and in programs.
#if (MSCCLPP_TARGET_CUDA || MSCCLPP_TARGET_HIP) && \
    (MSCCLPP_TYPE == 4 || MSCCLPP_TYPE == 7 || MSCCLPP_TYPE == 8 || MSCCLPP_TYPE == 9 || MSCCLPP_TYPE >= 11)
#define MSCCLPP_FEW_KERNELS 1
#else
#define MSCCLPP_FEW_KERNELS 0
#endif

#define MSCCLPP_LONG_KERNELS !MSCCLPP_TARGET_HIP  // they spill there
#define MSCCLPP_PUSHED_SUMS (MSCCLPP_PART == 0 && MSCCLPP_GPU_KERNELS)
#if MSCCLPP_PUSHED_SUMS
#include "sum_shares.h"
#endif

namespace mscclpp {
namespace collectives {

// Those outside of MSCCLPP_FEW_KERNELS are for every type.
#if MSCCLPP_HAS_PART(ALLREDUCE)
MSCCLPP_KERNEL(mscclpp_allreduce_zerocopy, Args, args) { allreduce_zerocopy<Element>(args); }
#if MSCCLPP_GPU_KERNELS
MSCCLPP_KERNEL(mscclpp_allreduce_oneshot_ll8, LLArgs, args) { MSCCLPP_LL(ll_allreduce, Words<Element>, true, args) }
#if !MSCCLPP_FEW_KERNELS
MSCCLPP_KERNEL(mscclpp_allreduce_oneshot_ll128, LLArgs, args) { MSCCLPP_LL(ll_allreduce, LineCarrier, true, args) }
MSCCLPP_KERNEL(mscclpp_allreduce_twoshot_ll128, LLArgs, args) { MSCCLPP_LL(ll_allreduce_twoshot, LineCarrier, true, args) }
#if MSCCLPP_LONG_KERNELS
MSCCLPP_KERNEL(mscclpp_allreduce_stream_ll128, LLArgs, args) { MSCCLPP_STREAM(stream_reduce, true) }
#endif
#endif
#endif
#endif

#if MSCCLPP_HAS_PART(SUMS)
MSCCLPP_KERNEL(mscclpp_allreduce_twophase_chunk, Args, args) { allreduce_twophase_chunk<Element>(args); }
#if MSCCLPP_GPU_KERNELS
MSCCLPP_KERNEL(mscclpp_steps_sum, StepArgs, args) { step_sum<Element>(args); }
#endif
#if !MSCCLPP_FEW_KERNELS
MSCCLPP_KERNEL(mscclpp_allreduce_allpair_ll8, Args, args) { allreduce_allpair_packets<Element, LL8Packet>(args); }
MSCCLPP_KERNEL(mscclpp_allreduce_twophase_ll8, Args, args) { allreduce_twophase_packets<Element, LL8Packet>(args); }
#endif
#endif

#if MSCCLPP_HAS_PART(REDUCESCATTER)
MSCCLPP_KERNEL(mscclpp_reducescatter_chunk, Args, args) { reducescatter_chunk<Element>(args); }
MSCCLPP_KERNEL(mscclpp_reducescatter_zerocopy, Args, args) { reducescatter_zerocopy<Element>(args); }
#if MSCCLPP_GPU_KERNELS
MSCCLPP_KERNEL(mscclpp_reducescatter_direct_ll8, LLArgs, args) { MSCCLPP_LL(ll_reducescatter, Words<Element>, true, args) }
#endif
#if !MSCCLPP_FEW_KERNELS
MSCCLPP_KERNEL(mscclpp_reducescatter_ll8, Args, args) { reducescatter_packets<Element, LL8Packet>(args); }
#if MSCCLPP_GPU_KERNELS
MSCCLPP_KERNEL(mscclpp_reducescatter_direct_ll128, LLArgs, args) { MSCCLPP_LL(ll_reducescatter, LineCarrier, true, args) }
#if MSCCLPP_LONG_KERNELS
MSCCLPP_KERNEL(mscclpp_reducescatter_stream_ll128, LLArgs, args) { MSCCLPP_STREAM(stream_reducescatter) }
#endif
#endif
#endif
#endif

#if MSCCLPP_HAS_PART(ROOTED)
MSCCLPP_KERNEL(mscclpp_reduce_chunk, Args, args) { reduce_chunk<Element>(args); }
MSCCLPP_KERNEL(mscclpp_reduce_zerocopy, Args, args) { reduce_zerocopy<Element>(args); }
#if MSCCLPP_GPU_KERNELS
MSCCLPP_KERNEL(mscclpp_reduce_direct_ll8, LLArgs, args) { MSCCLPP_LL(ll_reduce, Words<Element>, true, args) }
#if !MSCCLPP_FEW_KERNELS
MSCCLPP_KERNEL(mscclpp_reduce_direct_ll128, LLArgs, args) { MSCCLPP_LL(ll_reduce, LineCarrier, false, args) }
#if MSCCLPP_LONG_KERNELS
MSCCLPP_KERNEL(mscclpp_reduce_twoshot_ll128, LLArgs, args) { MSCCLPP_LL(ll_reduce_twoshot, LineCarrier, true, args) }
MSCCLPP_KERNEL(mscclpp_reduce_shares, Args, args) { reduce_shares<Element>(args); }
MSCCLPP_KERNEL(mscclpp_reduce_fetch, Args, args) { reduce_fetch<Element>(args); }
MSCCLPP_KERNEL(mscclpp_reduce_stream_ll128, LLArgs, args) { MSCCLPP_STREAM(stream_reduce, false) }
MSCCLPP_KERNEL(mscclpp_reduce_chain, Args, args) { reduce_chain<Element>(args); }
MSCCLPP_KERNEL(mscclpp_reduce_chain_ll128, LLArgs, args) { MSCCLPP_STREAM(chain_reduce) }
#endif
#endif
#endif
#endif

// GPUs store and load either packet in one access, so LL8 is enough for them, and their tables
// have no other algorithm of these. The switch between GPUs has images of its own (switch_family.h).
#if MSCCLPP_TARGET_CPU || MSCCLPP_TARGET_CHECK
MSCCLPP_KERNEL(mscclpp_allreduce_allpair_chunk, Args, args) { allreduce_allpair_chunk<Element>(args); }
MSCCLPP_KERNEL(mscclpp_allreduce_switch, Args, args) { allreduce_switch<Element>(args); }
MSCCLPP_KERNEL(mscclpp_allreduce_ring, Args, args) { allreduce_ring<Element>(args); }
MSCCLPP_KERNEL(mscclpp_allreduce_allpair_ll16, Args, args) { allreduce_allpair_packets<Element, LL16Packet>(args); }
MSCCLPP_KERNEL(mscclpp_allreduce_twophase_ll16, Args, args) { allreduce_twophase_packets<Element, LL16Packet>(args); }
MSCCLPP_KERNEL(mscclpp_reducescatter_ll16, Args, args) { reducescatter_packets<Element, LL16Packet>(args); }
#endif

// Where all parts are one image, which AMD's GPUs have, messages are summed by stores alone. NVLink has no need of that.
#if MSCCLPP_PUSHED_SUMS
MSCCLPP_KERNEL(mscclpp_allreduce_shares, Args, args) { sum_shares<Element, true>(args); }
MSCCLPP_KERNEL(mscclpp_reducescatter_shares, Args, args) { sum_shares<Element, false>(args); }
#endif

#if MSCCLPP_TARGET_CPU
MSCCLPP_KERNEL(mscclpp_allreduce_pull, Args, args) { allreduce_pull<Element>(args); }
MSCCLPP_KERNEL(mscclpp_reducescatter_pull, Args, args) { reducescatter_pull<Element>(args); }
#endif

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_REDUCE_FAMILY_H_
