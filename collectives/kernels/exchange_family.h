// The kernel between hosts, in an image of its own: it has other arguments than the
// kernels within one, so that a change of its does not make all images anew.
#ifndef MSCCLPP_COLLECTIVES_EXCHANGE_FAMILY_H_
#define MSCCLPP_COLLECTIVES_EXCHANGE_FAMILY_H_

#include "exchange.h"

namespace mscclpp {
namespace collectives {

#if MSCCLPP_GPU_KERNELS
MSCCLPP_KERNEL(mscclpp_steps_exchange, ExchangeArgs, args) { exchange(args); }
#endif

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_EXCHANGE_FAMILY_H_
