// The kernels over the window of a switch that move bytes of whatever type: images of the family "switchmove".
#ifndef MSCCLPP_COLLECTIVES_SWITCH_MOVE_FAMILY_H_
#define MSCCLPP_COLLECTIVES_SWITCH_MOVE_FAMILY_H_

#include "switch_move.h"

namespace mscclpp {
namespace collectives {

MSCCLPP_KERNEL(mscclpp_allgather_switch, Args, args) { window_gather(args); }
#if MSCCLPP_TARGET_GPU
MSCCLPP_KERNEL(mscclpp_allgather_switch_zerocopy, Args, args) { registered_gather(args); }
#endif
MSCCLPP_KERNEL(mscclpp_broadcast_switch, Args, args) { window_broadcast(args); }
MSCCLPP_KERNEL(mscclpp_barrier_switch, Args, args) { window_barrier(args); }

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_SWITCH_MOVE_FAMILY_H_
