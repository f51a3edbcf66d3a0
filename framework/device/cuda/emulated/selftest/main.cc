#include "test.h"

std::map<std::string, Test>& tests() {
  static std::map<std::string, Test> all;
  return all;
}

int add_test(const char* name, Test run) {
  tests()[name] = run;
  return 0;
}

void expect(long got, long want, const char* what, const char* file, int line) {
  if (got == want) return;
  printf("%s:%d: %s: %ld, expected %ld\n", file, line, what, got, want);
  fflush(stdout);
  _Exit(1);
}

CUcontext use(int device) {
  CUcontext context;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, device));
  OK(cuCtxSetCurrent(context));
  return context;
}

CUstream new_stream(unsigned flags) {
  CUstream s;
  OK(cuStreamCreateWithPriority(&s, flags, 0));
  return s;
}

CUmemAllocationProp pinned(int device, int handle_types) {
  CUmemAllocationProp p{};
  p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.requestedHandleTypes = handle_types;
  p.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return p;
}

Word::Word() { OK(cuMemAlloc_v2(&at, 8)); }
uint64_t Word::get() const { return __atomic_load_n(reinterpret_cast<uint64_t*>(at), __ATOMIC_ACQUIRE); }
void Word::set(uint64_t v) const { __atomic_store_n(reinterpret_cast<uint64_t*>(at), v, __ATOMIC_RELEASE); }

std::vector<char> download(CUdeviceptr from, size_t bytes) {
  std::vector<char> out(bytes);
  CUstream s = new_stream();
  OK(cuMemcpyDtoHAsync_v2(out.data(), from, bytes, s));
  OK(cuStreamSynchronize(s));
  OK(cuStreamDestroy_v2(s));
  return out;
}

int main(int argc, char** argv) {
  if (argc < 2) {
    for (auto& [name, run] : tests()) printf("%s\n", name.c_str());
    return 0;
  }
  auto it = tests().find(argv[1]);
  if (it == tests().end()) return 2;
  it->second();
  return 0;
}
