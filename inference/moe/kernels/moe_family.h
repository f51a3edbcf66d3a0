// Rows go to the ranks of the experts that their tokens have chosen, and what these make of them comes back: one image for each type.
#ifndef MSCCLPP_INFERENCE_MOE_FAMILY_H_
#define MSCCLPP_INFERENCE_MOE_FAMILY_H_

#include "moe_combine.h"
#include "moe_dispatch.h"
#include "moe_host.h"

namespace mscclpp {
namespace inference {

template <class T>
MSCCLPP_DEVICE void moe_dispatch(const MoeArgs& a) {
#if MSCCLPP_TARGET_CPU
  moe_on_host<HostDispatch<T>>(a, kDispatch);
#else
  moe_run<Dispatch<T>>(a);
#endif
}
template <class T>
MSCCLPP_DEVICE void moe_combine(const MoeArgs& a) {
#if MSCCLPP_TARGET_CPU
  moe_on_host<HostCombine<T>>(a, kCombine);
#else
  moe_run<Combine<T>>(a);
#endif
}

// So many blocks share a multiprocessor, most of which wait: inference/moe/run.go counts on it.
#if MSCCLPP_TARGET_CUDA
extern "C" MSCCLPP_GLOBAL void __attribute__((launch_bounds(MSCCLPP_MAX_THREADS, 8))) mscclpp_moe_dispatch(const MoeArgs args) { moe_dispatch<Element>(args); }
extern "C" MSCCLPP_GLOBAL void __attribute__((launch_bounds(MSCCLPP_MAX_THREADS, 6))) mscclpp_moe_combine(const MoeArgs args) { moe_combine<Element>(args); }
#else
MSCCLPP_KERNEL(mscclpp_moe_dispatch, MoeArgs, args) { moe_dispatch<Element>(args); }
MSCCLPP_KERNEL(mscclpp_moe_combine, MoeArgs, args) { moe_combine<Element>(args); }
#endif

}  // namespace inference
}  // namespace mscclpp
#endif  // MSCCLPP_INFERENCE_MOE_FAMILY_H_
