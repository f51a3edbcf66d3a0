// Runs execution plans: one image for each element type.
#ifndef MSCCLPP_PLAN_FAMILY_H_
#define MSCCLPP_PLAN_FAMILY_H_

#include "execute.h"

namespace mscclpp {
namespace plans {

MSCCLPP_KERNEL(mscclpp_plan_execute, PlanArgs, args) { execute<Element>(args); }

}  // namespace plans
}  // namespace mscclpp
#endif  // MSCCLPP_PLAN_FAMILY_H_
