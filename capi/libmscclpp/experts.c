/* Experts: the C side. */
#include "_cgo_export.h"
#include "internal.h"

#include <stddef.h>

static mscclpp_result_t options_of(mscclpp_moe_options_t *o, const mscclpp_moe_options_t *from) {
  if (from == NULL) return failed(MSCCLPP_INVALID, "experts: the options are NULL: expected the sizes that are served");
  return structure(o, sizeof *o, sizeof *o, from, "mscclpp_moe_options_t");
}

mscclpp_result_t mscclpp_moe_create(mscclpp_comm_t comm, const mscclpp_moe_options_t *options, mscclpp_moe_t *moe) {
  mscclpp_moe_options_t o = MSCCLPP_MOE_OPTIONS_INIT;
  PLACE(moe, "moe create");
  mscclpp_result_t r = options_of(&o, options);
  if (r != MSCCLPP_SUCCESS) return r;
  SETUP(mscclppGoMoeCreate((uintptr_t)comm, &o, (uintptr_t *)moe, failure_here()));
}

mscclpp_result_t mscclpp_moe_sizes(const mscclpp_moe_options_t *options, int32_t ranks, size_t *bytes, size_t *handle_bytes) {
  mscclpp_moe_options_t o = MSCCLPP_MOE_OPTIONS_INIT;
  mscclpp_result_t r = options_of(&o, options);
  if (r != MSCCLPP_SUCCESS) return r;
  SETUP(mscclppGoMoeSizes(&o, ranks, bytes, handle_bytes, failure_here()));
}

mscclpp_result_t mscclpp_moe_dispatch(mscclpp_moe_t moe, const mscclpp_dispatch_call_t *call) {
  mscclpp_dispatch_call_t c = MSCCLPP_DISPATCH_CALL_INIT;
  if (call == NULL) return failed(MSCCLPP_INVALID, "dispatch: the call is NULL");
  mscclpp_result_t r = structure(&c, sizeof c, sizeof c, call, "mscclpp_dispatch_call_t");
  if (r != MSCCLPP_SUCCESS) return r;
  SETUP(mscclppGoMoeDispatch((uintptr_t)moe, &c, failure_here()));
}

mscclpp_result_t mscclpp_moe_combine(mscclpp_moe_t moe, const mscclpp_combine_call_t *call) {
  mscclpp_combine_call_t c = MSCCLPP_COMBINE_CALL_INIT;
  if (call == NULL) return failed(MSCCLPP_INVALID, "combine: the call is NULL");
  mscclpp_result_t r = structure(&c, sizeof c, sizeof c, call, "mscclpp_combine_call_t");
  if (r != MSCCLPP_SUCCESS) return r;
  SETUP(mscclppGoMoeCombine((uintptr_t)moe, &c, failure_here()));
}

mscclpp_result_t mscclpp_moe_free(mscclpp_moe_t moe) {
  if (moe == NULL) return MSCCLPP_SUCCESS;
  TEARDOWN(mscclppGoFree((uintptr_t)moe, KIND_MOE, failure_here()));
}
