/* Execution plans and their executors: the C side. */
#include "_cgo_export.h"
#include "internal.h"

#include <stddef.h>

mscclpp_result_t mscclpp_plan_read(const char *file, mscclpp_plan_t *plan) {
  PLACE(plan, "plan read");
  if (file == NULL) return failed(MSCCLPP_INVALID, "plan read: the name of the file is NULL");
  DATA(mscclppGoPlanRead((char *)file, (uintptr_t *)plan, failure_here()));
}

mscclpp_result_t mscclpp_plan_parse(const char *text, size_t size, mscclpp_plan_t *plan) {
  PLACE(plan, "plan parse");
  if (text == NULL) return failed(MSCCLPP_INVALID, "plan parse: the text is NULL");
  DATA(mscclppGoPlanParse((char *)text, size, (uintptr_t *)plan, failure_here()));
}

mscclpp_result_t mscclpp_plan_describe(mscclpp_plan_t plan, mscclpp_write_fn answer, void *context) {
  if (answer == NULL) return failed(MSCCLPP_INVALID, "plan describe: the function that takes the answer is NULL");
  DATA(mscclppGoPlanDescribe((uintptr_t)plan, answer, context, failure_here()));
}

mscclpp_result_t mscclpp_plan_check(mscclpp_plan_t plan, mscclpp_write_fn answer, void *context) {
  if (answer == NULL) return failed(MSCCLPP_INVALID, "plan check: the function that takes the answer is NULL");
  DATA(mscclppGoPlanCheck((uintptr_t)plan, answer, context, failure_here()));
}

mscclpp_result_t mscclpp_plan_free(mscclpp_plan_t plan) {
  if (plan == NULL || !usable()) return MSCCLPP_SUCCESS;
  return mscclppGoPlanFree((uintptr_t)plan, failure_here());
}

mscclpp_result_t mscclpp_executor_create(mscclpp_comm_t comm, mscclpp_plan_t plan, mscclpp_executor_t *executor) {
  PLACE(executor, "executor create");
  SETUP(mscclppGoExecutorCreate((uintptr_t)comm, (uintptr_t)plan, (uintptr_t *)executor, failure_here()));
}

mscclpp_result_t mscclpp_executor_execute(mscclpp_executor_t executor, const void *input, size_t input_bytes, void *output,
                                          size_t output_bytes, mscclpp_type_t type, const mscclpp_execute_options_t *options) {
  mscclpp_execute_options_t o = MSCCLPP_EXECUTE_OPTIONS_INIT;
  if (options != NULL) {
    mscclpp_result_t r = structure(&o, sizeof o, sizeof o, options, "mscclpp_execute_options_t");
    if (r != MSCCLPP_SUCCESS) return r;
  }
  SETUP(mscclppGoExecutorExecute((uintptr_t)executor, (void *)input, input_bytes, output, output_bytes, type, &o, failure_here()));
}

mscclpp_result_t mscclpp_executor_free(mscclpp_executor_t executor) {
  if (executor == NULL) return MSCCLPP_SUCCESS;
  TEARDOWN(mscclppGoFree((uintptr_t)executor, KIND_EXECUTOR, failure_here()));
}
