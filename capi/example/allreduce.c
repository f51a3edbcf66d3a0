/* A complete program: every rank contributes its number, and all get the sum.
 *
 *   cc allreduce.c $(pkg-config --cflags --libs mscclpp) -o allreduce
 *   mscclpp-run -n 4 ./allreduce
 *
 * Buffers are ordinary memory of the host. */
#include <mscclpp.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT 1000

static mscclpp_comm_t comm;

/* check ends the program, and with it the job, if a call has failed. */
static void check(const char *call, mscclpp_result_t result) {
  if (result == MSCCLPP_SUCCESS) return;
  fprintf(stderr, "%s: %s: %s\n", call, mscclpp_result_name(result), mscclpp_last_error());
  mscclpp_comm_abort(comm, call);
  exit(EXIT_FAILURE);
}

int main(void) {
  static float in[COUNT], out[COUNT];
  int32_t rank, ranks;
  int i;

  if (mscclpp_abi_version() != MSCCLPP_ABI_VERSION) {
    fprintf(stderr, "the library has version %u of the interface: expected %u\n", mscclpp_abi_version(), MSCCLPP_ABI_VERSION);
    return EXIT_FAILURE;
  }
  check("create", mscclpp_comm_create(NULL, &comm));
  check("join", mscclpp_comm_join(comm));
  check("rank", mscclpp_comm_rank(comm, &rank));
  check("size", mscclpp_comm_size(comm, &ranks));

  for (i = 0; i < COUNT; i++) in[i] = (float)(rank + i);
  check("all_reduce", mscclpp_all_reduce(comm, in, out, COUNT, MSCCLPP_FLOAT32, MSCCLPP_SUM, NULL));
  for (i = 0; i < COUNT; i++) {
    float want = (float)(ranks * i + ranks * (ranks - 1) / 2);
    if (out[i] != want) {
      fprintf(stderr, "rank %d: element %d is %g: expected %g\n", (int)rank, i, out[i], want);
      return EXIT_FAILURE;
    }
  }
  printf("rank %d of %d: %d sums are right\n", (int)rank, (int)ranks, COUNT);

  check("destroy", mscclpp_comm_destroy(comm));
  return EXIT_SUCCESS;
}
