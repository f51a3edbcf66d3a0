/* The plan language by messages. */
#include "client.h"

struct answer {
  char text[4096];
  size_t size;
};

static void take(void *context, const char *text, size_t size) {
  struct answer *a = context;
  TRUE(a->size + size < sizeof a->text);
  memcpy(a->text + a->size, text, size);
  a->size += size;
  a->text[a->size] = 0;
}

static const char *say(mscclpp_plan_program_t program, const char *message) {
  static struct answer a;
  a.size = 0;
  OK(mscclpp_plan_program_call(program, message, strlen(message), take, &a));
  return a.text;
}

void plans(void) {
  mscclpp_plan_program_t program, gone, other;
  struct answer a = {{0}, 0};

  TRUE(mscclpp_supports("plans.language") == 1);
  REFUSES(mscclpp_plan_program_create(NULL), MSCCLPP_INVALID, "the place for the result is NULL");
  OK(mscclpp_plan_program_create(&program));
  OK(mscclpp_plan_program_create(&other));
  REFUSES(mscclpp_plan_program_call(program, NULL, 0, take, &a), MSCCLPP_INVALID, "the message is NULL");
  REFUSES(mscclpp_plan_program_call(program, "{}", 2, NULL, NULL), MSCCLPP_INVALID, "takes the answer is NULL");
  REFUSES(mscclpp_plan_program_call(NULL, "{}", 2, take, &a), MSCCLPP_INVALID, "expected a plan program");
  TRUE(strcmp(say(program, "{\"call\":\"rank\"}"), "{\"error\":{\"kind\":\"RuntimeError\",\"text\":\"No Program in context\"}}") == 0);
  TRUE(strcmp(say(program, "{\"call\":\"program\",\"name\":\"x\",\"collective\":{\"name\":\"test\",\"inputs\":[1],\"outputs\":[1]}}"), "{}") == 0);
  TRUE(strcmp(say(program, "{\"call\":\"copy\",\"dst\":[0,\"o\",0,1],\"src\":[0,\"i\",0,1],\"tb\":0}"), "{}") == 0);
  TRUE(strstr(say(program, "{\"call\":\"rank\",\"rank\":3}"), "Rank 3 is out of bounds") != NULL);
  TRUE(strstr(say(program, "{\"call\":\"compile\"}"), "{\"value\":{\"name\":\"x\"") != NULL);
  TRUE(strstr(say(other, "{\"call\":\"compile\"}"), "No Program in context") != NULL);
  gone = program;
  OK(mscclpp_plan_program_free(program));
  OK(mscclpp_plan_program_free(other));
  OK(mscclpp_plan_program_free(NULL));
  REFUSES(mscclpp_plan_program_free(gone), MSCCLPP_INVALID, "a plan program that was destroyed");
}

/* Two ranks run the plan in the file that PLAN names, an all-reduce of packets in place. */
void executors(void) {
  const char *file = getenv("PLAN");
  mscclpp_comm_t comm;
  mscclpp_plan_t plan, other;
  mscclpp_executor_t executor;
  mscclpp_execute_options_t options = MSCCLPP_EXECUTE_OPTIONS_INIT;
  struct answer a = {{0}, 0};
  int32_t data[8], result[8], rank, i, launch;

  TRUE(mscclpp_supports("plans.execute") == 1);
  OK(mscclpp_comm_create(NULL, &comm));
  OK(mscclpp_comm_join(comm));
  OK(mscclpp_comm_rank(comm, &rank));
  REFUSES(mscclpp_plan_read(NULL, &plan), MSCCLPP_INVALID, "NULL");
  REFUSES(mscclpp_plan_parse("{", 1, &plan), MSCCLPP_INVALID, "plan, line 1");
  OK(mscclpp_plan_read(file, &plan));
  OK(mscclpp_plan_describe(plan, take, &a));
  TRUE(strstr(a.text, "\"collective\":\"allreduce\"") != NULL && strstr(a.text, "\"ranks\":2") != NULL);
  memset(&a, 0, sizeof a);
  OK(mscclpp_plan_check(plan, take, &a));
  TRUE(strstr(a.text, "\"verdict\":\"right\"") != NULL);
  REFUSES(mscclpp_executor_create(comm, NULL, &executor), MSCCLPP_INVALID, "expected a plan");
  OK(mscclpp_executor_create(comm, plan, &executor));
  other = plan;
  OK(mscclpp_plan_free(plan));
  REFUSES(mscclpp_plan_free(other), MSCCLPP_INVALID, "a plan that was destroyed");
  for (launch = 0; launch < 6; launch++) {
    options.packet_bytes = launch < 3 ? 8 : 0;
    options.op = launch % 2 ? MSCCLPP_MAX : MSCCLPP_SUM;
    for (i = 0; i < 8; i++) data[i] = result[i] = (rank + 1) * (100 * launch + i);
    OK(mscclpp_executor_execute(executor, data, sizeof data, launch < 2 ? result : data, sizeof data, MSCCLPP_INT32, &options));
    for (i = 0; i < 8; i++) TRUE((launch < 2 ? result : data)[i] == (launch % 2 ? 2 : 3) * (100 * launch + i));
  }
  REFUSES(mscclpp_executor_execute(executor, data, 20, data, 20, MSCCLPP_INT32, NULL), MSCCLPP_INVALID, "expected a multiple of 16, as 16 or 32");
  REFUSES(mscclpp_executor_execute(executor, data, 32, data, 32, 99, NULL), MSCCLPP_INVALID, "element type 99");
  OK(mscclpp_executor_free(NULL));
  if (rank == 0) OK(mscclpp_executor_free(executor)); /* the other one ends with the communicator */
  OK(mscclpp_comm_destroy(comm));
}
