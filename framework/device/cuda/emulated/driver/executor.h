// A library over this core may have an executor, which executes code objects of AMD's GPUs as they are. Else images for the CPU stand
// for them.
#ifndef EMULATED_EXECUTOR_H_
#define EMULATED_EXECUTOR_H_

#include <stdint.h>

#include <string>
#include <vector>

struct Context;

class Executor {
 public:
  virtual ~Executor() = default;
  // Takes a code object, and returns a number for it. 0: why says what is wrong with it.
  virtual uint64_t load(const std::string& code, std::string* why) = 0;
  // Returns when the kernel has ended. A mistake of the kernel loses the device.
  virtual void run(Context* context, uint64_t code, const std::string& kernel, const std::vector<char>& arguments, uint32_t grid, uint32_t block) = 0;
};

// Null: there is none. It is set before the first module is loaded.
extern Executor* g_executor;

#endif  // EMULATED_EXECUTOR_H_
