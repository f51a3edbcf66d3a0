/* Operators for inference: the C side. */
#include "_cgo_export.h"
#include "internal.h"

#include <stddef.h>

mscclpp_result_t mscclpp_workspace_create(mscclpp_comm_t comm, const mscclpp_workspace_options_t *options, mscclpp_workspace_t *workspace) {
  mscclpp_workspace_options_t o = MSCCLPP_WORKSPACE_OPTIONS_INIT;
  PLACE(workspace, "workspace create");
  if (options != NULL) {
    mscclpp_result_t r = structure(&o, sizeof o, sizeof o, options, "mscclpp_workspace_options_t");
    if (r != MSCCLPP_SUCCESS) return r;
  }
  SETUP(mscclppGoWorkspaceCreate((uintptr_t)comm, &o, (uintptr_t *)workspace, failure_here()));
}

mscclpp_result_t mscclpp_all_reduce_norm(mscclpp_workspace_t workspace, const mscclpp_norm_call_t *call) {
  mscclpp_norm_call_t c = MSCCLPP_NORM_CALL_INIT;
  if (call == NULL) return failed(MSCCLPP_INVALID, "all_reduce_norm: the call is NULL");
  mscclpp_result_t r = structure(&c, sizeof c, offsetof(mscclpp_norm_call_t, rows), call, "mscclpp_norm_call_t");
  if (r != MSCCLPP_SUCCESS) return r;
  SETUP(mscclppGoAllReduceNorm((uintptr_t)workspace, &c, failure_here()));
}

mscclpp_result_t mscclpp_workspace_free(mscclpp_workspace_t workspace) {
  if (workspace == NULL) return MSCCLPP_SUCCESS;
  TEARDOWN(mscclppGoFree((uintptr_t)workspace, KIND_WORKSPACE, failure_here()));
}
