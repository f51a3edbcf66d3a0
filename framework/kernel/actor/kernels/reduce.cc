#include <mscclpp/device.h>

#include "actor.h"

namespace mscclpp {
namespace actor {

MSCCLPP_DEVICE bool reduce(const ReduceArgs& a) {
  const uint32_t tid = global_thread(), threads = global_threads();
  const Reduction r = reduction(static_cast<ReduceOp>(a.op), a.scale, a.divisor, a.partial);
  const WaitSite site = {a.kernel, 0, 0, a.flag};
  switch (a.source) {
    case kFromLL8:
      return reduce_packets<Element, LL8Packet>(a.out, a.inputs, a.self, a.n, a.count, r, a.flag, a.control, site, tid, threads);
    case kFromLL16:
      return reduce_packets<Element, LL16Packet>(a.out, a.inputs, a.self, a.n, a.count, r, a.flag, a.control, site, tid, threads);
    default: reduce_n<Element>(a.out, a.inputs, a.n, a.count, r, tid, threads); return true;
  }
}

}  // namespace actor
}  // namespace mscclpp

MSCCLPP_KERNEL(mscclpp_actor_reduce, mscclpp::actor::ReduceArgs, args) {
  if (!mscclpp::actor::reduce(args)) mscclpp::store_relaxed_device(args.failed, 1u);
}
