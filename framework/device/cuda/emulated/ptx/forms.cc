// Opcodes with their modifiers, each in the one order that the language has.
#include "forms.h"

#include <string.h>

namespace ptx {
namespace {

const char* const kTypes[] = {"", "b8", "u8", "s8", "b16", "u16", "s16", "f16", "b32", "u32", "s32", "f32", "f16x2", "bf16x2",
                              "b64", "u64", "s64", "f64", "pred", "e4m3x2", "e5m2x2"};

const Forms& known() {
  static const Forms* const forms = [] {
    auto* f = new Forms;
    add_operations(f);
    add_conversions(f);
    const auto control = [f](const char* name, Kind kind) { (*f)[name] = {nullptr, kind, Type::kNone, Type::kNone}; };
    control("bra", Kind::kBranch), control("bra.uni", Kind::kBranch), control("call.uni", Kind::kCall);
    control("ret", Kind::kReturn), control("exit", Kind::kExit);
    control("bar.sync", Kind::kBarrier), control("bar.red.and.pred", Kind::kBarrierAnd), control("vote.sync.all.pred", Kind::kVote);
    control("shfl.sync.bfly.b32", Kind::kShuffle);
    control("griddepcontrol.wait", Kind::kGridWait), control("griddepcontrol.launch_dependents", Kind::kGridRelease);
    control("barrier.cluster.arrive.release.aligned", Kind::kClusterArrive), control("barrier.cluster.wait.acquire.aligned", Kind::kClusterWait);
    control("fence.mbarrier_init.release.cluster", Kind::kFence);
    (*f)["mapa.shared::cluster.u64"] = {map_shared, Kind::kPlain, Type::kU64, Type::kU64};
    (*f)["mbarrier.init.shared::cta.b64"] = {mbarrier_init, Kind::kMbarrierInit, Type::kB64, Type::kB64};
    (*f)["mbarrier.arrive.expect_tx.shared::cta.b64"] = {mbarrier_expect, Kind::kMbarrierExpect, Type::kB64, Type::kB64};
    (*f)["mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64"] = {mbarrier_test, Kind::kMbarrierTest, Type::kB64, Type::kB64};
    (*f)["st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32"] = {store_async, Kind::kStoreAsync, Type::kB32, Type::kB32};
    control("fence.proxy.alias", Kind::kAliasFence);
    control("fence.acq_rel.sys", Kind::kFence), control("fence.acq_rel.gpu", Kind::kFence), control("fence.acq_rel.cta", Kind::kFence);
    for (const char* name : {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
                             "cp.async.cg.shared.global", "cp.async.commit_group", "cp.async.wait_group"}) {
      control(name, Kind::kForeign);
    }
    return f;
  }();
  return *forms;
}

// Takes modifiers from the front of a list that is separated by dots.
class Modifiers {
 public:
  explicit Modifiers(const std::string& opcode) {
    for (size_t from = 0, dot; from != std::string::npos; from = dot == std::string::npos ? dot : dot + 1) {
      dot = opcode.find('.', from);
      all_.push_back(opcode.substr(from, dot == std::string::npos ? dot : dot - from));
    }
  }
  bool take(const char* name) {
    if (at_ >= all_.size() || all_[at_] != name) return false;
    ++at_;
    return true;
  }
  bool scope(Scope* out) {
    if (take("cta")) *out = Scope::kCta;
    else if (take("gpu")) *out = Scope::kGpu;
    else if (take("sys")) *out = Scope::kSys;
    else return false;
    return true;
  }
  bool type(Type* out) { return at_ < all_.size() && parse_type(all_[at_], out) && *out != Type::kNone && ++at_ > 0; }
  bool done() const { return at_ == all_.size(); }

 private:
  std::vector<std::string> all_;
  size_t at_ = 0;
};

bool finish(Modifiers& m, Instruction* out, bool vectors) {
  if (vectors && m.take("v2")) out->vector = 2;
  else if (vectors && m.take("v4")) out->vector = 4;
  return m.type(&out->type) && m.done() && out->vector * size_of(out->type) <= 16;
}

bool order_of(Modifiers& m, Instruction* out, bool loads, bool stores) {
  if (m.take("relaxed")) out->order = Order::kRelaxed;
  else if (loads && m.take("acquire")) out->order = Order::kAcquire;
  else if (stores && m.take("release")) out->order = Order::kRelease;
  else if (loads && stores && m.take("acq_rel")) out->order = Order::kAcqRel;
  else return false;
  return m.scope(&out->scope);
}

bool plain_access(Modifiers& m, Instruction* out, bool loads) {
  out->kind = loads ? Kind::kLoad : Kind::kStore;
  out->run = loads ? load : store;
  if (m.take("volatile")) {
    out->is_volatile = true;
    out->order = Order::kRelaxed;
    out->scope = Scope::kSys;
  } else {
    order_of(m, out, loads, !loads);
  }
  if (m.take("global")) out->space = Space::kGlobal;
  else if (m.take("shared")) out->space = Space::kShared;
  else if (m.take("param")) out->space = Space::kParam;
  if (out->space == Space::kParam && out->order != Order::kWeak) return false;
  if (out->space == Space::kParam && loads) out->run = load_parameter;
  return finish(m, out, true);
}

bool multimem(Modifiers& m, Instruction* out) {
  const bool loads = m.take("ld_reduce"), stores = !loads && m.take("st");
  if (!loads && !stores && !m.take("red")) return false;
  out->kind = loads ? Kind::kMultiLoad : stores ? Kind::kMultiStore : Kind::kMultiReduction;
  out->run = loads ? multimem_load : stores ? multimem_store : multimem_add;
  out->every_copy = true;
  out->space = Space::kGlobal;
  if (!order_of(m, out, loads, !loads) || !m.take("global")) return false;
  const bool least = loads && m.take("min"), most = loads && !least && m.take("max");
  if (least || most) out->run = least ? multimem_min : multimem_max;
  else if (!stores && !m.take("add")) return false;
  const bool accumulated = loads && m.take("acc::f32");
  if (!finish(m, out, !(out->kind == Kind::kMultiReduction))) return false;
  const Type t = out->type;
  const bool halves = t == Type::kF16x2 || t == Type::kBf16x2;
  if (accumulated != (loads && halves && !least && !most)) return false;  // sums of this project are
  if (out->vector > 1 && t != Type::kF32 && !halves) return false;
  if (least || most) return halves || ((t == Type::kU32 || t == Type::kS32 || t == Type::kU64 || t == Type::kS64) && out->vector == 1);
  if (loads && t == Type::kS64) return false;
  return t == Type::kU32 || t == Type::kS32 || t == Type::kU64 || t == Type::kF32 || t == Type::kF64 || halves || (stores && (t == Type::kB32 || t == Type::kB64 || t == Type::kS64));
}

bool atomic(Modifiers& m, Instruction* out, bool returns) {
  out->kind = returns ? Kind::kAtomic : Kind::kReduction;
  out->run = atomic_add;
  if (!order_of(m, out, returns, true) || !m.take("global")) return false;
  out->space = Space::kGlobal;
  if (returns && m.take("cas")) out->run = compare_and_swap;
  else if (!m.take("add")) return false;
  return finish(m, out, false) && size_of(out->type) >= 4 && out->type != Type::kF32 && out->type != Type::kF64;
}

}  // namespace

int size_of(Type t) {
  switch (t) {
    case Type::kB8: case Type::kU8: case Type::kS8: case Type::kPred: return 1;
    case Type::kB16: case Type::kU16: case Type::kS16: case Type::kF16: case Type::kE4m3x2: case Type::kE5m2x2: return 2;
    case Type::kB64: case Type::kU64: case Type::kS64: case Type::kF64: return 8;
    default: return 4;
  }
}

int Instruction::bytes() const { return size_of(type); }

bool is_signed(Type t) { return t == Type::kS8 || t == Type::kS16 || t == Type::kS32 || t == Type::kS64; }

bool parse_type(const std::string& name, Type* type) {
  for (size_t i = 1; i < sizeof kTypes / sizeof kTypes[0]; ++i) {
    if (name != kTypes[i]) continue;
    *type = static_cast<Type>(i);
    return true;
  }
  return false;
}

bool decode_form(const std::string& opcode, Instruction* out) {
  const auto form = known().find(opcode);
  if (form != known().end()) {
    out->run = form->second.run;
    out->kind = form->second.kind;
    out->type = form->second.type;
    if (out->kind == Kind::kFence) {
      out->order = Order::kAcqRel;
      out->scope = opcode.back() == 's' ? Scope::kSys : opcode.back() == 'u' ? Scope::kGpu : Scope::kCta;
    }
    return true;
  }
  Modifiers m(opcode);
  if (m.take("ld")) return plain_access(m, out, true);
  if (m.take("st")) return plain_access(m, out, false);
  if (m.take("atom")) return atomic(m, out, true);
  if (m.take("red")) return atomic(m, out, false);
  if (m.take("multimem")) return multimem(m, out);
  return false;
}

}  // namespace ptx
