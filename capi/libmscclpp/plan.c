/* The language of execution plans: the C side. */
#include "_cgo_export.h"
#include "internal.h"

mscclpp_result_t mscclpp_plan_program_create(mscclpp_plan_program_t *program) {
  PLACE(program, "plan program create");
  DATA(mscclppGoPlanProgramCreate((uintptr_t *)program, failure_here()));
}

mscclpp_result_t mscclpp_plan_program_call(mscclpp_plan_program_t program, const char *message, size_t size,
                                           mscclpp_write_fn answer, void *context) {
  if (answer == NULL) return failed(MSCCLPP_INVALID, "plan program call: the function that takes the answer is NULL");
  if (message == NULL) return failed(MSCCLPP_INVALID, "plan program call: the message is NULL");
  DATA(mscclppGoPlanProgramCall((uintptr_t)program, (char *)message, size, answer, context, failure_here()));
}

mscclpp_result_t mscclpp_plan_program_free(mscclpp_plan_program_t program) {
  if (program == NULL || !usable()) return MSCCLPP_SUCCESS;
  return mscclppGoPlanProgramFree((uintptr_t)program, failure_here());
}
