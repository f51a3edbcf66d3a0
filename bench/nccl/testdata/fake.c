// A library with NCCL's functions that notes how it is called, in the file that
// FAKE_NCCL_LOG names. FAKE_NCCL_REFUSE is the function that answers an error.
// Built with -DOLD it lacks what versions before 2.28 lack.
#include <stddef.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { char internal[128]; } id;

static int note(const char *name, const char *format, ...) {
	const char *path = getenv("FAKE_NCCL_LOG");
	FILE *log = path ? fopen(path, "a") : 0;
	if (log) {
		va_list args;
		va_start(args, format);
		fprintf(log, "%s ", name);
		vfprintf(log, format, args);
		fprintf(log, "\n");
		va_end(args);
		fclose(log);
	}
	const char *refuse = getenv("FAKE_NCCL_REFUSE");
	return refuse && strcmp(refuse, name) == 0 ? 5 : 0;
}

#define N (unsigned long)
int ncclGetVersion(int *v) { *v = 22803; return 0; }
const char *ncclGetErrorString(int e) { return e == 5 ? "invalid usage" : "no error"; }
const char *ncclGetLastError(void *c) { return "the last words"; }
int ncclGetUniqueId(id *i) { memset(i, 'u', sizeof *i); return note("GetUniqueId", ""); }
int ncclCommInitRank(void **c, int n, id i, int r) { *c = (void *)(long)(100 + r); return note("CommInitRank", "%d of %d, %c%c", r, n, i.internal[0], i.internal[127]); }
int ncclCommDestroy(void *c) { return note("CommDestroy", "%lu", N c); }
int ncclRedOpCreatePreMulSum(int *op, void *s, int t, int where, void *c) { *op = 77; return note("PreMulSum", "%d %d %g", t, where, t == 7 ? *(float *)s : *(double *)s); }
int ncclRedOpDestroy(int op, void *c) { return note("RedOpDestroy", "%d", op); }
int ncclGroupStart(void) { return note("GroupStart", ""); }
int ncclGroupEnd(void) { return note("GroupEnd", ""); }
int ncclSend(const void *b, size_t n, int t, int p, void *c, void *s) { return note("Send", "%lu %lu %d to %d", N b, N n, t, p); }
int ncclRecv(void *b, size_t n, int t, int p, void *c, void *s) { return note("Recv", "%lu %lu %d from %d", N b, N n, t, p); }
int ncclAllReduce(const void *i, void *o, size_t n, int t, int op, void *c, void *s) { return note("AllReduce", "%lu %lu %lu %d %d on %lu", N i, N o, N n, t, op, N s); }
int ncclAllGather(const void *i, void *o, size_t n, int t, void *c, void *s) { return note("AllGather", "%lu %lu %lu %d", N i, N o, N n, t); }
int ncclReduceScatter(const void *i, void *o, size_t n, int t, int op, void *c, void *s) { return note("ReduceScatter", "%lu %lu %lu %d %d", N i, N o, N n, t, op); }
int ncclBroadcast(const void *i, void *o, size_t n, int t, int r, void *c, void *s) { return note("Broadcast", "%lu %lu %lu %d root %d", N i, N o, N n, t, r); }
int ncclReduce(const void *i, void *o, size_t n, int t, int op, int r, void *c, void *s) { return note("Reduce", "%lu %lu %lu %d %d root %d", N i, N o, N n, t, op, r); }
#ifndef OLD
int ncclCommWindowRegister(void *c, void *b, size_t n, void **w, int flags) { *w = b; return note("WindowRegister", "%lu %d", N n, flags); }
int ncclCommWindowDeregister(void *c, void *w) { return note("WindowDeregister", ""); }
int ncclAlltoAll(const void *i, void *o, size_t n, int t, void *c, void *s) { return note("AlltoAll", "%lu %lu %lu %d", N i, N o, N n, t); }
#endif
