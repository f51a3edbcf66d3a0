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
