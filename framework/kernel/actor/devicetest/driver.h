// The functions of NVIDIA's driver library that a test needs, opened at run time: no toolkit.
#pragma once

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <string>
#include <vector>

namespace cuda {

using Handle = void*;
using Address = uint64_t;

inline void* library() {
  static void* lib = dlopen("libcuda.so.1", RTLD_NOW);
  if (lib == nullptr) {
    fprintf(stderr, "no NVIDIA driver: %s\n", dlerror());
    exit(77);
  }
  return lib;
}

template <class... A>
void call(const char* name, A... a) {
  using F = int (*)(A...);
  F f = reinterpret_cast<F>(dlsym(library(), name));
  const int rc = f != nullptr ? f(a...) : -1;
  if (rc != 0) {
    fprintf(stderr, "%s: error %d\n", name, rc);
    exit(1);
  }
}

inline void open() {
  int device = 0;
  Handle context;
  call("cuInit", 0u);
  call("cuDeviceGet", &device, 0);
  call("cuDevicePrimaryCtxRetain", &context, device);
  call("cuCtxSetCurrent", context);
}

// How many functions use local memory.
inline int& spilled() {
  static int n = 0;
  return n;
}

// Loads PTX and returns a function of it.
inline Handle load(const std::string& file, const char* symbol) {
  FILE* f = fopen(file.c_str(), "rb");
  if (f == nullptr) {
    perror(file.c_str());
    exit(1);
  }
  std::string text;
  char buffer[1 << 16];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, f)) > 0;) text.append(buffer, n);
  fclose(f);
  Handle module, function;
  call("cuModuleLoadDataEx", &module, static_cast<const void*>(text.c_str()), 0u, nullptr, nullptr);
  call("cuModuleGetFunction", &function, module, symbol);
  int local = 0, registers = 0;
  call("cuFuncGetAttribute", &local, 3, function);      // local memory, bytes a thread
  call("cuFuncGetAttribute", &registers, 4, function);
  printf("%s: %d registers, %d bytes of local memory\n", file.c_str(), registers, local);
  if (local != 0) {
    printf("%s: SPILLS\n", file.c_str());
    ++spilled();
  }
  return function;
}

// Zeroed memory of the device; memory of the host that both reach at one address.
inline Address memory(size_t bytes) {
  Address p = 0;
  const std::vector<char> zeros(bytes + 64);
  call("cuMemAlloc_v2", &p, zeros.size());
  call("cuMemcpyHtoD_v2", p, static_cast<const void*>(zeros.data()), zeros.size());
  return p;
}
template <class T>
T* shared(size_t n) {
  void* p = nullptr;
  call("cuMemHostAlloc", &p, n * sizeof(T) + 64, 3u);  // portable, mapped
  memset(p, 0, n * sizeof(T));
  return static_cast<T*>(p);
}
template <class T>
T* shared(const T& value) {
  T* p = shared<T>(static_cast<size_t>(1));
  *p = value;
  return p;
}
inline void toDevice(Address to, const void* from, size_t bytes) {
  if (bytes > 0) call("cuMemcpyHtoD_v2", to, from, bytes);
}
inline void toHost(void* to, Address from, size_t bytes) {
  if (bytes > 0) call("cuMemcpyDtoH_v2", to, from, bytes);
}

inline Handle stream() {
  Handle s;
  call("cuStreamCreateWithPriority", &s, 1u, 0);  // not blocked by the default stream
  return s;
}
// As the driver has it: no attributes.
struct LaunchConfig {
  unsigned grid, gridY = 1, gridZ = 1, block, blockY = 1, blockZ = 1, shared = 0;
  Handle stream;
  void* attributes = nullptr;
  unsigned count = 0;
};
template <class Args>
void launch(Handle function, unsigned grid, unsigned block, Handle on, const Args& args) {
  size_t bytes = sizeof args;
  void* extra[] = {reinterpret_cast<void*>(1), const_cast<Args*>(&args), reinterpret_cast<void*>(2), &bytes, nullptr};
  LaunchConfig config;
  config.grid = grid, config.block = block, config.stream = on;
  call("cuLaunchKernelEx", static_cast<const LaunchConfig*>(&config), function, static_cast<void**>(nullptr), static_cast<void**>(extra));
}
inline void wait(Handle s) { call("cuStreamSynchronize", s); }

}  // namespace cuda
