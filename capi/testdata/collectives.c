/* All collectives over host memory. Every rank runs this; element i of rank r is r + i. */
#include "client.h"

enum { MOST = 16, COUNT = 37 };

static mscclpp_comm_t comm;
static int32_t rank, ranks;
static int32_t in[MOST * COUNT], out[MOST * COUNT];

static void fill(int parts) {
  int i;
  for (i = 0; i < parts * COUNT; i++) {
    in[i] = rank + i;
    out[i] = -1;
  }
}

/* sum is the sum over all ranks of element i. */
static int32_t sum(int i) { return ranks * i + ranks * (ranks - 1) / 2; }

static void reductions(void) {
  mscclpp_call_options_t options = MSCCLPP_CALL_OPTIONS_INIT;
  float x = (float)(rank + 1), y = 0;
  int i;
  fill(1);
  OK(mscclpp_all_reduce(comm, in, out, COUNT, MSCCLPP_INT32, MSCCLPP_SUM, NULL));
  for (i = 0; i < COUNT; i++) TRUE(out[i] == sum(i));
  OK(mscclpp_all_reduce(comm, in, out, COUNT, MSCCLPP_INT32, MSCCLPP_MAX, &options));
  for (i = 0; i < COUNT; i++) TRUE(out[i] == ranks - 1 + i);
  fill(1);
  OK(mscclpp_reduce(comm, in, rank == 1 ? out : NULL, COUNT, MSCCLPP_INT32, MSCCLPP_MIN, 1, NULL));
  for (i = 0; i < COUNT; i++) TRUE(out[i] == (rank == 1 ? i : -1));
  fill(ranks);
  OK(mscclpp_reduce_scatter(comm, in, out, COUNT, MSCCLPP_INT32, MSCCLPP_SUM, NULL));
  for (i = 0; i < COUNT; i++) TRUE(out[i] == sum(rank * COUNT + i));
  options.scale = 0.5;
  OK(mscclpp_all_reduce(comm, &x, &y, 1, MSCCLPP_FLOAT32, MSCCLPP_PREMUL_SUM, &options));
  TRUE(y == (float)(ranks * (ranks + 1)) / 4);
  options.scale = rank; /* of rank 0 nothing is left */
  OK(mscclpp_all_reduce(comm, &x, &y, 1, MSCCLPP_FLOAT32, MSCCLPP_PREMUL_SUM, &options));
  TRUE(y == (float)((ranks - 1) * ranks * (ranks + 1)) / 3);
  for (i = 0; i < 2; i++) { /* a number that a double does not hold */
    uint64_t one = 1, total = 0, factor = ((uint64_t)1 << 63) + 1;
    options.scale_at = &factor;
    options.scale_on_device = i;
    OK(mscclpp_reduce(comm, &one, &total, 1, MSCCLPP_UINT64, MSCCLPP_PREMUL_SUM, 0, &options));
    TRUE(total == (rank == 0 ? (uint64_t)ranks * factor : 0));
  }
  options.scale_at = NULL;
  options.size = offsetof(mscclpp_call_options_t, scale_at); /* of a program that was compiled before */
  options.scale = 0;
  OK(mscclpp_all_reduce(comm, &x, &y, 1, MSCCLPP_FLOAT32, MSCCLPP_PREMUL_SUM, &options));
  TRUE(y == 0);
  options.size = sizeof options;
  options.scale = 1e39;
  REFUSES(mscclpp_all_reduce(comm, &x, &y, 1, MSCCLPP_FLOAT32, MSCCLPP_PREMUL_SUM, &options), MSCCLPP_INVALID, "scale");
  options.scale = 1;
  REFUSES(mscclpp_all_reduce(comm, &x, &y, 1, MSCCLPP_FLOAT32, MSCCLPP_PREMUL_SUM, NULL), MSCCLPP_INVALID, "options");
  options.algorithm = "osmosis";
  REFUSES(mscclpp_all_reduce(comm, &x, &y, 1, MSCCLPP_FLOAT32, MSCCLPP_SUM, &options), MSCCLPP_INVALID, "osmosis");
}

static void moves(void) {
  size_t counts[MOST], offsets[MOST], from[MOST];
  int i, r;
  fill(1);
  OK(mscclpp_all_gather(comm, in, out, COUNT, MSCCLPP_INT32, NULL));
  for (r = 0; r < ranks; r++)
    for (i = 0; i < COUNT; i++) TRUE(out[r * COUNT + i] == r + i);
  fill(1);
  OK(mscclpp_broadcast(comm, rank == 1 ? in : NULL, out, COUNT, MSCCLPP_INT32, 1, NULL));
  for (i = 0; i < COUNT; i++) TRUE(out[i] == 1 + i);
  fill(1);
  OK(mscclpp_gather(comm, in, rank == 0 ? out : NULL, COUNT, MSCCLPP_INT32, 0, NULL));
  for (r = 0; rank == 0 && r < ranks; r++)
    for (i = 0; i < COUNT; i++) TRUE(out[r * COUNT + i] == r + i);
  fill(ranks);
  OK(mscclpp_scatter(comm, rank == 0 ? in : NULL, out, COUNT, MSCCLPP_INT32, 0, NULL));
  for (i = 0; i < COUNT; i++) TRUE(out[i] == rank * COUNT + i);
  fill(ranks);
  OK(mscclpp_all_to_all(comm, in, out, COUNT, MSCCLPP_INT32, NULL));
  for (r = 0; r < ranks; r++)
    for (i = 0; i < COUNT; i++) TRUE(out[r * COUNT + i] == r + rank * COUNT + i);
  for (r = 0; r < ranks; r++) { /* rank r gets r + 1 elements from each */
    counts[r] = (size_t)r + 1;
    offsets[r] = (size_t)(r * COUNT);
    from[r] = (size_t)rank + 1;
  }
  fill(ranks);
  OK(mscclpp_all_to_all_v(comm, in, counts, offsets, out, from, offsets, MSCCLPP_INT32, NULL));
  for (r = 0; r < ranks; r++)
    for (i = 0; i < COUNT; i++) TRUE(out[r * COUNT + i] == (i <= rank ? r + rank * COUNT + i : -1));
  OK(mscclpp_barrier(comm, NULL));
}

/* Everybody sends to the right before receiving from the left, which needs a group. */
static void messages(void) {
  int i, left = (rank + ranks - 1) % ranks;
  fill(1);
  OK(mscclpp_group_start(comm));
  OK(mscclpp_send(comm, in, COUNT, MSCCLPP_INT32, (rank + 1) % ranks, NULL));
  OK(mscclpp_recv(comm, out, COUNT, MSCCLPP_INT32, left, NULL));
  OK(mscclpp_group_end(comm));
  for (i = 0; i < COUNT; i++) TRUE(out[i] == left + i);
}

static void split(void) {
  mscclpp_comm_t half, none = comm;
  int32_t n, at, x = rank, y = 0;
  OK(mscclpp_comm_split(comm, rank % 2, -rank, &half));
  OK(mscclpp_comm_size(half, &n));
  OK(mscclpp_comm_rank(half, &at));
  TRUE(n == (ranks + 1 - rank % 2) / 2 && at == n - 1 - rank / 2);
  OK(mscclpp_all_reduce(half, &x, &y, 1, MSCCLPP_INT32, MSCCLPP_MAX, NULL));
  TRUE(y == (rank % 2 + 2 * (n - 1)));
  OK(mscclpp_comm_split(comm, rank == 0 ? 0 : -1, 0, &none));
  TRUE((none != NULL) == (rank == 0));
  OK(mscclpp_comm_destroy(none));
  OK(mscclpp_comm_destroy(comm)); /* the half lives on */
  OK(mscclpp_all_reduce(half, &x, &y, 1, MSCCLPP_INT32, MSCCLPP_MIN, NULL));
  TRUE(y == rank % 2);
  OK(mscclpp_comm_destroy(half));
}

static void exchange(void) {
  int32_t mine[2] = {rank, 7}, all[MOST][2];
  int i;
  OK(mscclpp_comm_exchange(comm, mine, sizeof mine, all));
  for (i = 0; i < ranks; i++) TRUE(all[i][0] == i && all[i][1] == 7);
  REFUSES(mscclpp_comm_exchange(comm, mine, sizeof mine, NULL), MSCCLPP_INVALID, "NULL");
  REFUSES(mscclpp_comm_exchange(comm, mine, (size_t)1 << 40, all), MSCCLPP_INVALID, "expected at most");
  REFUSES(mscclpp_comm_exchange(comm, mine, rank == 0 ? 4 : 8, all), MSCCLPP_INVALID, "expected the same of all");
}

static void collect(void *text, const char *part, size_t size) {
  size_t n = strlen(text);
  if (n + size < 8192) memcpy((char *)text + n, part, size);
}

/* What is logged at level debug while the job starts. */
static char logged[65536];
static int worst;

static void listen(void *context, int level, const char *text) {
  size_t n = strlen(logged);
  TRUE(context == &comm && strchr(text, '\n') == NULL);
  snprintf(logged + n, sizeof logged - n, "%s\n", text);
  if (level > worst) worst = level;
}

static void reports(void) {
  char text[256] = "", dump[8192] = "";
  size_t size = sizeof text;
  OK(mscclpp_comm_query(comm, "device", text, &size));
  TRUE(strcmp(text, "host") == 0 && size == 5);
  size = sizeof text;
  OK(mscclpp_comm_query(comm, "transports", text, &size));
  TRUE(strcmp(text, "shm") == 0);
  size = sizeof text;
  OK(mscclpp_comm_query(comm, "algorithms.allreduce", text, &size));
  TRUE(strlen(text) + 1 == size && size > 2);
  OK(mscclpp_comm_dump(comm, collect, dump));
  TRUE(strstr(dump, "allreduce") != NULL || strstr(dump, "world") != NULL);
  OK(mscclpp_comm_check(comm));
  OK(mscclpp_comm_settle(comm, NULL, 0, 0));
  TRUE(strstr(logged, "level=") == NULL && strstr(logged, "msg=") != NULL && worst < MSCCLPP_LOG_ERROR);
}

void collectives(void) {
  mscclpp_comm_options_t options = MSCCLPP_COMM_OPTIONS_INIT;
  const char *settings[] = {"log.level=debug"};
  options.log = listen;
  options.log_context = &comm;
  options.settings = settings;
  options.settings_count = 1;
  OK(mscclpp_comm_create(&options, &comm));
  OK(mscclpp_comm_join(comm));
  OK(mscclpp_comm_rank(comm, &rank));
  OK(mscclpp_comm_size(comm, &ranks));
  TRUE(ranks > 1 && ranks <= MOST);
  OK(mscclpp_prepare(comm, "allreduce", MSCCLPP_INT32));
  reductions();
  moves();
  messages();
  exchange();
  reports();
  split();
}
