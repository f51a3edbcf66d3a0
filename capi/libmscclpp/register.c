/* Plans as algorithms, and the program's function that chooses: the C side. */
#include "_cgo_export.h"
#include "internal.h"

enum { KINDS = 64 };

static const char *kind_names[KINDS]; /* written before the first call of Go begins */

void request_names(uint32_t kind, const char *name) {
  if (kind < KINDS) kind_names[kind] = name;
}

const char *call_selector(mscclpp_selector_fn selector, void *context, uint32_t kind, uint64_t bytes, uint64_t count, int32_t type,
                          int32_t op, int32_t root, int32_t ranks, int32_t in_place) {
  mscclpp_request_t r = {sizeof r, kind < KINDS ? kind_names[kind] : NULL, bytes, count, type, op, root, ranks, in_place};
  return selector(context, &r);
}

mscclpp_result_t mscclpp_plan_register(mscclpp_comm_t comm, mscclpp_plan_t plan, const mscclpp_register_options_t *options) {
  mscclpp_register_options_t o = MSCCLPP_REGISTER_OPTIONS_INIT;
  if (options != NULL) {
    mscclpp_result_t r = structure(&o, sizeof o, sizeof o, options, "mscclpp_register_options_t");
    if (r != MSCCLPP_SUCCESS) return r;
  }
  SETUP(mscclppGoPlanRegister((uintptr_t)comm, (uintptr_t)plan, &o, failure_here()));
}

mscclpp_result_t mscclpp_selector_register(mscclpp_comm_t comm, mscclpp_selector_fn selector, void *context) {
  DATA(mscclppGoSelectorRegister((uintptr_t)comm, selector, context, failure_here()));
}
