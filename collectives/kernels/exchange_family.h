// The kernels between hosts have an image of their own. Their arguments differ from those of the kernels
// within a host, and a change to them need not rebuild all images.
#ifndef MSCCLPP_COLLECTIVES_EXCHANGE_FAMILY_H_
#define MSCCLPP_COLLECTIVES_EXCHANGE_FAMILY_H_

#include "exchange.h"
#include "sendrecv.h"

namespace mscclpp {
namespace collectives {

#if MSCCLPP_GPU_KERNELS
MSCCLPP_KERNEL(mscclpp_steps_exchange, ExchangeArgs, args) { exchange(args); }
MSCCLPP_KERNEL(mscclpp_steps_sendrecv, SendRecvArgs, args) { sendrecv(args); }
#endif

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_EXCHANGE_FAMILY_H_
