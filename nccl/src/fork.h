/* A forked child has the library's memory, but none of its threads. */
#pragma once

#include "../nccl.h"

/* after_fork reports whether this process was forked from one in which the library ran. */
int after_fork(void);

/* fork_refusal is the answer of functions that cannot work then. */
ncclResult_t fork_refusal(const char* function);

/* fork_watch installs the handlers, once. */
void fork_watch(void);
