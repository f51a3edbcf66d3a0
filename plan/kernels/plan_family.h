// Runs execution plans: one image for each element type, with a kernel for all plans and one for most of those in chunks.
#ifndef MSCCLPP_PLAN_FAMILY_H_
#define MSCCLPP_PLAN_FAMILY_H_

#include "execute.h"

namespace mscclpp {
namespace plans {

MSCCLPP_KERNEL(mscclpp_plan_execute, PlanArgs, args) { execute<Element, true>(args); }

// For plans whose blocks only move, reduce and signal, over memory and outside of pipelines.
MSCCLPP_KERNEL(mscclpp_plan_execute_chunks, PlanArgs, args) { execute<Element, false>(args); }

}  // namespace plans
}  // namespace mscclpp
#endif  // MSCCLPP_PLAN_FAMILY_H_
