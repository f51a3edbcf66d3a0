// Faults that a test asks for: a call of the driver answers with a code, late, or ends the process.
#ifndef EMULATED_INJECTED_H_
#define EMULATED_INJECTED_H_

#include "state.h"

// Notes a call of a function, and returns what it has to answer for the GPU with this number on the emulated host:
// kSuccess where no fault is asked for. It may take its time, without the lock, or not come back.
int injected(Lock& lock, const char* call, int physical);

// The same for calls that name no device: that of the current context, else the first.
int injected(Lock& lock, const char* call);

#endif  // EMULATED_INJECTED_H_
