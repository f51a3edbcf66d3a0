// Kernels as the committed PTX, instead of the same sources compiled for the CPU: CUDA_EMULATED_RUN=ptx.
#ifndef EMULATED_INTERPRET_H_
#define EMULATED_INTERPRET_H_

#include <memory>
#include <string>
#include <vector>

#include "program.h"
#include "state.h"

// Whether PTX is to be interpreted.
bool interprets();

// Decodes a text. Null: what is wrong with it is in why.
std::shared_ptr<const ptx::Program> decode(const std::string& name, const std::string& text, std::string* why);

// Executes a launch on this thread, as blocks of warps, of which there are fewer than it asks for: kernels are right for
// any shape. A mistake of the kernel loses the device.
void interpret(Context* context, const ptx::Program& program, const ptx::Function& entry, const std::vector<char>& parameters, uint32_t grid,
               uint32_t block, uint32_t shared, uint32_t cluster);

#endif  // EMULATED_INTERPRET_H_
