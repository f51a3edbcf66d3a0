/* The interface of libmscclpp.so.1 for inference: mscclpp.h has what holds for all of it. It is 0.x, as that is. */
#ifndef MSCCLPP_INFERENCE_H_
#define MSCCLPP_INFERENCE_H_

#include "mscclpp.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Operators between the layers of a model: a reduction over the ranks, and in the same kernel the next steps. A workspace has
 * their kernels, and memory that the ranks have opened to each other. It belongs to the communicator, and ends with it. */
typedef struct mscclpp_workspace *mscclpp_workspace_t;

typedef struct {
  size_t size;
  size_t scratch_bytes; /* of the memory that each rank opens to the others; 0: 64 MiB on GPUs, 8 MiB on the host */
} mscclpp_workspace_options_t;
#define MSCCLPP_WORKSPACE_OPTIONS_INIT {sizeof(mscclpp_workspace_options_t), 0}

/* mscclpp_workspace_create makes a workspace. Collective: all ranks pass the same options, or NULL. MSCCLPP_UNAVAILABLE: not all
 * ranks reach each other's memory, or there are no kernels for the device. mscclpp_workspace_free is local, and allows NULL. */
mscclpp_result_t mscclpp_workspace_create(mscclpp_comm_t comm, const mscclpp_workspace_options_t *options, mscclpp_workspace_t *workspace);
mscclpp_result_t mscclpp_workspace_free(mscclpp_workspace_t workspace);

/* How rows are normalized: x / sqrt(mean(x^2) + epsilon) * weight, or (x - mean(x)) / sqrt(var(x) + epsilon) * weight, or not at all. */
enum { MSCCLPP_RMS_NORM = 0, MSCCLPP_LAYER_NORM = 1, MSCCLPP_NO_NORM = 2 };

/* Which rows the buffers of a rank have: all; or of residual and residual_out those that the rank owns (reduce-scatter, norm,
 * all-gather); or of the output, too (reduce-scatter, norm); or of all but the output, and inputs are not added up (norm, all-gather); or
 * all, and there is no communication. A rank owns ceil(tokens / ranks) rows, rank 0 the first ones; of the last ranks some may own fewer. */
enum { MSCCLPP_ALL_ROWS, MSCCLPP_OWN_RESIDUAL, MSCCLPP_OWN_ROWS, MSCCLPP_OWN_INPUT, MSCCLPP_LOCAL_ROWS };

/* An output is quantized to 8-bit floats or integers: a normalized element, rounded to the type of the input, divided by a
 * scale. Per token the scale of a row is written, its largest magnitude over 448 or 127; per tensor one scale is given. */
enum {
  MSCCLPP_NOT_QUANTIZED, MSCCLPP_E4M3_PER_TOKEN, MSCCLPP_E4M3_PER_TENSOR, MSCCLPP_INT8_PER_TOKEN, MSCCLPP_INT8_PER_TENSOR
};

typedef struct {
  size_t size;
  void *stream;                 /* as in mscclpp_call_options_t */
  size_t tokens, hidden;        /* rows, and elements of one: a multiple of 8 */
  mscclpp_type_t type;          /* MSCCLPP_FLOAT16, _BFLOAT16 or _FLOAT32, of all buffers but a quantized output */
  int32_t norm, quantization;   /* of the enumerations above */
  int32_t shots;                /* 1: every rank adds up all rows; 2: a row is added up by one rank; 0: chosen by the size */
  float epsilon;
  const void *input, *residual; /* of this rank, to be added up; of all ranks alike, or NULL */
  const void *weight, *bias;    /* one row each; the bias is added behind the weight, or NULL */
  void *output, *residual_out;  /* the norm, which may be input; the sum with the residual, which may be residual */
  float *scales;                /* one for each row: of quantization per token, else NULL */
  const float *scale;           /* of quantization per tensor, else NULL */
  int32_t rows;                 /* of the enumeration above; without it all rows */
  int32_t reserved;             /* 0 */
} mscclpp_norm_call_t;
#define MSCCLPP_NORM_CALL_INIT {sizeof(mscclpp_norm_call_t), NULL, 0, 0, MSCCLPP_BFLOAT16, 0, 0, 0, 1e-6f, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0}

/* mscclpp_all_reduce_norm adds up the inputs of all ranks and the residual, and normalizes the rows of that. Results are the same
 * on all ranks, bit for bit. All ranks pass the same numbers, and the same residual, weight and bias. Buffers are rows without
 * gaps, aligned to 16 bytes. On the host it returns when this rank is done; on a GPU when the work is on the stream.
 *
 * With MSCCLPP_NO_NORM weight is NULL, and residual_out may be. The next kernel of the stream may begin before this one has ended, if it
 * was launched with programmatic stream serialization: it waits (griddepcontrol.wait) before it uses what this one reads or writes. */
mscclpp_result_t mscclpp_all_reduce_norm(mscclpp_workspace_t workspace, const mscclpp_norm_call_t *call);

/* Experts: rows of tokens go to the ranks whose experts the tokens have chosen, and weighted sums of their rows come back. An object
 * has the kernels, and memory that the ranks have opened to each other. It belongs to the communicator, and ends with it. */
typedef struct mscclpp_moe *mscclpp_moe_t;

typedef struct {
  size_t size;
  size_t tokens, hidden, experts; /* of a rank at most; elements of a row at most; of all ranks, which have equally many but for the last */
} mscclpp_moe_options_t;
#define MSCCLPP_MOE_OPTIONS_INIT {sizeof(mscclpp_moe_options_t), 0, 0, 0}

/* mscclpp_moe_create is collective: all ranks pass the same options. MSCCLPP_UNAVAILABLE: not all ranks reach each other's memory, or are
 * joined by port channels; or there are no kernels for the device. Over port channels it takes twice the bytes, and calls go through the host. mscclpp_moe_free is local, and allows NULL. mscclpp_moe_sizes says how many bytes of memory an
 * object takes on each of so many ranks, and how many the handle of a dispatch has. Either may be NULL. */
mscclpp_result_t mscclpp_moe_create(mscclpp_comm_t comm, const mscclpp_moe_options_t *options, mscclpp_moe_t *moe);
mscclpp_result_t mscclpp_moe_free(mscclpp_moe_t moe);
mscclpp_result_t mscclpp_moe_sizes(const mscclpp_moe_options_t *options, int32_t ranks, size_t *bytes, size_t *handle_bytes);

/* A call is made whole, or in two: SEND returns as soon as data for other ranks is on its way, and RECEIVE, with the same buffers and the ticket
 * of SEND, waits for theirs. At most two calls of a kind may be between the two; a receive of other sizes than its send is MSCCLPP_INVALID. */
enum { MSCCLPP_MOE_WHOLE = 0, MSCCLPP_MOE_SEND = 1, MSCCLPP_MOE_RECEIVE = 2 };

/* Rows stay bf16; become e4m3 with a float scale for 128 elements, their largest magnitude over 448; or are e4m3 with given scales. */
enum { MSCCLPP_MOE_BF16 = 0, MSCCLPP_MOE_CAST_E4M3 = 1, MSCCLPP_MOE_GIVEN_E4M3 = 2 };

/* Indices have one integer for each token and each of its top_k experts, at most 16; -1 is no expert. All ranks pass the same numbers but
 * tokens and top_k. Slots are the rows that an expert has room for; 0: the tokens of the options, times ranks. Results: */
typedef struct {
  size_t size;
  void *stream;                 /* as in mscclpp_call_options_t */
  size_t tokens, hidden, top_k, slots, row_scales; /* row_scales: of each given row */
  int32_t phase, format;        /* of the enumerations above */
  int32_t index64;              /* 1: indices are int64_t; 0: int32_t */
  int32_t round_scale;          /* 1: scales that are made are powers of two */
  int32_t exponents;            /* 1: and are given out as their exponents, bytes, four to a word */
  int32_t reserved;
  uint64_t *ticket;             /* written by SEND, read by RECEIVE; else NULL */
  const void *input;            /* a row for each token */
  const float *scales;          /* of given rows */
  const void *indices;
  const float *weights;         /* of the indices; or NULL on all ranks, and combine brings them, which takes it longer */
  void *output;                 /* [expert of this rank][slots] rows: the first ones, in the order of ranks and tokens */
  void *output_scales;          /* [expert][scale][slots] floats, or [expert][scale / 4][slots] words of exponents */
  int32_t *sources;             /* [expert][slots]: the token of a row */
  int64_t *ranges;              /* [expert][rank]: the first row << 32 | rows */
  int32_t *received;            /* [expert]: rows */
  int32_t *statistics;          /* [expert]: received is added to it; or NULL */
  void *handle;                 /* bytes of mscclpp_moe_sizes, for combine */
} mscclpp_dispatch_call_t;
#define MSCCLPP_DISPATCH_CALL_INIT \
  {sizeof(mscclpp_dispatch_call_t), NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL}

typedef struct {
  size_t size;
  void *stream;
  size_t tokens, hidden, top_k, slots; /* as for the dispatch */
  int32_t phase, index64;
  int32_t weighted;             /* 1: the dispatch has brought the weights; all ranks pass the same */
  int32_t reserved;
  uint64_t *ticket;
  const void *input;            /* [expert of this rank][slots] rows of bf16 */
  const void *indices;
  const float *weights;
  const void *handle;           /* of the dispatch */
  void *output;                 /* a row of bf16 for each token: the sum of weight times row over its experts */
} mscclpp_combine_call_t;
#define MSCCLPP_COMBINE_CALL_INIT {sizeof(mscclpp_combine_call_t), NULL, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL}

/* On the host these return when this rank is done; on a GPU when the work is on the stream. An expert that is sent more rows than it has
 * slots, and an index of no expert, end the communicator with an error that names the expert. */
mscclpp_result_t mscclpp_moe_dispatch(mscclpp_moe_t moe, const mscclpp_dispatch_call_t *call);
mscclpp_result_t mscclpp_moe_combine(mscclpp_moe_t moe, const mscclpp_combine_call_t *call);

#ifdef __cplusplus
}
#endif
#endif /* MSCCLPP_INFERENCE_H_ */
