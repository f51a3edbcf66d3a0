/* Plans that are algorithms of collectives, and the program's selector. */
#include "client.h"

#define GPU(id)                                                                                                                    \
  "{\"id\":" id ",\"input_chunks\":1,\"output_chunks\":1,\"scratch_chunks\":0,\"threadblocks\":[{\"id\":0,\"ops\":[{\"name\":\"copy\"," \
  "\"src_buff\":[{\"type\":\"i\",\"index\":0,\"size\":1}],\"dst_buff\":[{\"type\":\"o\",\"index\":0,\"size\":1}]}],\"channels\":[]," \
  "\"remote_buffer_refs\":[]}],\"channels\":[],\"remote_buffers\":[],\"semaphores\":[]}"

/* A plan with wrong results on purpose: each rank gets its own numbers back, which shows that the plan has performed the call. */
static const char own[] =
    "{\"name\":\"own\",\"collective\":\"allreduce\",\"protocol\":\"Simple\",\"inplace\":false,\"reuse_resources\":false,\"gpus\":[" GPU("0") "," GPU("1")
    "],\"num_threads_per_block\":1024,\"use_double_scratch_buffer\":false,\"buffer_alignment\":16,\"min_message_size\":0,"
    "\"max_message_size\":18446744073709551615}";

struct seen {
  mscclpp_request_t last;
  char collective[32];
  int calls;
};

/* choose leaves calls of 64 bytes to the library, and takes the right plan for 128. */
static const char *choose(void *context, const mscclpp_request_t *request) {
  struct seen *s = context;
  TRUE(request->size >= sizeof s->last && strlen(request->collective) < sizeof s->collective);
  s->last = *request;
  strcpy(s->collective, request->collective);
  s->calls++;
  if (strcmp(request->collective, "allreduce") != 0 || request->bytes == 64) return NULL;
  return request->bytes == 128 ? "allreduce_packets" : request->bytes == 256 ? "own" : "no such";
}

static int32_t data[256], result[256], rank;

/* sums says what came out of an all-reduce of so many numbers: 1 for the sums, 0 for the rank's own. */
static int sums(mscclpp_comm_t comm, size_t n, const mscclpp_call_options_t *options) {
  size_t i, right = 0, kept = 0;
  for (i = 0; i < n; i++) data[i] = (rank + 1) * (int32_t)(i + 1), result[i] = -1;
  OK(mscclpp_all_reduce(comm, data, result, n, MSCCLPP_INT32, MSCCLPP_SUM, options));
  for (i = 0; i < n; i++) {
    right += result[i] == 3 * (int32_t)(i + 1);
    kept += result[i] == data[i];
  }
  TRUE(right == n || kept == n);
  return right == n;
}

void registered(void) {
  mscclpp_comm_t comm, other;
  mscclpp_plan_t right, wrong;
  mscclpp_register_options_t options = MSCCLPP_REGISTER_OPTIONS_INIT;
  mscclpp_call_options_t named = MSCCLPP_CALL_OPTIONS_INIT;
  struct seen seen = {.calls = 0};
  char text[4096];
  size_t room = sizeof text;
  int i;

  TRUE(mscclpp_supports("plans.register") == 1);
  OK(mscclpp_comm_create(NULL, &comm));
  OK(mscclpp_plan_read(getenv("PLAN"), &right));
  OK(mscclpp_plan_parse(own, sizeof own - 1, &wrong));
  REFUSES(mscclpp_plan_register(comm, right, NULL), MSCCLPP_INVALID, "expected mscclpp_comm_join first");
  REFUSES(mscclpp_selector_register(comm, choose, &seen), MSCCLPP_INVALID, "expected mscclpp_comm_join first");
  OK(mscclpp_comm_join(comm));
  OK(mscclpp_comm_rank(comm, &rank));

  REFUSES(mscclpp_plan_register(comm, NULL, NULL), MSCCLPP_INVALID, "expected a plan");
  REFUSES(mscclpp_plan_register(comm, wrong, NULL), MSCCLPP_INVALID, "own is not right, but wrong");
  options.packet_bytes = 3;
  REFUSES(mscclpp_plan_register(comm, right, &options), MSCCLPP_INVALID, "packets of 3 bytes");
  options.packet_bytes = 8;
  OK(mscclpp_plan_register(comm, right, &options));
  options.flags = 8;
  REFUSES(mscclpp_plan_register(comm, wrong, &options), MSCCLPP_INVALID, "MSCCLPP_PLAN_UNVERIFIED");
  options.flags = MSCCLPP_PLAN_UNVERIFIED;
  OK(mscclpp_plan_register(comm, wrong, &options));
  REFUSES(mscclpp_plan_register(comm, wrong, &options), MSCCLPP_INVALID, "registered already");
  OK(mscclpp_plan_free(right));
  OK(mscclpp_plan_free(wrong));
  OK(mscclpp_comm_query(comm, "algorithms.allreduce", text, &room));
  TRUE(strstr(text, "allreduce_packets") != NULL && strstr(text, "own") != NULL);

  for (i = 0; i < 3; i++) TRUE(sums(comm, 64, NULL)); /* the tables choose neither */
  OK(mscclpp_selector_register(comm, choose, &seen));
  for (i = 0; i < 3; i++) { /* each call asks, also one that is like the one before */
    TRUE(sums(comm, 16, NULL));
    TRUE(sums(comm, 32, NULL));
    TRUE(!sums(comm, 64, NULL));
    TRUE(seen.calls == 3 * (i + 1));
  }
  TRUE(strcmp(seen.collective, "allreduce") == 0 && seen.last.bytes == 256 && seen.last.count == 64 && seen.last.ranks == 2);
  TRUE(seen.last.type == MSCCLPP_INT32 && seen.last.op == MSCCLPP_SUM && seen.last.in_place == 0);
  named.algorithm = "ring";
  TRUE(sums(comm, 64, &named));
  TRUE(seen.calls == 9); /* a name that the call gives comes first */
  named.algorithm = "own";
  TRUE(!sums(comm, 16, &named));
  OK(mscclpp_all_gather(comm, data, result, 32, MSCCLPP_INT32, NULL));
  TRUE(strcmp(seen.collective, "allgather") == 0 && seen.last.bytes == 256 && seen.last.count == 32);
  REFUSES(mscclpp_all_reduce(comm, data, result, 100, MSCCLPP_INT32, MSCCLPP_SUM, NULL), MSCCLPP_INVALID, "no such");

  OK(mscclpp_comm_split(comm, 0, 0, &other)); /* has neither plans nor the selector */
  i = seen.calls;
  TRUE(sums(other, 64, NULL));
  REFUSES(mscclpp_all_reduce(other, data, result, 16, MSCCLPP_INT32, MSCCLPP_SUM, &named), MSCCLPP_INVALID, "own");
  TRUE(seen.calls == i);
  OK(mscclpp_comm_destroy(other));

  OK(mscclpp_selector_register(comm, NULL, NULL));
  for (i = 0; i < 3; i++) TRUE(sums(comm, 64, NULL));
  OK(mscclpp_comm_destroy(comm));
}
