// The kernels between hosts, in an image of their own: they have other arguments than the
// kernels within one, so that a change of theirs does not make all images anew.
#ifndef MSCCLPP_COLLECTIVES_EXCHANGE_FAMILY_H_
#define MSCCLPP_COLLECTIVES_EXCHANGE_FAMILY_H_

#include "exchange.h"
#include "mail.h"

namespace mscclpp {
namespace collectives {

#if MSCCLPP_GPU_KERNELS
MSCCLPP_KERNEL(mscclpp_steps_exchange, ExchangeArgs, args) { exchange(args); }
MSCCLPP_KERNEL(mscclpp_steps_mail, MailArgs, args) { mail(args); }
#endif

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_EXCHANGE_FAMILY_H_
