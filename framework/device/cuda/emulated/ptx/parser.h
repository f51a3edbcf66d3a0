// The structure of a module: directives, variables, functions, scopes. Instructions are in parser.cc.
#ifndef EMULATED_PTX_PARSER_H_
#define EMULATED_PTX_PARSER_H_

#include <ctype.h>
#include <stdlib.h>

#include <algorithm>

#include "lexer.h"

namespace ptx {

class Parser {
 public:
  Parser(const std::string& name, const std::string& text) : in_(name, tokens_of(name, text)), out_(new Program) { out_->name = name; }

  std::unique_ptr<Program> module() {
    while (!in_.done()) item();
    if (out_->version == 0) in_.fail(in_.peek(), "no .version");
    for (auto& [name, f] : out_->functions) {
      if (f->code.empty()) in_.fail(in_.peek(), name + " has no body");
      out_->instructions += f->code.size();
      for (const Instruction& i : f->code) {
        out_->multicast = out_->multicast || i.kind == Kind::kMultiLoad || i.kind == Kind::kMultiStore || i.kind == Kind::kMultiReduction;
      }
    }
    return std::move(out_);
  }

 private:
  struct Register { int32_t at; int width; };
  struct Parameter { uint64_t offset; };

  void item() {
    const Token t = in_.next();
    if (t.is(".version")) {
      const std::string v = in_.next().text;  // 8.2
      out_->version = atoi(v.c_str()) * 10 + atoi(v.c_str() + v.find('.') + 1);
    } else if (t.is(".target")) {
      out_->target = in_.next().text;
    } else if (t.is(".address_size")) {
      in_.expect("64");
    } else if (t.is(".visible") || t.is(".weak") || t.is(".extern")) {
      // linkage: nothing to be linked
    } else if (t.is(".shared") || t.is(".global")) {
      variable(t);
    } else if (t.is(".func") || t.is(".entry")) {
      function(t.is(".entry"));
    } else {
      in_.fail(t, "unknown directive '" + t.text + "'");
    }
  }

  // .align 8 .b8 name[576] = {…};
  void variable(const Token& space) {
    uint64_t align = 1, count = 1;
    if (in_.accept(".align")) align = in_.constant();
    const Token t = in_.next();
    Type type;
    if (t.text.empty() || !parse_type(t.text.substr(1), &type)) in_.fail(t, "unknown type '" + t.text + "'");
    const std::string name = in_.next().text;
    if (in_.accept("[")) count = in_.accept("]") ? 0 : (count = in_.constant(), in_.expect("]"), count);
    align = std::max<uint64_t>(align, size_of(type));
    if (space.is(".shared")) {
      out_->shared_bytes = (out_->shared_bytes + align - 1) / align * align;
      out_->shared[name] = out_->shared_bytes;
      out_->shared_bytes += count * size_of(type);
    } else {
      auto& memory = out_->globals[name];
      memory.reset(new char[count * size_of(type) + 64]());
      if (in_.accept("=")) initial(memory.get(), size_of(type));
    }
    in_.expect(";");
  }

  void initial(char* to, int size) {
    const bool list = in_.accept("{");
    do {
      const uint64_t v = static_cast<uint64_t>(in_.integer());
      std::copy_n(reinterpret_cast<const char*>(&v), size, to);
      to += size;
    } while (list && in_.accept(","));
    if (list) in_.expect("}");
  }

  // A list of parameters: of an entry offsets, of a function registers.
  void parameters(Function& f, bool results) {
    uint64_t offset = 0;
    while (!in_.accept(")")) {
      in_.expect(".param");
      uint64_t align = 1, count = 1;
      if (in_.accept(".align")) align = in_.constant();
      const Token t = in_.next();
      Type type;
      if (t.text.empty() || !parse_type(t.text.substr(1), &type)) in_.fail(t, "unknown type '" + t.text + "'");
      const Token name = in_.next();
      bool array = false;
      if (in_.accept("[")) array = true, count = in_.constant(), in_.expect("]");
      if (f.entry) {
        align = std::max<uint64_t>(align, size_of(type));
        offset = (offset + align - 1) / align * align;
        entry_[name.text] = {offset};
        offset += count * size_of(type);
        f.parameter_bytes = static_cast<int>(offset);
      } else {
        if (array) in_.fail(name, "a parameter of a function that is no scalar");
        const int32_t r = f.registers++;
        params_[name.text] = {r, size_of(type) * 8};
        if (results) f.result = r;
        else f.formals.push_back(r);
      }
      in_.accept(",");
    }
  }

  void function(bool entry) {
    outer_.clear(), registers_.clear(), params_.clear(), entry_.clear(), labels_.clear(), jumps_.clear();
    Function scratch;
    scratch.entry = entry;
    if (in_.accept("(")) parameters(scratch, true);
    const Token name = in_.next();
    scratch.name = name.text;
    if (in_.accept("(")) parameters(scratch, false);
    auto& slot = out_->functions[name.text];
    if (slot == nullptr) slot.reset(new Function);
    if (in_.accept(";")) return;  // a declaration
    if (!slot->code.empty()) in_.fail(name, name.text + " is there twice");
    while (!in_.peek().is("{")) {
      const Token t = in_.next();
      if (t.is(".maxntid") || t.is(".reqntid")) {
        scratch.max_threads = 1;
        do scratch.max_threads *= static_cast<int>(in_.constant());
        while (in_.accept(","));
      } else if (t.is(".minnctapersm")) {
        in_.constant();
      } else {
        in_.fail(t, "unknown directive '" + t.text + "'");
      }
    }
    *slot = std::move(scratch);
    f_ = slot.get();
    in_.expect("{");
    for (int depth = 1; depth > 0;) {
      if (in_.done()) in_.fail(in_.peek(), "the end within " + name.text);
      if (in_.accept("{")) {
        ++depth;
        outer_.emplace_back();
      } else if (in_.accept("}")) {
        if (--depth > 0) close_scope();
      } else {
        statement();
      }
    }
    for (const auto& [at, label] : jumps_) {
      const auto to = labels_.find(label.text);
      if (to == labels_.end()) in_.fail(label, "no label " + label.text);
      f_->code[at].target = to->second;
    }
    if (!f_->code.empty()) find_meetings(f_);
  }

  void statement() {
    if (in_.peek(1).is(":") && in_.peek().text[0] != '.') {
      const std::string label = in_.next().text;
      in_.next();
      labels_[label] = static_cast<int32_t>(f_->code.size());
      return;
    }
    if (in_.accept(".pragma")) {
      in_.next();
      in_.expect(";");
    } else if (in_.peek().is(".shared")) {
      variable(in_.next());  // which one function alone uses
    } else if (in_.accept(".reg")) {
      declare_registers();
    } else if (in_.accept(".param")) {
      declare_parameter();
    } else {
      instruction();
    }
  }

  Type type_token() {
    const Token t = in_.next();
    Type type;
    if (t.text.empty() || !parse_type(t.text.substr(1), &type)) in_.fail(t, "unknown type '" + t.text + "'");
    return type;
  }

  void declare_registers() {
    const Type type = type_token();
    const int width = type == Type::kPred ? 1 : size_of(type) * 8;
    do {
      const std::string name = in_.next().text;
      if (in_.accept("<")) {
        const uint64_t n = in_.constant();
        in_.expect(">");
        for (uint64_t i = 0; i < n; ++i) declare(name + std::to_string(i), width);
      } else {
        declare(name, width);
      }
    } while (in_.accept(","));
    in_.expect(";");
  }

  // A register of an inner scope hides one of the same name for as long as the scope lasts.
  void declare(const std::string& name, int width) {
    const auto before = registers_.find(name);
    if (!outer_.empty()) outer_.back().push_back({name, before == registers_.end() ? Register{-1, 0} : before->second});
    registers_[name] = {f_->registers++, width};
  }

  void close_scope() {
    for (const auto& [name, before] : outer_.back()) {
      if (before.at < 0) registers_.erase(name);
      else registers_[name] = before;
    }
    outer_.pop_back();
  }

  void declare_parameter() {
    const Type type = type_token();
    const Token name = in_.next();
    if (in_.peek().is("[")) in_.fail(name, "a parameter of a call that is no scalar");
    params_[name.text] = {f_->registers++, size_of(type) * 8};
    in_.expect(";");
  }

  Operand constant(uint64_t v) {
    const auto known = constants_.find(v);
    if (known != constants_.end()) return {known->second};
    out_->constants.push_back(v);
    const int32_t at = ~static_cast<int32_t>(out_->constants.size() - 1);
    constants_[v] = at;
    return {at};
  }

  // A register, a constant, or the address of something.
  Operand operand(Instruction* i, int* width = nullptr) {
    const Token t = in_.peek();
    if (t.is("-") || isdigit(static_cast<unsigned char>(t.text[0]))) return constant(static_cast<uint64_t>(in_.integer()));
    in_.next();
    if (const auto r = registers_.find(t.text); r != registers_.end()) {
      if (width != nullptr) *width = r->second.width;
      return {r->second.at};
    }
    if (const auto s = out_->shared.find(t.text); s != out_->shared.end()) {
      i->base = Base::kShared;
      i->offset = static_cast<int64_t>(s->second);
      return constant(0);
    }
    if (const auto e = entry_.find(t.text); e != entry_.end()) {
      i->base = Base::kEntry;
      i->offset = static_cast<int64_t>(e->second.offset);
      return constant(0);
    }
    if (const auto g = out_->globals.find(t.text); g != out_->globals.end()) return constant(reinterpret_cast<uint64_t>(g->second.get()));
    in_.fail(t, "unknown operand '" + t.text + "'");
  }

  // [register+offset], [variable+offset], or a parameter that is a register: true then.
  bool address(Instruction* i) {
    in_.expect("[");
    const auto p = params_.find(in_.peek().text);
    if (p != params_.end()) {
      const Token t = in_.next();
      if (in_.accept("+") && in_.integer() != 0) in_.fail(t, "within a parameter");
      in_.expect("]");
      i->a = {p->second.at};
      return true;
    }
    i->a = operand(i);
    if (in_.accept("+")) i->offset += in_.integer();
    in_.expect("]");
    return false;
  }

  // {a, b} or a.
  int elements(Instruction* i) {
    if (!in_.accept("{")) {
      int width = 0;
      i->v[0] = operand(i, &width);
      i->width = static_cast<uint8_t>(width);
      return 1;
    }
    int n = 0;
    do {
      if (n == 4) in_.fail(in_.peek(), "more than four elements");
      int width = 0;
      i->v[n++] = operand(i, &width);
      i->width = static_cast<uint8_t>(width);
    } while (in_.accept(","));
    in_.expect("}");
    return n;
  }

  void instruction();
  void memory(const Token& t, Instruction* i);
  void call(Instruction* i);
  void mbarrier(Instruction* i);
  void move(const Token& t, Instruction* i);
  void plain(Instruction* i);
  void foreign();

  Reader in_;
  std::unique_ptr<Program> out_;
  Function* f_ = nullptr;
  std::map<std::string, Register> registers_, params_;
  std::vector<std::vector<std::pair<std::string, Register>>> outer_;  // hidden by the scopes that are open
  std::map<std::string, Parameter> entry_;
  std::map<std::string, int32_t> labels_;
  std::vector<std::pair<size_t, Token>> jumps_;
  std::map<uint64_t, int32_t> constants_;
};

}  // namespace ptx

#endif  // EMULATED_PTX_PARSER_H_
