/* Records of a program: the calls between start and stop, and its marks. */
#include "client.h"

void traced(void) {
  mscclpp_comm_t comm;
  int32_t in = 1, out = 0, size = 0;
  int i;

  TRUE(mscclpp_supports("traces") == 1);
  OK(mscclpp_comm_create(NULL, &comm));
  REFUSES(mscclpp_trace_start(comm), MSCCLPP_INVALID, "not joined");
  REFUSES(mscclpp_trace_mark(comm, "early"), MSCCLPP_INVALID, "not joined");
  OK(mscclpp_comm_join(comm));
  OK(mscclpp_comm_size(comm, &size));
  REFUSES(mscclpp_trace_mark(comm, NULL), MSCCLPP_INVALID, "NULL");
  REFUSES(mscclpp_trace_start(NULL), MSCCLPP_INVALID, "");
  for (i = 0; i < 12; i++) { /* 3 before, 5 in between, 4 behind */
    if (i == 3) OK(mscclpp_trace_start(comm));
    if (i == 8) OK(mscclpp_trace_mark(comm, "enough")), OK(mscclpp_trace_stop(comm));
    OK(mscclpp_all_reduce(comm, &in, &out, 1, MSCCLPP_INT32, MSCCLPP_SUM, NULL));
    TRUE(out == size);
    OK(mscclpp_trace_mark(comm, i < 3 ? "before" : i < 8 ? "step" : "behind"));
  }
  OK(mscclpp_comm_destroy(comm));
}
