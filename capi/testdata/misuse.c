/* Wrong arguments: nothing crashes, and the text says what was expected. */
#include "client.h"

static mscclpp_comm_t garbage(uintptr_t number) { return (mscclpp_comm_t)number; }

void handles(void) {
  mscclpp_comm_t comm, gone;
  int32_t rank = 7;
  float x[4] = {0};
  size_t size = 0;

  REFUSES(mscclpp_comm_create(NULL, NULL), MSCCLPP_INVALID, "the place for the result is NULL");
  REFUSES(mscclpp_comm_join(NULL), MSCCLPP_INVALID, "the handle is NULL: expected a communicator");
  REFUSES(mscclpp_comm_join(garbage(0x7fff12345670)), MSCCLPP_INVALID, "is no handle of this library");
  REFUSES(mscclpp_all_reduce(garbage(~(uintptr_t)0), x, x, 4, MSCCLPP_FLOAT32, MSCCLPP_SUM, NULL), MSCCLPP_INVALID, "is no handle");
  OK(mscclpp_comm_destroy(NULL));
  OK(mscclpp_comm_abort(NULL, NULL));
  REFUSES(mscclpp_comm_destroy(garbage(1)), MSCCLPP_INVALID, "is no handle");

  OK(mscclpp_comm_create(NULL, &comm));
  TRUE(mscclpp_comm_status(comm) == MSCCLPP_IN_PROGRESS);
  REFUSES(mscclpp_comm_rank(comm, &rank), MSCCLPP_INVALID, "was not joined: expected mscclpp_comm_join first");
  TRUE(rank == 0);
  REFUSES(mscclpp_barrier(comm, NULL), MSCCLPP_INVALID, "was not joined");
  OK(mscclpp_comm_join(comm));
  OK(mscclpp_comm_join(comm));
  OK(mscclpp_comm_status(comm));
  REFUSES(mscclpp_comm_rank(comm, NULL), MSCCLPP_INVALID, "is NULL");

  REFUSES(mscclpp_all_reduce(comm, NULL, NULL, 4, MSCCLPP_FLOAT32, MSCCLPP_SUM, NULL), MSCCLPP_INVALID, "");
  REFUSES(mscclpp_all_reduce(comm, x, x, 4, 99, MSCCLPP_SUM, NULL), MSCCLPP_INVALID, "type");
  REFUSES(mscclpp_all_reduce(comm, x, x, 4, -1, MSCCLPP_SUM, NULL), MSCCLPP_INVALID, "type");
  REFUSES(mscclpp_all_reduce(comm, x, x, 4, MSCCLPP_FLOAT32, 99, NULL), MSCCLPP_INVALID, "");
  REFUSES(mscclpp_all_reduce(comm, x, x, SIZE_MAX, MSCCLPP_FLOAT32, MSCCLPP_SUM, NULL), MSCCLPP_INVALID, "elements for each");
  REFUSES(mscclpp_broadcast(comm, x, x, 4, MSCCLPP_FLOAT32, 5, NULL), MSCCLPP_INVALID, "root");
  REFUSES(mscclpp_send(comm, x, 4, MSCCLPP_FLOAT32, -1, NULL), MSCCLPP_INVALID, "");
  REFUSES(mscclpp_all_to_all_v(comm, x, NULL, NULL, x, NULL, NULL, MSCCLPP_FLOAT32, NULL), MSCCLPP_INVALID, "four arrays");
  REFUSES(mscclpp_group_end(comm), MSCCLPP_INVALID, "without a start");
  REFUSES(mscclpp_prepare(comm, "allredcue", MSCCLPP_FLOAT32), MSCCLPP_INVALID, "allreduce");
  REFUSES(mscclpp_prepare(comm, "allreduce", 77), MSCCLPP_INVALID, "element type 77");
  REFUSES(mscclpp_prepare(comm, NULL, 0), MSCCLPP_INVALID, "NULL");
  REFUSES(mscclpp_comm_query(comm, "color", NULL, &size), MSCCLPP_INVALID, "property \"color\"");
  REFUSES(mscclpp_comm_query(comm, "device", NULL, &size), MSCCLPP_INVALID, "expected 5");
  TRUE(size == 5); /* "host" and its end */
  REFUSES(mscclpp_comm_dump(comm, NULL, NULL), MSCCLPP_INVALID, "NULL");

  gone = comm;
  OK(mscclpp_comm_destroy(comm));
  REFUSES(mscclpp_comm_destroy(gone), MSCCLPP_INVALID, "a communicator that was destroyed");
  REFUSES(mscclpp_barrier(gone, NULL), MSCCLPP_INVALID, "a communicator that was destroyed");
  OK(mscclpp_comm_create(NULL, &comm)); /* in the place of the one before */
  TRUE(comm != gone);
  REFUSES(mscclpp_comm_join(gone), MSCCLPP_INVALID, "a communicator that was destroyed");
  OK(mscclpp_comm_destroy(comm)); /* it was never joined */
}

void versions(void) {
  struct {
    mscclpp_comm_options_t known;
    uint64_t unknown;
  } longer = {MSCCLPP_COMM_OPTIONS_INIT, 0};
  mscclpp_comm_options_t o = MSCCLPP_COMM_OPTIONS_INIT;
  mscclpp_unique_id_t id;
  const char *wrong[] = {"comm.scratch"}, *unknown[] = {"comm.scrtach=1MiB"};
  mscclpp_comm_t comm = (mscclpp_comm_t)&comm;

  TRUE(mscclpp_abi_version() == MSCCLPP_ABI_VERSION);
  TRUE(strstr(mscclpp_version(), "go1.") != NULL);
  TRUE(strcmp(mscclpp_result_name(MSCCLPP_PEER), "MSCCLPP_PEER") == 0);
  TRUE(strcmp(mscclpp_result_name(-1), "unknown result") == 0 && strcmp(mscclpp_result_name(1000), "unknown result") == 0);
  TRUE(mscclpp_supports("collectives") == 1 && mscclpp_supports("telepathy") == 0 && mscclpp_supports(NULL) == 0);
  TRUE(strcmp(mscclpp_last_error(), "") == 0 && mscclpp_last_error_rank() == -1);
  char text[16];
  REFUSES(mscclpp_setting("comm.scrtach", text, sizeof text), MSCCLPP_INVALID, "expected a key of the configuration");
  REFUSES(mscclpp_setting("comm", text, sizeof text), MSCCLPP_INVALID, "expected a key of the configuration");
  REFUSES(mscclpp_setting(NULL, text, sizeof text), MSCCLPP_INVALID, "the key is NULL");
  REFUSES(mscclpp_setting("device", NULL, 8), MSCCLPP_INVALID, "the place for the result");
  REFUSES(mscclpp_setting("log.level", text, 2), MSCCLPP_INVALID, "expected at least");
  OK(mscclpp_setting("comm.max_blocks", text, sizeof text));
  TRUE(strcmp(text, "0") == 0);

  o.size = 3;
  REFUSES(mscclpp_comm_create(&o, &comm), MSCCLPP_INVALID, "mscclpp_comm_options_t: size 3");
  TRUE(comm == NULL);
  longer.known.size = sizeof longer;
  OK(mscclpp_comm_create(&longer.known, &comm)); /* nothing in it is news */
  OK(mscclpp_comm_destroy(comm));
  longer.unknown = 1;
  REFUSES(mscclpp_comm_create(&longer.known, &comm), MSCCLPP_UNSUPPORTED, "the program was made for a newer one");

  o.size = sizeof o;
  o.ranks = 2;
  REFUSES(mscclpp_comm_create(&o, &comm), MSCCLPP_INVALID, "without an id");
  memset(&id, 7, sizeof id);
  o.id = &id;
  REFUSES(mscclpp_comm_create(&o, &comm), MSCCLPP_INVALID, "unique id");
  o.rank = 2;
  REFUSES(mscclpp_comm_create(&o, &comm), MSCCLPP_INVALID, "rank 2 of 2");
  o.id = NULL;
  o.rank = o.ranks = 0;
  o.settings_count = 1;
  REFUSES(mscclpp_comm_create(&o, &comm), MSCCLPP_INVALID, "settings");
  o.settings = wrong;
  REFUSES(mscclpp_comm_create(&o, &comm), MSCCLPP_INVALID, "settings[0] is \"comm.scratch\": expected \"key=value\"");
  o.settings = unknown;
  REFUSES(mscclpp_comm_create(&o, &comm), MSCCLPP_INVALID, "comm.scratch"); /* which is the nearest */
  o.settings_count = 0;
  o.defaults_count = 1;
  REFUSES(mscclpp_comm_create(&o, &comm), MSCCLPP_INVALID, "defaults is NULL");
  o.defaults = wrong;
  REFUSES(mscclpp_comm_create(&o, &comm), MSCCLPP_INVALID, "defaults[0] is \"comm.scratch\": expected \"key=value\"");
  o.defaults_count = 0;
  o.device = "abacus";
  OK(mscclpp_comm_create(&o, &comm));
  REFUSES(mscclpp_comm_join(comm), MSCCLPP_INVALID, "abacus");
  REFUSES(mscclpp_comm_join(comm), MSCCLPP_INVALID, "abacus");
  REFUSES(mscclpp_comm_status(comm), MSCCLPP_INVALID, "abacus");
  OK(mscclpp_comm_destroy(comm));
  REFUSES(mscclpp_unique_id_create(NULL, NULL), MSCCLPP_INVALID, "NULL");
  REFUSES(mscclpp_unique_id_create(&id, "192.0.2.1"), MSCCLPP_UNAVAILABLE, "192.0.2.1"); /* an address for documentation */
}
