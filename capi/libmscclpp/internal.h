/* What the C and the Go side of the library share. The C side checks what can be checked without
 * Go, keeps the errors of each thread, and calls Go; none of this is exported. */
#ifndef MSCCLPP_INTERNAL_H_
#define MSCCLPP_INTERNAL_H_

#include <signal.h>

#include "../mscclpp.h"
#include "../mscclpp_inference.h"

/* The last error of a thread. */
struct failure {
  int32_t rank;
  char text[2044];
};

struct failure *failure_here(void);

/* failed records an error that the C side found, and returns its code. */
mscclpp_result_t failed(mscclpp_result_t code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* succeeded says whether this process may call Go: it may not if it was forked. */
int usable(void);
mscclpp_result_t refuse_forked(void);

/* forked_poller says with which descriptor the runtime polls; forked_close, in a child, closes that and what it polls. */
void forked_poller(int fd);
void forked_close(void);

/* A guard keeps SIGPIPE from the caller's thread while Go may write to a socket on it. */
struct guard {
  sigset_t before;
  int blocked;
};
void guard_enter(struct guard *g);
void guard_leave(struct guard *g);

/* SETUP is the body of a function that may communicate with other processes, and DATA that of one on
 * the data path. */
#define SETUP(call)                     \
  do {                                  \
    struct guard guard_;                \
    mscclpp_result_t result_;           \
    if (!usable()) return refuse_forked(); \
    guard_enter(&guard_);               \
    result_ = (call);                   \
    guard_leave(&guard_);               \
    return result_;                     \
  } while (0)
#define DATA(call) return usable() ? (call) : refuse_forked()

/* TEARDOWN is the body of a function that frees: in a forked child there is nothing to free. */
#define TEARDOWN(call)                      \
  do {                                      \
    if (!usable()) return MSCCLPP_SUCCESS;  \
    SETUP(call);                            \
  } while (0)

/* structure copies a versioned structure of the caller to one of ours with known bytes, which holds the
 * defaults. least is the size of its first version. */
mscclpp_result_t structure(void *to, size_t known, size_t least, const void *from, const char *type);

/* PLACE checks the argument of a function that writes a result, and clears it. */
#define PLACE(out, what)                                                                                 \
  do {                                                                                                   \
    if ((out) == NULL) return failed(MSCCLPP_INVALID, "%s: the place for the result is NULL", (what)); \
    *(out) = 0;                                                                                          \
  } while (0)

/* own_file returns the path of this library, "" if it cannot be found. */
const char *own_file(void);

/* environment returns the variables of the process as they are now: Go has those of when it was loaded. */
char **environment(void);

/* lastwords_are says where the table of internal/lastwords is. */
void lastwords_are(void *at, size_t n);

void call_log(mscclpp_log_fn log, void *context, int level, const char *text);
int call_handler(mscclpp_proxy_fn handler, void *context, uint64_t first, uint64_t second, uint64_t position);
/* call_selector asks the program's selector; request_names says how requests name a collective. */
const char *call_selector(mscclpp_selector_fn selector, void *context, uint32_t kind, uint64_t bytes, uint64_t count, int32_t type,
                          int32_t op, int32_t root, int32_t ranks, int32_t in_place);
void request_names(uint32_t kind, const char *name);
void call_write(mscclpp_write_fn write, void *context, const char *text, size_t size);

/* Kinds of handles, of channels, and requests to port channels. */
enum { KIND_COMM = 1, KIND_MEMORY, KIND_WINDOW, KIND_CHANNEL, KIND_PROXY, KIND_PLAN_PROGRAM, KIND_PLAN, KIND_EXECUTOR, KIND_MODULE, KIND_KERNEL, KIND_WORKSPACE, KIND_MOE, KIND_KEPT };
enum { CHANNEL_MEMORY = 1, CHANNEL_PORT, CHANNEL_SWITCH };
enum { PORT_PUT = 1, PORT_PUT_SIGNAL, PORT_SIGNAL, PORT_FLUSH, PORT_WAIT };

/* A call of a collective. */
enum call_kind {
  CALL_ALL_REDUCE, CALL_REDUCE, CALL_REDUCE_SCATTER, CALL_ALL_GATHER, CALL_BROADCAST, CALL_GATHER, CALL_SCATTER,
  CALL_ALL_TO_ALL, CALL_ALL_TO_ALL_V, CALL_SEND, CALL_RECV, CALL_BARRIER
};
struct call {
  mscclpp_call_options_t options;
  const void *send;
  void *recv;
  size_t count;
  const size_t *send_counts, *send_offsets, *recv_counts, *recv_offsets;
  int32_t kind, type, op, root; /* root, or peer */
};

/* fast_call makes a call without Go, if there was one like it: 1. The others are for Go: where tables of packages fastpath are. */
int fast_call(uintptr_t comm, const struct call *c);
void fast_function(uintptr_t f);
void fast_kind(int call, uint32_t kind);
void fast_bind(uintptr_t comm, uintptr_t table);
void fast_unbind(uintptr_t comm);

#endif
