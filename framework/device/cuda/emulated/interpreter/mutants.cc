// Planted weakenings: one instruction that orders something orders less, or nothing. By rule, over whatever an image has.
#include <algorithm>

#include "session.h"

namespace interpreter {
namespace {

using ptx::Instruction;
using ptx::Kind;
using ptx::Order;
using ptx::Scope;

void skip(Instruction* i) { i->skipped = true; }
void relax(Instruction* i) { i->order = Order::kRelaxed; }
void narrow(Instruction* i) { i->scope = i->scope == Scope::kSys ? Scope::kGpu : Scope::kCta; }
void plain(Instruction* i) {
  i->order = Order::kWeak;
  i->is_volatile = false;
}
void pass(Instruction* i) { i->passes = true; }

// The threads do not wait, and each has its own answer.
void alone(Instruction* i) {
  if (i->kind == Kind::kBarrier) return skip(i);
  Instruction form;
  ptx::decode_form("mov.pred", &form);
  i->run = form.run;
  i->kind = Kind::kPlain;
}

}  // namespace

std::vector<Mutant> mutants_of(ptx::Program& program) {
  std::vector<Mutant> out;
  for (auto& [name, f] : program.functions) {
    for (Instruction& i : f->code) {
      if (i.hits == 0) continue;
      const auto put = [&, text = program.name + ":" + std::to_string(i.line) + " " + i.text + " in " + name](const char* how, void (*apply)(Instruction*)) {
        out.push_back({&i, how, text, apply});
      };
      switch (i.kind) {
        case Kind::kBarrier: case Kind::kBarrierAnd: put("barrier dropped", alone); break;
        case Kind::kFence: put("fence dropped", skip); break;
        case Kind::kAliasFence: put("alias fence dropped", skip); break;
        case Kind::kGridWait: put("wait for the grid before dropped", skip); break;
        case Kind::kLoad:
          if (i.order == Order::kAcquire) {
            put("wait relaxed", relax);
            put("wait of narrower scope", narrow);
            put("wait dropped", pass);
          } else if (i.is_volatile) {
            put("packet polled by plain loads", plain);
          }
          break;
        case Kind::kStore: case Kind::kReduction: case Kind::kMultiReduction:
          if (i.order == Order::kRelease) {
            put("signal relaxed", relax);
            put("signal of narrower scope", narrow);
            put("signal dropped", skip);
          } else if (i.is_volatile) {
            put("packet stored by plain stores", plain);
            put("packet dropped", skip);
          }
          break;
        case Kind::kAtomic:
          if (i.order == Order::kAcqRel) {
            put("atomic relaxed", relax);
            put("atomic of narrower scope", narrow);
          }
          break;
        default: break;
      }
    }
  }
  return out;
}

}  // namespace interpreter
