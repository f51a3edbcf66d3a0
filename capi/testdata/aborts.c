/* Several ranks in a process, by an id, and what abort does to threads in calls. */
#define _GNU_SOURCE
#include <pthread.h>
#include <time.h>

#include "client.h"

/* Abort takes half a second at most, and minutes on a machine that is very busy. A rank waits longer for one that never comes. */
enum { PROMPT = 120, TIMEOUT = 600 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct rank {
  mscclpp_comm_t comm;
  pthread_t thread;
  mscclpp_result_t result;
  char text[2048];
  int32_t number;
};

static void *joins(void *arg) {
  struct rank *r = arg;
  r->result = mscclpp_comm_join(r->comm);
  strcpy(r->text, mscclpp_last_error());
  return NULL;
}

static void *reduces(void *arg) {
  struct rank *r = arg;
  int32_t x = r->number + 1, y = 0;
  r->result = mscclpp_all_reduce(r->comm, &x, &y, 1, MSCCLPP_INT32, MSCCLPP_SUM, NULL);
  strcpy(r->text, mscclpp_last_error());
  if (r->result == MSCCLPP_SUCCESS) TRUE(y == 3);
  return NULL;
}

static void create(struct rank *r, const mscclpp_unique_id_t *id) {
  mscclpp_comm_options_t o = MSCCLPP_COMM_OPTIONS_INIT;
  o.id = id;
  o.rank = r->number;
  o.ranks = 2;
  o.timeout = TIMEOUT * UINT64_C(1000000000);
  OK(mscclpp_comm_create(&o, &r->comm));
}

static void both(struct rank *r, void *(*f)(void *)) {
  int i;
  for (i = 0; i < 2; i++) TRUE(pthread_create(&r[i].thread, NULL, f, &r[i]) == 0);
  for (i = 0; i < 2; i++) {
    TRUE(pthread_join(r[i].thread, NULL) == 0);
    if (r[i].result != MSCCLPP_SUCCESS) fprintf(stderr, "rank %d: %s\n", i, r[i].text);
    TRUE(r[i].result == MSCCLPP_SUCCESS);
  }
}

void aborts(void) {
  struct rank r[2] = {{.number = 0}, {.number = 1}};
  mscclpp_unique_id_t id;
  double start;

  /* A job of two ranks in this process. */
  OK(mscclpp_unique_id_create(&id, "127.0.0.1"));
  create(&r[0], &id);
  create(&r[1], &id);
  both(r, joins);
  both(r, reduces);

  /* Rank 0 is in a call for which rank 1 never comes. */
  TRUE(pthread_create(&r[0].thread, NULL, reduces, &r[0]) == 0);
  start = now();
  OK(mscclpp_comm_abort(r[0].comm, "enough"));
  TRUE(now() - start < PROMPT);
  TRUE(pthread_join(r[0].thread, NULL) == 0);
  TRUE(r[0].result != MSCCLPP_SUCCESS);
  REFUSES(mscclpp_comm_status(r[0].comm), MSCCLPP_INVALID, "destroyed");
  while (mscclpp_comm_status(r[1].comm) == MSCCLPP_SUCCESS) nanosleep(&(struct timespec){0, 1000000}, NULL);
  REFUSES(mscclpp_comm_status(r[1].comm), MSCCLPP_PEER, "enough");
  TRUE(mscclpp_last_error_rank() == 0);
  OK(mscclpp_comm_destroy(r[1].comm));

  /* Rank 0 leaves alone: rank 1 goes on until it needs rank 0. */
  OK(mscclpp_unique_id_create(&id, "127.0.0.1"));
  create(&r[0], &id);
  create(&r[1], &id);
  both(r, joins);
  both(r, reduces);
  OK(mscclpp_comm_settle(r[0].comm, NULL, 0, 0));
  start = now();
  OK(mscclpp_comm_leave(r[0].comm, "enough of this"));
  TRUE(now() - start < PROMPT);
  OK(mscclpp_comm_status(r[1].comm));
  reduces(&r[1]);
  TRUE(r[1].result == MSCCLPP_PEER && strstr(r[1].text, "enough of this") != NULL);
  TRUE(mscclpp_last_error_rank() == 0);
  REFUSES(mscclpp_comm_status(r[1].comm), MSCCLPP_PEER, "enough of this");
  OK(mscclpp_comm_destroy(r[1].comm));
  OK(mscclpp_comm_leave(NULL, NULL));

  /* Rank 0 joins, and rank 1 never comes. */
  OK(mscclpp_unique_id_create(&id, "127.0.0.1"));
  create(&r[0], &id);
  TRUE(pthread_create(&r[0].thread, NULL, joins, &r[0]) == 0);
  start = now();
  OK(mscclpp_comm_abort(r[0].comm, NULL));
  TRUE(now() - start < PROMPT);
  TRUE(pthread_join(r[0].thread, NULL) == 0);
  TRUE(r[0].result == MSCCLPP_CLOSED || r[0].result == MSCCLPP_INVALID); /* the latter if it had not begun */
}
