// The forms of instructions that are known.
#ifndef EMULATED_PTX_FORMS_H_
#define EMULATED_PTX_FORMS_H_

#include <string>
#include <unordered_map>

#include "program.h"

namespace ptx {

struct Form {
  Handler run;
  Kind kind;
  Type type, from;
};
using Forms = std::unordered_map<std::string, Form>;

void add_operations(Forms* forms);    // operations.cc
void add_conversions(Forms* forms);   // conversions.cc
bool decode_memory(const std::string& opcode, Instruction* out);  // forms.cc

// memory.cc, multimem.cc
void load(Warp& w, const Instruction& i, uint32_t lanes);
void load_parameter(Warp& w, const Instruction& i, uint32_t lanes);
void store(Warp& w, const Instruction& i, uint32_t lanes);
void atomic_add(Warp& w, const Instruction& i, uint32_t lanes);
void compare_and_swap(Warp& w, const Instruction& i, uint32_t lanes);
void multimem_load(Warp& w, const Instruction& i, uint32_t lanes);
void multimem_min(Warp& w, const Instruction& i, uint32_t lanes);
void multimem_max(Warp& w, const Instruction& i, uint32_t lanes);
void multimem_store(Warp& w, const Instruction& i, uint32_t lanes);
void multimem_add(Warp& w, const Instruction& i, uint32_t lanes);

// cluster.cc
void map_shared(Warp& w, const Instruction& i, uint32_t lanes);
void mbarrier_init(Warp& w, const Instruction& i, uint32_t lanes);
void mbarrier_expect(Warp& w, const Instruction& i, uint32_t lanes);
void mbarrier_test(Warp& w, const Instruction& i, uint32_t lanes);
void store_async(Warp& w, const Instruction& i, uint32_t lanes);

}  // namespace ptx

#endif  // EMULATED_PTX_FORMS_H_
