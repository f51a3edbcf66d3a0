// The C side of GDRCopy, NVIDIA's access to memory of a GPU for the processor: a library,
// opened at run time, and behind it the kernel module gdrdrv.
#ifndef MSCCLPP_CUDA_GDRCOPY_H_
#define MSCCLPP_CUDA_GDRCOPY_H_

#include "shim.h"

#pragma GCC visibility push(hidden)

// Chooses the libraries that view_open looks for: names or paths, separated by line ends, the best first.
void gdrcopy_choose(const char* paths);
// Says why none was opened.
void gdrcopy_reason(char* text, size_t bytes);

#pragma GCC visibility pop

#endif
