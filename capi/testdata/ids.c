/* Ids in hexadecimal: one process makes some and lives until its input ends, and others join with them. */
#include "client.h"

void makes_ids(void) {
  mscclpp_unique_id_t id;
  for (int n = 0; n < 4; n++) {
    OK(mscclpp_unique_id_create(&id, n % 2 == 0 ? NULL : "127.0.0.1"));
    for (size_t i = 0; i < sizeof id.bytes; i++) printf("%02x", id.bytes[i]);
    printf("\n");
  }
  REFUSES(mscclpp_unique_id_create(&id, "192.0.2.1"), MSCCLPP_UNAVAILABLE, "192.0.2.1");
  fflush(stdout);
  while (getchar() != EOF) continue;
}

/* A rank prints the result of joining, and the text. */
void joins_by_id(void) {
  mscclpp_comm_options_t options = MSCCLPP_COMM_OPTIONS_INIT;
  mscclpp_unique_id_t id;
  mscclpp_comm_t comm;
  mscclpp_result_t result;
  for (size_t i = 0; i < sizeof id.bytes; i++) {
    unsigned byte;
    TRUE(sscanf(getenv("ID") + 2 * i, "%2x", &byte) == 1);
    id.bytes[i] = (unsigned char)byte;
  }
  options.id = &id;
  options.rank = atoi(getenv("RANK"));
  options.ranks = atoi(getenv("RANKS"));
  if (getenv("LIMIT")) options.timeout = (uint64_t)atoi(getenv("LIMIT")) * 1000000;
  OK(mscclpp_comm_create(&options, &comm));
  result = mscclpp_comm_join(comm);
  if (result == MSCCLPP_SUCCESS) {
    int32_t mine = options.rank, all[8];
    OK(mscclpp_comm_exchange(comm, &mine, sizeof mine, all));
    TRUE(all[0] == 0 && all[options.ranks - 1] == options.ranks - 1);
  }
  printf("%s: %s\n", mscclpp_result_name(result), result == MSCCLPP_SUCCESS ? "" : mscclpp_last_error());
  OK(mscclpp_comm_destroy(comm));
}
