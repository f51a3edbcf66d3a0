// The functions of NCCL that this package needs, called through pointers because the library is
// opened at run time: no header of it is needed to build.
#pragma once
#include <stddef.h>

typedef struct { char internal[128]; } nccl_id;
typedef struct nccl_library nccl_library;

// nccl_open loads the library. It returns 0 and a message that the caller frees if
// there is none or a function is missing.
nccl_library *nccl_open(const char *path, char **message);

int nccl_version(nccl_library *l, int *version);
const char *nccl_error(nccl_library *l, int result);
const char *nccl_last_error(nccl_library *l, void *comm);
int nccl_unique_id(nccl_library *l, nccl_id *id);
int nccl_join(nccl_library *l, void **comm, int ranks, nccl_id *id, int rank);
int nccl_leave(nccl_library *l, void *comm);
int nccl_window(nccl_library *l, void *comm, void *buffer, size_t bytes, void **window);
int nccl_window_close(nccl_library *l, void *comm, void *window);
int nccl_premulsum(nccl_library *l, void *comm, void *scalar, int type, int *op);
int nccl_op_close(nccl_library *l, void *comm, int op);

// nccl_calls enqueues a collective n times, or until an attempt fails; kind is one of the numbers below.
enum {
	NCCL_ALL_REDUCE, NCCL_ALL_GATHER, NCCL_REDUCE_SCATTER, NCCL_BROADCAST, NCCL_REDUCE,
	NCCL_ALL_TO_ALL, NCCL_GATHER, NCCL_SCATTER, NCCL_SHIFT,
};
typedef struct {
	int kind, type, op, root, rank, ranks;
	const void *in;
	void *out;
	size_t count, element;
	void *stream;
} nccl_call_args;
int nccl_calls(nccl_library *l, void *comm, const nccl_call_args *a, int n);
