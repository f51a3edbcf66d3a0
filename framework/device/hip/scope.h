// Steps that every entry does before and after its work.
#ifndef MSCCLPP_HIP_SCOPE_H_
#define MSCCLPP_HIP_SCOPE_H_

#include "shim.h"

typedef struct {
  int found;  // the thread's device
  int mode;
} hip_scope;

static inline hipError_t enter(const hip_device* d, hip_scope* s) {
  s->found = d->index;
  const hipError_t r = d->api->hipGetDevice(&s->found);
  return r != hipSuccess || s->found == d->index ? r : d->api->hipSetDevice(d->index);
}

static inline void leave(const hip_device* d, const hip_scope* s) {
  if (s->found != d->index) d->api->hipSetDevice(s->found);
}

// While a stream is captured in global mode, allocations and waits of all threads fail, and spoil the capture, unless the
// thread says that it knows what it does. None of ours concern the stream that is captured.
static inline hipError_t enter_relaxed(const hip_device* d, hip_scope* s) {
  hipError_t r = enter(d, s);
  if (r != hipSuccess) return r;
  s->mode = hipStreamCaptureModeRelaxed;
  r = d->api->hipThreadExchangeStreamCaptureMode(&s->mode);
  if (r != hipSuccess) leave(d, s);
  return r;
}

static inline void leave_relaxed(const hip_device* d, hip_scope* s) {
  d->api->hipThreadExchangeStreamCaptureMode(&s->mode);
  leave(d, s);
}

// CALL calls a function of the library and notes which it was; it is true on success. The status is named st, the device d.
#define CALL(function, ...) (st.call = #function, st.code = d->api->function(__VA_ARGS__), st.code == hipSuccess)

#define BEGIN                                                  \
  hip_scope scope;                                             \
  hip_status st = {.call = "hipSetDevice"};                    \
  if ((st.code = enter_relaxed(d, &scope)) != hipSuccess) return st
#define END                 \
  leave_relaxed(d, &scope); \
  return st

// Entries that may run often, and those that a capture may record, leave the thread's mode alone.
#define BEGIN_HOT                                      \
  hip_scope scope;                                     \
  hip_status st = {.call = "hipSetDevice"};            \
  if ((st.code = enter(d, &scope)) != hipSuccess) return st
#define END_HOT     \
  leave(d, &scope); \
  return st

// says makes a status of one of the words of HIP_SAYS_….
static inline hip_status says(int what, int answer) { return (hip_status){.code = what * HIP_HINT + answer}; }

#define POINTER(address) ((void*)(uintptr_t)(address))

#endif
