// The kernels that move bytes of whatever type. A transport with memory channels
// compiles this file into images of the family "move", or in the parts of parts.h.
#ifndef MSCCLPP_COLLECTIVES_MOVE_FAMILY_H_
#define MSCCLPP_COLLECTIVES_MOVE_FAMILY_H_

#include "allgather.h"
#include "alltoall.h"
#include "chain.h"
#include "pipeline.h"
#include "ll_move.h"
#include "parts.h"
#include "pull.h"
#include "rooted.h"
#include "steps.h"
#include "stream_move.h"
#include "transfers.h"
#include "transfers_lines.h"
#include "zerocopy.h"

namespace mscclpp {
namespace collectives {

#if MSCCLPP_HAS_PART(ALLGATHER)
MSCCLPP_KERNEL(mscclpp_allgather_ll8, Args, args) { allgather_packets<LL8Packet>(args); }
MSCCLPP_KERNEL(mscclpp_allgather_chunk, Args, args) { allgather_chunk(args); }
#if MSCCLPP_GPU_KERNELS
MSCCLPP_KERNEL(mscclpp_allgather_push, Args, args) { allgather_push(args); }
MSCCLPP_KERNEL(mscclpp_allgather_shares, Args, args) { allgather_shares(args); }
MSCCLPP_KERNEL(mscclpp_allgather_direct_ll8, LLArgs, args) { MSCCLPP_LL_MOVE(ll_allgather, WordCarrier<1>, args) }
MSCCLPP_KERNEL(mscclpp_allgather_direct_ll128, LLArgs, args) { MSCCLPP_LL_MOVE(ll_allgather, LineCarrier, args) }
MSCCLPP_KERNEL(mscclpp_allgather_stream_ll128, LLArgs, args) { stream_allgather<LineCarrier>(args); }
#endif
#endif

#if MSCCLPP_HAS_PART(ALLTOALL)
MSCCLPP_KERNEL(mscclpp_alltoall_ll8, Args, args) { alltoall_packets<LL8Packet>(args); }
MSCCLPP_KERNEL(mscclpp_alltoall_chunk, Args, args) { alltoall_chunk(args); }
#if MSCCLPP_GPU_KERNELS
MSCCLPP_KERNEL(mscclpp_alltoall_push, Args, args) { alltoall_push(args); }
MSCCLPP_KERNEL(mscclpp_alltoall_shares, Args, args) { alltoall_shares(args); }
MSCCLPP_KERNEL(mscclpp_alltoall_direct_ll8, LLArgs, args) { MSCCLPP_LL_MOVE(ll_alltoall, WordCarrier<1>, args) }
MSCCLPP_KERNEL(mscclpp_alltoall_direct_ll128, LLArgs, args) { MSCCLPP_LL_MOVE(ll_alltoall, LineCarrier, args) }
MSCCLPP_KERNEL(mscclpp_alltoall_stream_ll128, LLArgs, args) { stream_alltoall<LineCarrier>(args); }
#endif
#endif

#if MSCCLPP_HAS_PART(BROADCAST)
MSCCLPP_KERNEL(mscclpp_broadcast_chunk, Args, args) { broadcast_chunk(args); }
#if MSCCLPP_GPU_KERNELS
MSCCLPP_KERNEL(mscclpp_broadcast_push, Args, args) { broadcast_push(args); }
MSCCLPP_KERNEL(mscclpp_broadcast_shares, Args, args) { broadcast_shares(args); }
MSCCLPP_KERNEL(mscclpp_broadcast_fetch, Args, args) { broadcast_fetch(args); }
MSCCLPP_KERNEL(mscclpp_broadcast_chain, Args, args) { broadcast_chain(args); }
MSCCLPP_KERNEL(mscclpp_broadcast_direct_ll8, LLArgs, args) { MSCCLPP_LL_MOVE(ll_broadcast, WordCarrier<1>, args) }
MSCCLPP_KERNEL(mscclpp_broadcast_direct_ll128, LLArgs, args) { MSCCLPP_LL_MOVE(ll_broadcast, LineCarrier, args) }
MSCCLPP_KERNEL(mscclpp_broadcast_stream_ll128, LLArgs, args) { stream_broadcast<LineCarrier>(args); }
MSCCLPP_KERNEL(mscclpp_broadcast_chain_ll128, LLArgs, args) { chain_broadcast<LineCarrier>(args); }
#endif
#endif

#if MSCCLPP_HAS_PART(TRANSFERS)
MSCCLPP_KERNEL(mscclpp_transfers_chunk, TransferArgs, args) { transfers(args); }
#if MSCCLPP_GPU_KERNELS
MSCCLPP_KERNEL(mscclpp_transfers_ll128, TransferArgs, args) { transfers_lines(args); }
MSCCLPP_KERNEL(mscclpp_transfers_few_ll128, LLTransferArgs, args) { transfers_lines_few(args); }
#endif
#endif

#if MSCCLPP_HAS_PART(SIGNALS)
MSCCLPP_KERNEL(mscclpp_barrier_signal, Args, args) { barrier(args); }
#if MSCCLPP_GPU_KERNELS
MSCCLPP_KERNEL(mscclpp_steps_signal, StepArgs, args) { step_signal(args); }
MSCCLPP_KERNEL(mscclpp_steps_move, StepArgs, args) { step_move(args); }
#endif
#endif

// GPUs store and load either packet in one access, so LL8 is enough for them, and their tables
// have no other algorithm of these.
#if MSCCLPP_TARGET_CPU || MSCCLPP_TARGET_CHECK
MSCCLPP_KERNEL(mscclpp_allgather_ring, Args, args) { allgather_ring(args); }
MSCCLPP_KERNEL(mscclpp_allgather_zerocopy, Args, args) { allgather_zerocopy(args); }
MSCCLPP_KERNEL(mscclpp_alltoall_zerocopy, Args, args) { alltoall_zerocopy(args); }
MSCCLPP_KERNEL(mscclpp_broadcast_zerocopy, Args, args) { broadcast_zerocopy(args); }
MSCCLPP_KERNEL(mscclpp_allgather_ll16, Args, args) { allgather_packets<LL16Packet>(args); }
MSCCLPP_KERNEL(mscclpp_alltoall_ll16, Args, args) { alltoall_packets<LL16Packet>(args); }
#endif

#if MSCCLPP_TARGET_CPU
MSCCLPP_KERNEL(mscclpp_allgather_pull, Args, args) { allgather_pull(args); }
MSCCLPP_KERNEL(mscclpp_alltoall_pull, Args, args) { alltoall_pull(args); }
MSCCLPP_KERNEL(mscclpp_broadcast_pull, Args, args) { broadcast_pull(args); }
#endif

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_MOVE_FAMILY_H_
