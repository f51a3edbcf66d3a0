#include "shim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Functions that every version since 2.19 has, and those of newer ones.
#define NEEDED(X) \
	X(int, ncclGetVersion, (int *)) \
	X(const char *, ncclGetErrorString, (int)) \
	X(const char *, ncclGetLastError, (void *)) \
	X(int, ncclGetUniqueId, (nccl_id *)) \
	X(int, ncclCommInitRank, (void **, int, nccl_id, int)) \
	X(int, ncclCommDestroy, (void *)) \
	X(int, ncclRedOpCreatePreMulSum, (int *, void *, int, int, void *)) \
	X(int, ncclRedOpDestroy, (int, void *)) \
	X(int, ncclGroupStart, (void)) \
	X(int, ncclGroupEnd, (void)) \
	X(int, ncclSend, (const void *, size_t, int, int, void *, void *)) \
	X(int, ncclRecv, (void *, size_t, int, int, void *, void *)) \
	X(int, ncclAllReduce, (const void *, void *, size_t, int, int, void *, void *)) \
	X(int, ncclAllGather, (const void *, void *, size_t, int, void *, void *)) \
	X(int, ncclReduceScatter, (const void *, void *, size_t, int, int, void *, void *)) \
	X(int, ncclBroadcast, (const void *, void *, size_t, int, int, void *, void *)) \
	X(int, ncclReduce, (const void *, void *, size_t, int, int, int, void *, void *))
#define OPTIONAL(X) \
	X(int, ncclCommWindowRegister, (void *, void *, size_t, void **, int)) \
	X(int, ncclCommWindowDeregister, (void *, void *)) \
	X(int, ncclAlltoAll, (const void *, void *, size_t, int, void *, void *)) \
	X(int, ncclGather, (const void *, void *, size_t, int, int, void *, void *)) \
	X(int, ncclScatter, (const void *, void *, size_t, int, int, void *, void *))

struct nccl_library {
	void *handle;
#define FIELD(result, name, parameters) result (*name) parameters;
	NEEDED(FIELD)
	OPTIONAL(FIELD)
};

enum { invalid_usage = 5, symmetric_window = 1, scalar_on_host = 1 };

nccl_library *nccl_open(const char *path, char **message) {
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!handle) {
		*message = strdup(dlerror());
		return 0;
	}
	nccl_library *l = calloc(1, sizeof *l);
	if (!l) {
		*message = strdup("out of memory");
		return 0;
	}
	l->handle = handle;
	const char *missing = 0;
#define LOAD(result, name, parameters) l->name = (result(*) parameters)dlsym(handle, #name);
#define LOAD_NEEDED(result, name, parameters) LOAD(result, name, parameters) if (!l->name) missing = #name;
	NEEDED(LOAD_NEEDED)
	OPTIONAL(LOAD)
	if (missing) {
		char text[256];
		snprintf(text, sizeof text, "%s: it has no %s", path, missing);
		*message = strdup(text);
		dlclose(handle);
		free(l);
		return 0;
	}
	return l;
}

int nccl_version(nccl_library *l, int *version) { return l->ncclGetVersion(version); }
const char *nccl_error(nccl_library *l, int result) { return l->ncclGetErrorString(result); }
const char *nccl_last_error(nccl_library *l, void *comm) { return l->ncclGetLastError(comm); }
int nccl_unique_id(nccl_library *l, nccl_id *id) { return l->ncclGetUniqueId(id); }

int nccl_join(nccl_library *l, void **comm, int ranks, nccl_id *id, int rank) {
	return l->ncclCommInitRank(comm, ranks, *id, rank);
}

int nccl_leave(nccl_library *l, void *comm) { return l->ncclCommDestroy(comm); }

int nccl_window(nccl_library *l, void *comm, void *buffer, size_t bytes, void **window) {
	if (!l->ncclCommWindowRegister) return invalid_usage;
	return l->ncclCommWindowRegister(comm, buffer, bytes, window, symmetric_window);
}

int nccl_window_close(nccl_library *l, void *comm, void *window) {
	return l->ncclCommWindowDeregister(comm, window);
}

int nccl_premulsum(nccl_library *l, void *comm, void *scalar, int type, int *op) {
	return l->ncclRedOpCreatePreMulSum(op, scalar, type, scalar_on_host, comm);
}

int nccl_op_close(nccl_library *l, void *comm, int op) { return l->ncclRedOpDestroy(op, comm); }

// Collectives that older versions lack are made of messages, as their users do.
static int messages(nccl_library *l, void *comm, const nccl_call_args *a) {
	const size_t block = a->count * a->element;
	const char *in = a->in;
	char *out = a->out;
	int result = l->ncclGroupStart();
	for (int peer = 0; result == 0 && peer < a->ranks; peer++) {
		const int sends = a->kind == NCCL_ALL_TO_ALL || (a->kind == NCCL_GATHER && peer == a->root) ||
		                  (a->kind == NCCL_SCATTER && a->rank == a->root) ||
		                  (a->kind == NCCL_SHIFT && peer == (a->rank + 1) % a->ranks);
		const int receives = a->kind == NCCL_ALL_TO_ALL || (a->kind == NCCL_GATHER && a->rank == a->root) ||
		                     (a->kind == NCCL_SCATTER && peer == a->root) ||
		                     (a->kind == NCCL_SHIFT && peer == (a->rank + a->ranks - 1) % a->ranks);
		const int in_blocks = a->kind == NCCL_ALL_TO_ALL || a->kind == NCCL_SCATTER;
		const int out_blocks = a->kind == NCCL_ALL_TO_ALL || a->kind == NCCL_GATHER;
		if (sends) result = l->ncclSend(in + (in_blocks ? peer * block : 0), a->count, a->type, peer, comm, a->stream);
		if (result == 0 && receives)
			result = l->ncclRecv(out + (out_blocks ? peer * block : 0), a->count, a->type, peer, comm, a->stream);
	}
	const int ended = l->ncclGroupEnd();
	return result ? result : ended;
}

static int call(nccl_library *l, void *comm, const nccl_call_args *a) {
	switch (a->kind) {
	case NCCL_ALL_REDUCE: return l->ncclAllReduce(a->in, a->out, a->count, a->type, a->op, comm, a->stream);
	case NCCL_ALL_GATHER: return l->ncclAllGather(a->in, a->out, a->count, a->type, comm, a->stream);
	case NCCL_REDUCE_SCATTER: return l->ncclReduceScatter(a->in, a->out, a->count, a->type, a->op, comm, a->stream);
	case NCCL_BROADCAST: return l->ncclBroadcast(a->in, a->out, a->count, a->type, a->root, comm, a->stream);
	case NCCL_REDUCE: return l->ncclReduce(a->in, a->out, a->count, a->type, a->op, a->root, comm, a->stream);
	case NCCL_ALL_TO_ALL:
		if (l->ncclAlltoAll) return l->ncclAlltoAll(a->in, a->out, a->count, a->type, comm, a->stream);
		break;
	case NCCL_GATHER:
		if (l->ncclGather) return l->ncclGather(a->in, a->out, a->count, a->type, a->root, comm, a->stream);
		break;
	case NCCL_SCATTER:
		if (l->ncclScatter) return l->ncclScatter(a->in, a->out, a->count, a->type, a->root, comm, a->stream);
		break;
	}
	return messages(l, comm, a);
}

int nccl_calls(nccl_library *l, void *comm, const nccl_call_args *a, int n) {
	int result = 0;
	for (int i = 0; i < n && result == 0; i++) result = call(l, comm, a);
	return result;
}
