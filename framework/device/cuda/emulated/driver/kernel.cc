// Modules, functions and launches.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

#include "executor.h"
#include "fault.h"
#include "image.h"
#include "interpret.h"
#include "state.h"

namespace {

constexpr size_t kMostParameters = 4096;

// The second argument of a CPU kernel (mscclpp::LaunchShape).
struct Shape {
  uint32_t grid, block, shared, reserved;
};

void tell(unsigned count, const int* options, void** values, const std::string& why) {
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] != 5) continue;  // the buffer of the error log; its size is another option
    for (unsigned j = 0; j < count; ++j) {
      if (options[j] == 6) snprintf(static_cast<char*>(values[i]), reinterpret_cast<uintptr_t>(values[j]), "%s", why.c_str());
    }
  }
}

int find_module(Module* module) {
  for (auto& d : state().devices) {
    if (d->context.modules.count(module) == 1) return kSuccess;
  }
  return kInvalidHandle;
}

int find_function(Function* function) {
  for (auto& d : state().devices) {
    for (Module* m : d->context.modules) {
      auto it = function == nullptr ? m->functions.end() : m->functions.begin();
      for (; it != m->functions.end(); ++it) {
        if (it->second.get() == function) return kSuccess;
      }
    }
  }
  return kInvalidHandle;
}

// Copies the parameters: from the one block, or from the list of them.
int take(const Function& f, void** list, void** extra, std::vector<char>* out) {
  if (list != nullptr && extra != nullptr) return kInvalidValue;
  if (extra != nullptr) {
    const void* data = nullptr;
    size_t bytes = 0;
    for (void** e = extra; *e != nullptr; e += 2) {
      const auto what = reinterpret_cast<uintptr_t>(*e);
      if (what == 1) data = e[1];
      if (what == 2) bytes = *static_cast<size_t*>(e[1]);
      if (what > 2) return kInvalidValue;
    }
    if (bytes > kMostParameters || (bytes > 0 && data == nullptr)) return kInvalidValue;
    if (f.image->gpu && !f.image->other && bytes != f.parameters) return kInvalidValue;
    out->resize(bytes);
    memcpy(out->data(), data, bytes);
    return kSuccess;
  }
  if (list == nullptr) return f.parameters == 0 ? kSuccess : kInvalidValue;
  if (f.image->gpu) {
    // Kernels of this project have one parameter; of others the layout is not kept.
    out->resize(f.parameters);
    memcpy(out->data(), list[0], f.parameters);
    return kSuccess;
  }
  // An image of the CPU does not say how much it takes: whatever is there.
  out->resize(kMostParameters);
  const uintptr_t at = reinterpret_cast<uintptr_t>(list[0]);
  const size_t page = 4096 - at % 4096;
  const iovec to = {out->data(), kMostParameters};
  const iovec from[2] = {{list[0], std::min(page, kMostParameters)},
                         {reinterpret_cast<void*>(at + page), kMostParameters - std::min(page, kMostParameters)}};
  return process_vm_readv(getpid(), &to, 1, from, 2, 0) < 0 ? kInvalidValue : kSuccess;
}

}  // namespace

API int cuModuleLoadDataEx(Module** module, const void* image, unsigned count, int* options, void** values) {
  ENTER_UNSAFE(current);
  if (module == nullptr || image == nullptr || (count > 0 && (options == nullptr || values == nullptr))) return kInvalidValue;
  std::shared_ptr<Image> loaded;
  std::string why;
  if (int bad = load_image(image, getenv("CUDA_EMULATED_IMAGES") ?: "", &loaded, &why)) {
    tell(count, options, values, why);
    return bad;
  }
  *module = new Module{current, std::move(loaded), {}};
  current->modules.insert(*module);
  return kSuccess;
}

API int cuModuleUnload(Module* module) {
  ENTER_UNSAFE(current);
  if (int bad = find_module(module)) return bad;
  module->context->modules.erase(module);
  delete module;
  return kSuccess;
}

API int cuModuleGetFunction(Function** function, Module* module, const char* name) {
  ENTER_CONTEXT(current);
  if (function == nullptr || name == nullptr) return kInvalidValue;
  if (int bad = find_module(module)) return bad;
  auto& slot = module->functions[name];
  if (slot == nullptr) {
    Image& image = *module->image;
    auto entry = image.entries.find(name);
    const ptx::Function* code = image.program != nullptr ? image.program->entry(name) : nullptr;
    const bool executed = image.executed != 0 && entry != image.entries.end();
    void* address = image.program != nullptr || image.executed != 0 || (image.gpu && entry == image.entries.end()) ? nullptr : dlsym(image.library, name);
    if (address == nullptr && code == nullptr && !executed) {
      module->functions.erase(name);
      return kNotFound;
    }
    slot = std::make_unique<Function>();
    slot->context = module->context;
    slot->name = name;
    slot->image = module->image;
    slot->code = code;
    slot->entry = reinterpret_cast<void (*)(const void*, const void*)>(address);
    if (image.gpu) {
      slot->parameters = entry->second.parameters;
      slot->max_threads = entry->second.max_threads;
    }
  }
  *function = slot.get();
  return kSuccess;
}

API int cuFuncGetAttribute(int* value, int which, Function* function) {
  ENTER_CONTEXT(current);
  if (value == nullptr || which < 0 || which > 15) return kInvalidValue;
  if (int bad = find_function(function)) return bad;
  switch (which) {
    case 0: *value = function->max_threads; break;
    case 4: *value = 32; break;
    case 5: case 6: *value = 90; break;
    case 8: *value = static_cast<int>(function->shared_most); break;
    default: *value = 0;
  }
  return kSuccess;
}

API int cuFuncSetAttribute(Function* function, int which, int value) {
  ENTER_CONTEXT(current);
  if (int bad = find_function(function)) return bad;
  if (which == 9 && value >= -1 && value <= 100) return kSuccess;
  if (which != 8 || value < 0 || value > static_cast<int>(kSharedMost)) return kInvalidValue;
  function->shared_most = static_cast<unsigned>(value);
  return kSuccess;
}

API int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function* function, int block, size_t shared) {
  ENTER_CONTEXT(current);
  if (blocks == nullptr || block <= 0 || block > kMaxThreads) return kInvalidValue;
  if (int bad = find_function(function)) return bad;
  *blocks = block > function->max_threads || shared > kSharedMost ? 0 : std::min(32, kThreadsPerProcessor / ((block + 31) / 32 * 32));
  if (shared > 0) *blocks = std::min<int>(*blocks, static_cast<int>((kSharedMost + 1024) / (shared + 1024)));
  return kSuccess;
}

// Runs the kernel as one block of one thread, whatever the grid: kernels are right
// for any. The shape is checked as the driver would.
namespace {

// A driver blocks in a launch whose queue is full. A test says for how long: while a file is there.
void held() {
  const char* file = getenv("CUDA_EMULATED_HOLD");
  while (file != nullptr && *file != 0 && access(file, F_OK) == 0) usleep(1000);
}

uint64_t overlapping = 0;  // launches that may begin before the one in front of them has ended

}  // namespace

// For tests of programs: how many such launches there were. No real driver has this.
API uint64_t cuEmulatedOverlapping() {
  Lock lock(state().mutex);
  return overlapping;
}

API int cuLaunchKernelEx(const LaunchConfig* config, Function* function, void** list, void** extra) {
  held();
  ENTER_CONTEXT(current);
  if (config == nullptr || (config->count > 0 && config->attributes == nullptr)) return kInvalidValue;
  if (int bad = find_function(function)) return bad;
  Stream* stream;
  if (int bad = find_stream(config->stream, current, &stream)) return bad;
  if (stream->context != current || function->context != current) return kInvalidHandle;
  const uint64_t block = static_cast<uint64_t>(config->block_x) * config->block_y * config->block_z;
  const uint64_t grid = static_cast<uint64_t>(config->grid_x) * config->grid_y * config->grid_z;
  if (block == 0 || grid == 0 || block > static_cast<uint64_t>(function->max_threads) || config->grid_x > 0x7fffffffu ||
      config->shared > function->shared_most) {
    return kInvalidValue;
  }
  for (unsigned i = 0; i < config->count; ++i) {
    const int together = kProcessors * std::min(32, kThreadsPerProcessor / static_cast<int>(block));
    if (config->attributes[i].id == 2 && config->attributes[i].value.number != 0 && grid > static_cast<uint64_t>(together)) {
      return kCooperativeLaunchTooLarge;
    }
  }
  unsigned cluster = 1;
  for (unsigned i = 0; i < config->count; ++i) {
    const LaunchAttribute& a = config->attributes[i];
    overlapping += a.id == 6 && a.value.number != 0;
    if (a.id != 4) continue;
    cluster = a.value.cluster.x;
    if (cluster == 0 || cluster > 8 || a.value.cluster.y != 1 || a.value.cluster.z != 1 || grid % cluster != 0) return kInvalidClusterSize;
  }
  std::vector<char> parameters;
  if (int bad = take(*function, list, extra, &parameters)) return bad;
  const Shape shape = {static_cast<uint32_t>(grid), static_cast<uint32_t>(block), config->shared, 0};
  // The image is held: the module may be unloaded before its turn comes.
  return enqueue(stream, [context = stream->context, name = function->name, entry = function->entry, code = function->code, image = function->image,
                          parameters = std::move(parameters), shape, cluster] {
    if (image->executed != 0) return g_executor->run(context, image->executed, name, parameters, shape.grid, shape.block);
    if (code != nullptr) return interpret(context, *image->program, *code, parameters, shape.grid, shape.block, shape.shared, cluster);
    guarded(context, name.c_str(), [&] { entry(parameters.data(), &shape); });
  });
}
