/* Groups, line by line; two ranks on host memory. */
#include <pthread.h>

#include "client.h"

static ncclComm_t comm, twin, polite; /* polite is not blocking */
static const int both = 1;            /* the sum of the ranks */

static void begin(void) { NCCL(ncclGroupStart()); }

/* all_reduce sums the ranks; what it returns is to be looked at when the group has ended. */
static ncclResult_t all_reduce(ncclComm_t c, int* out) {
  *out = -1;
  return ncclAllReduce(&rank, out, 1, ncclInt32, ncclSum, c, NULL);
}

/* elsewhere is another thread, in no group while the first one is in one. */
static void* elsewhere(void* unused) {
  int out;
  (void)unused;
  FAILS(ncclGroupEnd(), ncclInvalidUsage, "not in a group");
  NCCL(all_reduce(twin, &out));
  EXPECT(out == both);
  return NULL;
}

static void state_is_of_a_thread(void) {
  pthread_t thread;
  int out;
  begin();
  NCCL(all_reduce(comm, &out));
  EXPECT(pthread_create(&thread, NULL, elsewhere, NULL) == 0);
  pthread_join(thread, NULL);
  EXPECT(out == -1);
  NCCL(ncclGroupEnd());
  EXPECT(out == both);
}

static void inner_end_launches_nothing(void) {
  int a, b;
  begin();
  begin();
  NCCL(all_reduce(comm, &a));
  NCCL(ncclGroupEnd());
  EXPECT(a == -1);
  NCCL(all_reduce(comm, &b));
  NCCL(ncclGroupEnd());
  EXPECT(a == both && b == both);
  begin();
  begin();
  NCCL(ncclGroupEnd());
  NCCL(ncclGroupEnd()); /* with nothing in it */
}

static void failure_marks_the_group(void) {
  int a, b;
  begin();
  NCCL(all_reduce(comm, &a));
  FAILS(ncclBroadcast(&a, &b, 1, ncclInt32, 9, comm, NULL), ncclInvalidArgument, "invalid root 9");
  NCCL(all_reduce(comm, &b));
  begin();
  NCCL(ncclGroupEnd()); /* an inner one is a success */
  EXPECT(ncclGroupEnd() == ncclInvalidArgument);
  EXPECT(a == -1 && b == -1);
  NCCL(all_reduce(comm, &a)); /* the state was cleared */
  EXPECT(a == both);
}

static void messages_match_in_order(void) {
  int out[3] = {10, 20, 30}, in[3] = {0};
  begin();
  for (int i = 0; i < 3; i++) NCCL(ncclSend(&out[i], 1, ncclInt32, 1 - rank, comm, NULL));
  for (int i = 0; i < 3; i++) NCCL(ncclRecv(&in[i], 1, ncclInt32, 1 - rank, comm, NULL));
  NCCL(ncclGroupEnd());
  EXPECT(memcmp(in, out, sizeof in) == 0);
}

/* Both send first, and more than fits anywhere on the way. */
static void messages_progress_together(void) {
  enum { MANY = 1 << 22 };
  char *out = malloc(MANY), *in = malloc(MANY);
  EXPECT(out && in);
  memset(out, rank + 1, MANY);
  begin();
  NCCL(ncclSend(out, MANY, ncclInt8, 1 - rank, comm, NULL));
  NCCL(ncclRecv(in, MANY, ncclInt8, 1 - rank, comm, NULL));
  NCCL(ncclGroupEnd());
  EXPECT(in[0] == 2 - rank && in[MANY - 1] == 2 - rank);
  free(out);
  free(in);
}

static void message_to_oneself(void) {
  int out = rank + 5, in = 0;
  begin();
  NCCL(ncclRecv(&in, 1, ncclInt32, rank, comm, NULL));
  NCCL(ncclSend(&out, 1, ncclInt32, rank, comm, NULL));
  NCCL(ncclGroupEnd());
  EXPECT(in == rank + 5);
}

static void collectives_and_messages(void) {
  int a, b, in = -1, root = rank == 1 ? 77 : 0;
  begin();
  NCCL(all_reduce(comm, &a));
  NCCL(ncclSend(&rank, 1, ncclInt32, 1 - rank, comm, NULL));
  NCCL(ncclRecv(&in, 1, ncclInt32, 1 - rank, comm, NULL));
  NCCL(ncclBcast(&root, 1, ncclInt32, 1, comm, NULL));
  NCCL(all_reduce(comm, &b));
  NCCL(ncclAllReduce(NULL, NULL, 0, ncclInt32, ncclSum, comm, NULL));
  NCCL(ncclGroupEnd());
  EXPECT(a == both && b == both && in == 1 - rank && root == 77);
}

/* Ranks name communicators in any order. */
static void several_communicators(void) {
  int a, b;
  begin();
  NCCL(all_reduce(rank ? comm : twin, &a));
  NCCL(all_reduce(rank ? twin : comm, &b));
  NCCL(ncclGroupEnd());
  EXPECT(a == both && b == both);
}

static void kinds_do_not_mix(void) {
  int a, b;
  ncclComm_t part = comm;
  begin();
  NCCL(all_reduce(comm, &a));
  ncclCommSplit(comm, 0, 0, &part, NULL);
  EXPECT(part == NULL);
  EXPECT(ncclGroupEnd() == ncclInvalidUsage);
  EXPECT(part == NULL && a == -1);
  begin();
  NCCL(all_reduce(comm, &a));
  NCCL(all_reduce(polite, &b));
  FAILS(ncclGroupEnd(), ncclInvalidArgument, "Blocking and nonblocking communicators are not allowed in the same group");
  EXPECT(a == -1 && b == -1);
}

static void init_in_a_group(void) {
  ncclUniqueId ids[2];
  ncclComm_t c[2] = {NULL, NULL};
  int n, out[2];
  if (rank == 0)
    for (int i = 0; i < 2; i++) NCCL(ncclGetUniqueId(&ids[i]));
  NCCL(ncclBcast(ids, sizeof ids, ncclInt8, 0, comm, NULL));
  begin();
  for (int i = 0; i < 2; i++) {
    NCCL(ncclCommInitRank(&c[i], 2, ids[i], rank));
    EXPECT(c[i] != NULL); /* at once */
    ncclResult_t r = ncclCommCount(c[i], &n);
    EXPECT(r == ncclInvalidArgument && strstr(ncclGetLastError(NULL), "before the previous operation returned ncclSuccess"));
  }
  NCCL(ncclGroupEnd());
  for (int i = 0; i < 2; i++) NCCL(all_reduce(c[i], &out[i]));
  EXPECT(out[0] == both && out[1] == both);
  for (int i = 0; i < 2; i++) NCCL(ncclCommDestroy(c[i]));
}

static void split_in_a_group(void) {
  ncclComm_t c[2] = {comm, comm};
  int n, me;
  begin();
  NCCL(ncclCommSplit(comm, 0, 0, &c[0], NULL)); /* a tie: by rank */
  NCCL(ncclCommSplit(comm, rank, 0, &c[1], NULL));
  EXPECT(c[0] == NULL && c[1] == NULL);
  NCCL(ncclGroupEnd());
  NCCL(ncclCommUserRank(c[0], &me));
  NCCL(ncclCommCount(c[1], &n));
  EXPECT(me == rank && n == 1);
  for (int i = 0; i < 2; i++) NCCL(ncclCommDestroy(c[i]));
}

static void simulated_end(void) {
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER, wrong = NCCL_SIM_INFO_INITIALIZER;
  int out;
  FAILS(ncclGroupSimulateEnd(&info), ncclInvalidUsage, "not in a group");
  info.estimatedTime = 5;
  begin();
  NCCL(all_reduce(comm, &out));
  NCCL(ncclGroupSimulateEnd(&info));
  EXPECT(out == -1 && info.estimatedTime == NCCL_UNDEF_FLOAT);
  wrong.magic = 3;
  begin();
  NCCL(all_reduce(comm, &out));
  FAILS(ncclGroupSimulateEnd(&wrong), ncclInvalidArgument, "NCCL_SIM_INFO_INITIALIZER");
  EXPECT(out == -1);
  NCCL(all_reduce(comm, &out)); /* the group has ended */
  EXPECT(out == both);
  begin();
  NCCL(all_reduce(comm, &out));
  NCCL(ncclGroupSimulateEnd(NULL)); /* nothing is asked for */
  EXPECT(out == -1);
  /* Of other versions: a longer one is left alone behind what is known, and one without an estimate is none. */
  struct {
    ncclSimInfo_t known;
    int more[10];
  } newer = {.known = NCCL_SIM_INFO_INITIALIZER, .more = {7}};
  newer.known.size = sizeof newer;
  newer.known.version = 24000;
  newer.known.estimatedTime = 5;
  begin();
  NCCL(ncclGroupSimulateEnd(&newer.known));
  EXPECT(newer.known.estimatedTime == NCCL_UNDEF_FLOAT && newer.known.size == sizeof newer && newer.more[0] == 7);
  wrong = info;
  wrong.size = 16;
  begin();
  FAILS(ncclGroupSimulateEnd(&wrong), ncclInvalidArgument, "NCCL_SIM_INFO_INITIALIZER");
  begin(); /* one inside another ends that alone */
  begin();
  NCCL(all_reduce(comm, &out));
  NCCL(ncclGroupSimulateEnd(&info));
  EXPECT(out == -1);
  NCCL(ncclGroupEnd());
  EXPECT(out == both);
}

int main(void) {
  place();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  NCCL(ncclCommInitRank(&comm, 2, id, rank));
  NCCL(ncclCommSplit(comm, 0, rank, &twin, NULL));
  (void)ncclCommSplit(comm, 0, rank, &polite, &config);
  ncclComm_t volatile* at = &polite;
  ncclResult_t state = ncclInProgress;
  while (*at == NULL) continue;
  while (state == ncclInProgress) NCCL(ncclCommGetAsyncError(polite, &state));
  EXPECT(state == ncclSuccess);

  state_is_of_a_thread();
  inner_end_launches_nothing();
  failure_marks_the_group();
  messages_match_in_order();
  messages_progress_together();
  message_to_oneself();
  collectives_and_messages();
  several_communicators();
  kinds_do_not_mix();
  init_in_a_group();
  split_in_a_group();
  simulated_end();

  NCCL(ncclCommDestroy(polite));
  NCCL(ncclCommDestroy(twin));
  NCCL(ncclCommDestroy(comm));
  printf("rank %d ok\n", rank);
  return 0;
}
