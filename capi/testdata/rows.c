/* Operators whose buffers have the rows that a rank owns: reduce-scatter, norm, all-gather; and all-gather with quantization. */
#include <math.h>
#include <mscclpp_inference.h>

#include "client.h"

#define HIDDEN 16
#define TOKENS 5 /* of three ranks the first two own two rows, and the last one owns one */
#define RANKS 3

static float value(int rank, int row, int i) { return (float)((rank * 5 + row * 3 + i * 7) % 13 - 6); }
static float residual_of(int row, int i) { return (float)((row + i) % 5) * 0.5f; }

static float *aligned(size_t n) {
  float *p = aligned_alloc(64, (n * sizeof(float) + 63) / 64 * 64);
  TRUE(p != NULL);
  memset(p, 0, n * sizeof(float));
  return p;
}

/* near compares a row with the norm of the sum of all ranks and the residual. */
static int near(const float *got, const float *sum, float epsilon) {
  float squares = 0;
  int i, right = 1;
  for (i = 0; i < HIDDEN; i++) squares += sum[i] * sum[i];
  for (i = 0; i < HIDDEN; i++) right = right && fabsf(got[i] - sum[i] / sqrtf(squares / HIDDEN + epsilon) * 2) < 1e-4f;
  return right;
}

static void sums(float sum[TOKENS][HIDDEN]) {
  int row, i, r;
  for (row = 0; row < TOKENS; row++) {
    for (i = 0; i < HIDDEN; i++) {
      sum[row][i] = residual_of(row, i);
      for (r = 0; r < RANKS; r++) sum[row][i] += value(r, row, i);
    }
  }
}

void rows(void) {
  mscclpp_comm_t comm;
  mscclpp_workspace_t space;
  mscclpp_norm_call_t c = MSCCLPP_NORM_CALL_INIT, wrong;
  const mscclpp_workspace_options_t options = {sizeof(options), 1 << 20};
  float sum[TOKENS][HIDDEN], *input = aligned(TOKENS * HIDDEN), *residual = aligned(TOKENS * HIDDEN), *weight = aligned(HIDDEN);
  float *output = aligned(TOKENS * HIDDEN), *kept = aligned(TOKENS * HIDDEN), *scales = aligned(TOKENS);
  int8_t *bytes = (int8_t *)aligned(TOKENS * HIDDEN);
  int32_t rank, size;
  int first, own, row, i;

  OK(mscclpp_comm_create(NULL, &comm));
  OK(mscclpp_comm_join(comm));
  OK(mscclpp_comm_rank(comm, &rank));
  OK(mscclpp_comm_size(comm, &size));
  TRUE(size == RANKS);
  OK(mscclpp_workspace_create(comm, &options, &space));
  first = 2 * rank;
  own = rank == 2 ? 1 : 2;
  sums(sum);
  for (i = 0; i < HIDDEN; i++) weight[i] = 2;
  for (row = 0; row < TOKENS; row++) {
    for (i = 0; i < HIDDEN; i++) input[row * HIDDEN + i] = value(rank, row, i);
  }
  for (row = 0; row < own; row++) {
    for (i = 0; i < HIDDEN; i++) residual[row * HIDDEN + i] = residual_of(first + row, i);
  }
  c.tokens = TOKENS, c.hidden = HIDDEN, c.type = MSCCLPP_FLOAT32;
  c.input = input, c.residual = residual, c.weight = weight, c.output = output, c.residual_out = kept;

  /* Reduce-scatter, norm, all-gather: all rows of the norm, and the rank's own of the sum. */
  c.rows = MSCCLPP_OWN_RESIDUAL;
  OK(mscclpp_all_reduce_norm(space, &c));
  for (row = 0; row < TOKENS; row++) TRUE(near(output + row * HIDDEN, sum[row], c.epsilon));
  for (row = 0; row < own; row++) TRUE(memcmp(kept + row * HIDDEN, sum[first + row], sizeof sum[0]) == 0);
  for (i = own * HIDDEN; i < TOKENS * HIDDEN; i++) TRUE(kept[i] == 0);

  /* Reduce-scatter, norm: of the output the rank's own alone. */
  memset(output, 0, TOKENS * HIDDEN * sizeof *output);
  c.rows = MSCCLPP_OWN_ROWS;
  OK(mscclpp_all_reduce_norm(space, &c));
  for (row = 0; row < own; row++) TRUE(near(output + row * HIDDEN, sum[first + row], c.epsilon));
  for (i = own * HIDDEN; i < TOKENS * HIDDEN; i++) TRUE(output[i] == 0);

  /* Norm, all-gather: the input has the rank's own rows, which no rank adds up. */
  c.rows = MSCCLPP_OWN_INPUT;
  for (row = 0; row < own; row++) memcpy(input + row * HIDDEN, sum[first + row], sizeof sum[0]);
  c.residual = NULL;
  OK(mscclpp_all_reduce_norm(space, &c));
  for (row = 0; row < TOKENS; row++) TRUE(near(output + row * HIDDEN, sum[row], c.epsilon));

  /* All-gather and quantize. */
  c.norm = MSCCLPP_NO_NORM, c.quantization = MSCCLPP_INT8_PER_TOKEN;
  c.weight = NULL, c.residual_out = NULL, c.output = bytes, c.scales = scales;
  OK(mscclpp_all_reduce_norm(space, &c));
  for (row = 0; row < TOKENS; row++) {
    float most = 0;
    for (i = 0; i < HIDDEN; i++) most = fmaxf(most, fabsf(sum[row][i]));
    TRUE(fabsf(scales[row] - most / 127) < 1e-6f);
    for (i = 0; i < HIDDEN; i++) TRUE(fabsf((float)bytes[row * HIDDEN + i] * scales[row] - sum[row][i]) <= 0.51f * scales[row]);
  }

  wrong = c;
  wrong.rows = 5;
  REFUSES(mscclpp_all_reduce_norm(space, &wrong), MSCCLPP_INVALID, "rows 5: expected 0 to 4");
  wrong = c;
  wrong.rows = MSCCLPP_OWN_RESIDUAL, wrong.shots = 1;
  REFUSES(mscclpp_all_reduce_norm(space, &wrong), MSCCLPP_INVALID, "as a row is added up by its owner");
  wrong = c;
  wrong.scales = NULL;
  REFUSES(mscclpp_all_reduce_norm(space, &wrong), MSCCLPP_INVALID, "scales is nil");
  OK(mscclpp_workspace_free(space));
  OK(mscclpp_comm_destroy(comm));
}
