// A program of tests against the library: one test a process, named on the command
// line. The declarations are those of the code that will use the library.
#ifndef EMULATED_TEST_H_
#define EMULATED_TEST_H_

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "types.h"

#define CUDA_SYMBOL(name, arguments) extern "C" CUresult name arguments;
#define CUDA_LATER_SYMBOL CUDA_SYMBOL
#include "symbols.h"
#undef CUDA_LATER_SYMBOL
#undef CUDA_SYMBOL

using Test = void (*)();
std::map<std::string, Test>& tests();
int add_test(const char* name, Test run);

#define TEST(name)                                       \
  static void name();                                    \
  static const int name##_added = add_test(#name, name); \
  static void name()

void expect(long got, long want, const char* what, const char* file, int line);

// EXPECT(call, result) is for driver calls and for numbers alike.
#define EXPECT(got, want) expect(static_cast<long>(got), static_cast<long>(want), #got, __FILE__, __LINE__)
#define OK(call) EXPECT(call, CUDA_SUCCESS)

// Makes the primary context of a device current.
CUcontext use(int device = 0);
CUstream new_stream(unsigned flags = CU_STREAM_NON_BLOCKING);
CUmemAllocationProp pinned(int device, int handle_types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

// A word of device memory, zero.
struct Word {
  CUdeviceptr at = 0;
  Word();
  uint64_t get() const;
  void set(uint64_t v) const;
};

// Copies between the host and device memory, on a stream of their own.
std::vector<char> download(CUdeviceptr from, size_t bytes);

// PTX of a kernel copies_word(to, from), and of spins(word): see kernels.cc.
extern const char kPtx[];

#endif  // EMULATED_TEST_H_
