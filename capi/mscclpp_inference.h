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

/* How rows are normalized: x / sqrt(mean(x^2) + epsilon) * weight, or (x - mean(x)) / sqrt(var(x) + epsilon) * weight. */
enum { MSCCLPP_RMS_NORM = 0, MSCCLPP_LAYER_NORM = 1 };

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
} mscclpp_norm_call_t;
#define MSCCLPP_NORM_CALL_INIT {sizeof(mscclpp_norm_call_t), NULL, 0, 0, MSCCLPP_BFLOAT16, 0, 0, 0, 1e-6f, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL}

/* mscclpp_all_reduce_norm adds up the inputs of all ranks and the residual, and normalizes the rows of that. Results are the same
 * on all ranks, bit for bit. All ranks pass the same numbers, and the same residual, weight and bias. Buffers are rows without
 * gaps, aligned to 16 bytes. On the host it returns when this rank is done; on a GPU when the work is on the stream. */
mscclpp_result_t mscclpp_all_reduce_norm(mscclpp_workspace_t workspace, const mscclpp_norm_call_t *call);

#ifdef __cplusplus
}
#endif
#endif /* MSCCLPP_INFERENCE_H_ */
