/* Execution plans. mscclpp.h includes this file, and has what holds for all of the interface. */
#ifndef MSCCLPP_PLANS_H_
#define MSCCLPP_PLANS_H_

#include "mscclpp.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Execution plans ----------------------------------------------------------------------------
 *
 * A program of the plan language is made by messages, one for each call of the language: for front ends
 * in other languages. docs/c-api.md says where they are listed. */

typedef struct mscclpp_plan_program *mscclpp_plan_program_t;

/* mscclpp_plan_program_create begins a program. It needs no communicator. */
mscclpp_result_t mscclpp_plan_program_create(mscclpp_plan_program_t *program);

/* mscclpp_plan_program_call makes one call of the language, a JSON object of size bytes. answer gets a JSON
 * object: "value", or "error" with the kind and the text of a mistake in the program, which is no error of
 * this function. Errors: MSCCLPP_INVALID for NULL. */
mscclpp_result_t mscclpp_plan_program_call(mscclpp_plan_program_t program, const char *message, size_t size,
                                           mscclpp_write_fn answer, void *context);

/* mscclpp_plan_program_free ends a program. NULL is allowed. */
mscclpp_result_t mscclpp_plan_program_free(mscclpp_plan_program_t program);

/* A plan as it stands in a file. It belongs to no communicator. */
typedef struct mscclpp_plan *mscclpp_plan_t;

/* mscclpp_plan_read reads a plan from a file, .json or .json.gz; mscclpp_plan_parse from size bytes of JSON text. Local.
 * Errors: MSCCLPP_INVALID for a plan that is wrong, with file, line and place; MSCCLPP_UNAVAILABLE or MSCCLPP_FAILED for a file
 * that cannot be read. */
mscclpp_result_t mscclpp_plan_read(const char *file, mscclpp_plan_t *plan);
mscclpp_result_t mscclpp_plan_parse(const char *text, size_t size, mscclpp_plan_t *plan);

/* mscclpp_plan_describe gives answer a JSON object: "name", "collective", "protocol", "in_place", "ranks",
 * "min_message_size", "max_message_size", "buffer_alignment", and "chunks": a list of {"input", "output", "scratch"} by rank. */
mscclpp_result_t mscclpp_plan_describe(mscclpp_plan_t plan, mscclpp_write_fn answer, void *context);

/* mscclpp_plan_check proves a plan, or finds out why it is wrong. answer gets a JSON object: "verdict" ("right",
 * "right once", "wrong", "race", "hang" or "refused"), "reason", "ranks" and "notes". It needs no device. */
mscclpp_result_t mscclpp_plan_check(mscclpp_plan_t plan, mscclpp_write_fn answer, void *context);

/* mscclpp_plan_free ends a plan. Executors that were made of it go on. NULL is allowed. */
mscclpp_result_t mscclpp_plan_free(mscclpp_plan_t plan);

/* An executor runs one plan on one communicator. It belongs to the communicator, and ends with it. */
typedef struct mscclpp_executor *mscclpp_executor_t;

typedef struct {
  size_t size;
  void *stream;         /* as in mscclpp_call_options_t */
  mscclpp_op_t op;      /* MSCCLPP_SUM, _PROD, _MIN or _MAX: of the plan's sums; its minima and maxima stay what they are */
  int32_t packet_bytes; /* of plans of packets: 8 (LL8) or 16 (LL16); 0: 16 */
  int32_t keep_input;   /* not 0: input is not written, whatever the plan does to it */
} mscclpp_execute_options_t;
#define MSCCLPP_EXECUTE_OPTIONS_INIT {sizeof(mscclpp_execute_options_t), NULL, MSCCLPP_SUM, 0, 0}

/* mscclpp_executor_create prepares a plan. Collective: all ranks pass the same plan. Errors: MSCCLPP_INVALID for a plan for
 * another number of ranks, or that is not that of the other ranks; MSCCLPP_UNAVAILABLE if no transport has the kernel, or
 * a channel that the plan names. */
mscclpp_result_t mscclpp_executor_create(mscclpp_comm_t comm, mscclpp_plan_t plan, mscclpp_executor_t *executor);

/* mscclpp_executor_execute runs the plan once, on buffers of so many bytes: multiples of the plan's alignment and of its
 * number of chunks. All ranks pass the same sizes, type, operation and format of packets. The first call with a size sets up
 * memory, together with the other ranks. On the host it returns when this rank is done; on a GPU when the work
 * is on the stream. Buffers may lie anywhere, and may be one where the plan works in place. options may be NULL. */
mscclpp_result_t mscclpp_executor_execute(mscclpp_executor_t executor, const void *input, size_t input_bytes, void *output,
                                          size_t output_bytes, mscclpp_type_t type, const mscclpp_execute_options_t *options);

/* mscclpp_executor_free ends an executor. Local. NULL is allowed. */
mscclpp_result_t mscclpp_executor_free(mscclpp_executor_t executor);

typedef struct {
  size_t size;
  uint32_t flags;       /* 0 or MSCCLPP_PLAN_UNVERIFIED */
  int32_t packet_bytes; /* of plans of packets: 8 (LL8) or 16 (LL16); 0: 16 */
} mscclpp_register_options_t;
#define MSCCLPP_REGISTER_OPTIONS_INIT {sizeof(mscclpp_register_options_t), 0, 0}
#define MSCCLPP_PLAN_UNVERIFIED 1u /* the plan need not be right, as mscclpp_plan_check has it */

/* mscclpp_plan_register makes a plan an algorithm of the communicator's collectives, under the plan's name: the selector or
 * mscclpp_call_options_t choose it, the library's tables do not. It lives as long as the communicator; communicators that are made
 * from it later do not have it. Collective: all ranks register the same plans in the same order, between the same calls. options may
 * be NULL. Errors: MSCCLPP_INVALID for a plan that is not right, or whose name is taken; MSCCLPP_UNSUPPORTED for one that is for
 * another number of ranks, or for none of allreduce, allgather, reducescatter and alltoall; those of mscclpp_executor_create. */
mscclpp_result_t mscclpp_plan_register(mscclpp_comm_t comm, mscclpp_plan_t plan, const mscclpp_register_options_t *options);

/* A call for which an algorithm is chosen. */
typedef struct {
  size_t size;            /* of this structure: what a newer library adds comes last */
  const char *collective; /* allreduce, allgather, reducescatter, broadcast, reduce, alltoall; for ever valid */
  uint64_t bytes;         /* of the larger buffer */
  uint64_t count;         /* as the call has it */
  mscclpp_type_t type;
  mscclpp_op_t op;
  int32_t root, ranks;
  int32_t in_place; /* 1 or 0 */
} mscclpp_request_t;

/* A selector returns the name of an algorithm, or NULL to leave the choice to the library's tables. The name is copied. It is called
 * once in every call of a collective that names no algorithm, on the thread of that call, and must return the same on all
 * ranks. It must not call the library. A name that does not exist, or that does not serve the call, is an error of the call. */
typedef const char *(*mscclpp_selector_fn)(void *context, const mscclpp_request_t *request);

/* mscclpp_selector_register sets the communicator's selector; NULL removes it. All ranks do so between the same calls. Calls do not
 * repeat the choice of the one before as long as there is a selector. */
mscclpp_result_t mscclpp_selector_register(mscclpp_comm_t comm, mscclpp_selector_fn selector, void *context);

#ifdef __cplusplus
}
#endif
#endif /* MSCCLPP_PLANS_H_ */
