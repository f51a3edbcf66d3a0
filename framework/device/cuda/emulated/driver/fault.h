// The fate of a kernel or a copy that touches memory that is not mapped: as on a GPU,
// the context is lost, and every further call answers with the error.
#ifndef EMULATED_FAULT_H_
#define EMULATED_FAULT_H_

#include "state.h"

// Calls work, unless the context is lost, and comes back if that faults. what is for
// the message. Nothing with a destructor may live in the frames of work.
void guarded(Context* context, const char* what, void (*work)(void*), void* data);

template <class F>
void guarded(Context* context, const char* what, F work) {
  guarded(context, what, [](void* f) { (*static_cast<F*>(f))(); }, &work);
}

#endif  // EMULATED_FAULT_H_
