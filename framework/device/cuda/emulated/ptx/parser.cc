// Instructions and their operands.
#include "parser.h"

namespace ptx {

void Parser::instruction() {
  Instruction i;
  if (in_.accept("@")) {
    i.negated = in_.accept("!");
    i.guard = operand(&i);
  }
  const Token t = in_.next();
  i.line = t.line;
  i.text = t.text;
  if (!decode_form(t.text, &i)) in_.fail(t, "unknown instruction '" + t.text + "'");
  switch (i.kind) {
    case Kind::kBranch:
      jumps_.push_back({f_->code.size(), in_.next()});
      break;
    case Kind::kCall: call(&i); break;
    case Kind::kLoad: case Kind::kStore: case Kind::kAtomic: case Kind::kReduction:
    case Kind::kMultiLoad: case Kind::kMultiStore: case Kind::kMultiReduction:
      memory(t, &i);
      break;
    case Kind::kBarrier:
      if (in_.constant() != 0) in_.fail(t, "a barrier other than 0");
      break;
    case Kind::kBarrierAnd:
      i.d = operand(&i);
      in_.expect(",");
      if (in_.constant() != 0) in_.fail(t, "a barrier other than 0");
      in_.expect(",");
      i.a = operand(&i);
      break;
    case Kind::kVote:
      i.d = operand(&i);
      in_.expect(",");
      i.a = operand(&i);
      in_.expect(",");
      if (in_.integer() != -1) in_.fail(t, "a vote of less than a warp");
      break;
    case Kind::kShuffle:
      i.d = operand(&i);
      in_.expect(",");
      i.a = operand(&i);
      in_.expect(",");
      i.b = operand(&i);
      in_.expect(",");
      if (in_.integer() != 31) in_.fail(t, "a shuffle within parts of a warp");
      in_.expect(",");
      if (in_.integer() != -1) in_.fail(t, "a shuffle of less than a warp");
      break;
    case Kind::kMbarrierInit: case Kind::kMbarrierExpect: case Kind::kMbarrierTest: case Kind::kStoreAsync: mbarrier(&i); break;
    case Kind::kForeign: foreign(); break;
    case Kind::kPlain: plain(&i); break;
    default: break;  // without operands
  }
  in_.expect(";");
  f_->code.push_back(std::move(i));
}

void Parser::memory(const Token& t, Instruction* i) {
  const bool loads = i->kind == Kind::kLoad || i->kind == Kind::kMultiLoad;
  int n = i->vector;
  if (loads) {
    n = elements(i);
    in_.expect(",");
  } else if (i->kind == Kind::kAtomic) {
    i->d = operand(i);
    in_.expect(",");
  }
  const bool parameter = address(i);
  if (parameter && i->space != Space::kParam) in_.fail(t, "a parameter outside of its space");
  if (!loads) {
    in_.expect(",");
    if (i->kind == Kind::kStore || i->kind == Kind::kMultiStore) {
      n = elements(i);
    } else {
      i->b = operand(i);
      if (i->kind == Kind::kAtomic && in_.accept(",")) i->c = operand(i);
    }
  }
  if (n != i->vector) in_.fail(t, std::to_string(n) + " elements, expected " + std::to_string(i->vector));
  if (parameter) {  // of a call: a register here
    if (n != 1) in_.fail(t, "a vector as a parameter");
    Instruction copy;
    decode_form("mov.b64", &copy);
    i->run = copy.run;
    i->kind = Kind::kPlain;
    i->d = loads ? i->v[0] : i->a;
    if (!loads) i->a = i->v[0];
  } else if (i->space == Space::kParam && i->kind == Kind::kStore) {
    in_.fail(t, "a store to a parameter of the kernel");
  }
}

// Operands of barriers in shared memory, and of stores that such a barrier counts.
void Parser::mbarrier(Instruction* i) {
  if (i->kind == Kind::kMbarrierTest) {
    i->d = operand(i);
    in_.expect(",");
  } else if (i->kind == Kind::kMbarrierExpect) {
    in_.expect("_");
    in_.expect(",");
  }
  address(i);
  in_.expect(",");
  i->b = operand(i);
  if (i->kind == Kind::kStoreAsync) {
    in_.expect(",");
    const Operand to = i->a;
    address(i);
    i->c = i->a;
    i->a = to;
  }
  if (i->offset != 0 || i->base != Base::kRegister) in_.fail(in_.peek(), "an address other than a register");
}

void Parser::call(Instruction* i) {
  if (in_.accept("(")) {
    const Token r = in_.next();
    if (params_.count(r.text) == 0) in_.fail(r, "unknown parameter '" + r.text + "'");
    i->d = {params_[r.text].at};
    in_.expect(")");
    in_.expect(",");
  }
  const Token name = in_.next();
  const auto f = out_->functions.find(name.text);
  if (f == out_->functions.end()) in_.fail(name, "unknown function '" + name.text + "'");
  i->callee = f->second.get();
  if (!in_.accept(",")) return;
  in_.expect("(");
  while (!in_.accept(")")) {
    const Token p = in_.next();
    if (params_.count(p.text) == 0) in_.fail(p, "unknown parameter '" + p.text + "'");
    i->passed.push_back({params_[p.text].at});
    in_.accept(",");
  }
}

void Parser::plain(Instruction* i) {
  int width = 0;
  if (in_.peek().is("{") || (i->text.compare(0, 4, "mov.") == 0 && in_.peek(2).is("{"))) {
    const bool split = in_.peek().is("{");
    if (!split) i->d = operand(i, &width), in_.expect(",");
    i->vector = static_cast<uint8_t>(elements(i));
    if (split) in_.expect(","), i->a = operand(i, &width);
    Instruction form;
    if (!decode_form(split ? "mov.split" : "mov.join", &form)) in_.fail(in_.peek(), "a vector");
    if (i->vector != 2) in_.fail(in_.peek(), "a vector of other than two elements");
    i->run = form.run;
    return;
  }
  i->d = operand(i, &width);
  i->width = static_cast<uint8_t>(width);
  if (i->from == Type::kNone && i->text.compare(0, 4, "mov.") == 0 && in_.peek(1).text.size() > 1) {
    const std::string& special = in_.peek(1).text;
    if (special == "%tid.x" || special == "%ntid.x" || special == "%ctaid.x" || special == "%nctaid.x" || special == "%cluster_ctarank" || special == "%cluster_nctarank" || special == "%globaltimer") {
      in_.expect(",");
      Instruction form;
      if (!decode_form(special, &form)) in_.fail(in_.peek(), "unknown register " + special);
      i->run = form.run;
      f_->asks_blocks = f_->asks_blocks || special == "%nctaid.x";
      f_->asks_threads = f_->asks_threads || special == "%ntid.x";
      in_.next();
      return;
    }
  }
  Operand* rest[] = {&i->a, &i->b, &i->c, &i->v[3]};
  for (Operand* o : rest) {
    if (!in_.accept(",")) break;
    *o = operand(i);
  }
  if (i->base != Base::kRegister) {
    Instruction form;
    decode_form("mov.address", &form);
    i->run = form.run;
  }
}

// It may have any operands, but their registers have to be known.
void Parser::foreign() {
  while (!in_.peek().is(";")) {
    const Token t = in_.next();
    if (t.text[0] == '%' && registers_.count(t.text) == 0) in_.fail(t, "unknown operand '" + t.text + "'");
  }
}

std::unique_ptr<Program> parse(const std::string& name, const std::string& text) { return Parser(name, text).module(); }

const Function* Program::entry(const std::string& name) const {
  const auto f = functions.find(name);
  return f == functions.end() || !f->second->entry ? nullptr : f->second.get();
}

}  // namespace ptx
