// Steps that every portion does before and after its work.
#ifndef MSCCLPP_CUDA_SCOPE_H_
#define MSCCLPP_CUDA_SCOPE_H_

#include "shim.h"

typedef struct {
  CUcontext found;
  int mode;
} cuda_scope;

// Asking for the current context is a read of a word of the thread; setting it
// costs more. Remembering it here would not do: the application sets it as well.
static inline CUresult enter(const cuda_context* c, cuda_scope* s) {
  s->found = NULL;
  if (c->api->cuCtxGetCurrent(&s->found) != CUDA_SUCCESS) s->found = NULL;  // was destroyed
  return s->found == c->context ? CUDA_SUCCESS : c->api->cuCtxSetCurrent(c->context);
}

// A thread that had no context keeps ours: most are Go's own.
static inline void leave(const cuda_context* c, const cuda_scope* s) {
  if (s->found != NULL && s->found != c->context) c->api->cuCtxSetCurrent(s->found);
}

// While a stream is captured in global mode, allocations and waits of all threads
// fail, and spoil the capture, unless the thread says that it knows what it does.
// None of ours concern the stream that is captured.
static inline CUresult enter_relaxed(const cuda_context* c, cuda_scope* s) {
  CUresult r = enter(c, s);
  if (r != CUDA_SUCCESS) return r;
  s->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  r = c->api->cuThreadExchangeStreamCaptureMode(&s->mode);
  if (r != CUDA_SUCCESS) leave(c, s);
  return r;
}

static inline void leave_relaxed(const cuda_context* c, cuda_scope* s) {
  c->api->cuThreadExchangeStreamCaptureMode(&s->mode);
  leave(c, s);
}

// CALL calls a function of the driver and notes which it was; it is true on
// success. The status is named st, the context c.
#define CALL(function, ...) (st.call = #function, st.code = c->api->function(__VA_ARGS__), st.code == CUDA_SUCCESS)

#define BEGIN                                                    \
  cuda_scope scope;                                              \
  cuda_status st = {.call = "cuCtxSetCurrent"};                  \
  if ((st.code = enter_relaxed(c, &scope)) != CUDA_SUCCESS) return st
#define END                   \
  leave_relaxed(c, &scope);   \
  return st

// Entries that may run often, and those that a capture may record, leave the thread's mode alone.
#define BEGIN_HOT                                                \
  cuda_scope scope;                                              \
  cuda_status st = {.call = "cuCtxSetCurrent"};                  \
  if ((st.code = enter(c, &scope)) != CUDA_SUCCESS) return st
#define END_HOT       \
  leave(c, &scope);   \
  return st

// worded makes a status of one of the words of CUDA_WORDS_….
static inline cuda_status worded(int what, int answer) { return (cuda_status){.code = what * CUDA_HINT + answer}; }

#endif
