/* What the ranks do, written down for mscclpp-run. */
#include "_cgo_export.h"
#include "internal.h"

mscclpp_result_t mscclpp_trace_start(mscclpp_comm_t comm) { DATA(mscclppGoTraceSwitch((uintptr_t)comm, 1, failure_here())); }

mscclpp_result_t mscclpp_trace_stop(mscclpp_comm_t comm) { DATA(mscclppGoTraceSwitch((uintptr_t)comm, 0, failure_here())); }

mscclpp_result_t mscclpp_trace_mark(mscclpp_comm_t comm, const char *text) {
  if (text == NULL) return failed(MSCCLPP_INVALID, "trace mark: the text is NULL");
  DATA(mscclppGoTraceMark((uintptr_t)comm, (char *)text, failure_here()));
}
