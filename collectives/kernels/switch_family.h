// The kernels over the window of a switch that know element types, compiled once for each, with
// -DMSCCLPP_TYPE=<number of the type>, into images of the family "switch". For processors they are beside those of
// reduce_family.h, in which the all-reduce for any type and operation is.
#ifndef MSCCLPP_COLLECTIVES_SWITCH_FAMILY_H_
#define MSCCLPP_COLLECTIVES_SWITCH_FAMILY_H_

#include "switch_reduce.h"

namespace mscclpp {
namespace collectives {

#if MSCCLPP_TARGET_GPU
MSCCLPP_KERNEL(mscclpp_allreduce_switch, Args, args) { window_twoshot<Element, kSum>(args); }
MSCCLPP_KERNEL(mscclpp_allreduce_switch_zerocopy, Args, args) { registered_twoshot<Element, kSum>(args); }
MSCCLPP_KERNEL(mscclpp_reducescatter_switch_zerocopy, Args, args) { registered_scatter<Element, kSum>(args); }
// Hardware has no minimum and maximum of f32 and f64.
#if MSCCLPP_TYPE != 0 && MSCCLPP_TYPE != 3
MSCCLPP_KERNEL(mscclpp_allreduce_switch_minmax, Args, args) {
  if (args.op == kMin) {
    window_twoshot<Element, kMin>(args);
  } else {
    window_twoshot<Element, kMax>(args);
  }
}
#endif
#endif  // MSCCLPP_TARGET_GPU
MSCCLPP_KERNEL(mscclpp_allreduce_switch_packets, Args, args) { window_packets<Element>(args); }
MSCCLPP_KERNEL(mscclpp_reducescatter_switch, Args, args) { window_scatter<Element, kSum>(args); }

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_SWITCH_FAMILY_H_
