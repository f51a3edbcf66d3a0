// Where threads that a branch sends apart meet again: at the nearest instruction that all ways out of the branch come
// by. Assemblers put a barrier of those threads there; an interpreter without it would tear what a warp does at once.
#include <algorithm>

#include "program.h"

namespace ptx {
namespace {

// Post-dominators of the blocks of a function, by the algorithm of Cooper, Harvey and Kennedy on the reversed graph.
class Blocks {
 public:
  explicit Blocks(const std::vector<Instruction>& code) : code_(code), block_(code.size()) {
    cut();
    link();
    order(exit_, std::vector<bool>(next_.size()));
    solve();
  }

  // The first instruction of the block where the ways from an instruction meet; -1: at the end of the function.
  int meeting(size_t at) const {
    const int to = idom_[block_[at]];
    return to < 0 || to == exit_ ? -1 : static_cast<int>(begin_[static_cast<size_t>(to)]);
  }

 private:
  void cut() {
    std::vector<bool> begins(code_.size() + 1);
    begins[0] = true;
    for (size_t k = 0; k < code_.size(); ++k) {
      if (code_[k].kind == Kind::kBranch) begins[static_cast<size_t>(code_[k].target)] = begins[k + 1] = true;
      if (code_[k].kind == Kind::kReturn || code_[k].kind == Kind::kExit) begins[k + 1] = true;
    }
    for (size_t k = 0; k < code_.size(); ++k) {
      if (begins[k]) begin_.push_back(k);
      block_[k] = begin_.size() - 1;
    }
    exit_ = static_cast<int>(begin_.size());
  }

  void link() {
    next_.resize(begin_.size() + 1);
    before_.resize(begin_.size() + 1);
    const auto edge = [this](size_t from, size_t to) {
      next_[from].push_back(static_cast<int>(to));
      before_[to].push_back(static_cast<int>(from));
    };
    for (size_t b = 0; b < begin_.size(); ++b) {
      const size_t last = (b + 1 < begin_.size() ? begin_[b + 1] : code_.size()) - 1;
      const Instruction& i = code_[last];
      const bool leaves = i.kind == Kind::kReturn || i.kind == Kind::kExit;
      if (i.kind == Kind::kBranch) edge(b, block_[static_cast<size_t>(i.target)]);
      if (leaves) edge(b, static_cast<size_t>(exit_));
      if (i.guard.present() || (i.kind != Kind::kBranch && !leaves)) edge(b, b + 1 < begin_.size() ? b + 1 : static_cast<size_t>(exit_));
    }
  }

  // Post-order from the exit, against the edges.
  void order(int from, std::vector<bool> seen) {
    number_.assign(next_.size(), -1);
    std::vector<std::pair<int, size_t>> stack{{from, 0}};
    seen[static_cast<size_t>(from)] = true;
    while (!stack.empty()) {
      auto& [b, k] = stack.back();
      const auto& all = before_[static_cast<size_t>(b)];
      if (k < all.size()) {
        const int to = all[k++];
        if (!seen[static_cast<size_t>(to)]) {
          seen[static_cast<size_t>(to)] = true;
          stack.push_back({to, 0});
        }
        continue;
      }
      number_[static_cast<size_t>(b)] = static_cast<int>(order_.size());
      order_.push_back(b);
      stack.pop_back();
    }
  }

  void solve() {
    idom_.assign(next_.size(), -1);
    idom_[static_cast<size_t>(exit_)] = exit_;
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t k = order_.size() - 1; k-- > 0;) {
        const auto b = static_cast<size_t>(order_[k]);
        int meet = -1;
        for (int to : next_[b]) {
          if (idom_[static_cast<size_t>(to)] >= 0) meet = meet < 0 ? to : common(meet, to);
        }
        if (meet != idom_[b]) {
          idom_[b] = meet;
          changed = true;
        }
      }
    }
  }

  int common(int a, int b) const {
    while (a != b) {
      while (number_[static_cast<size_t>(a)] < number_[static_cast<size_t>(b)]) a = idom_[static_cast<size_t>(a)];
      while (number_[static_cast<size_t>(b)] < number_[static_cast<size_t>(a)]) b = idom_[static_cast<size_t>(b)];
    }
    return a;
  }

  const std::vector<Instruction>& code_;
  std::vector<size_t> block_, begin_;
  std::vector<std::vector<int>> next_, before_;
  std::vector<int> order_, number_, idom_;
  int exit_ = 0;
};

}  // namespace

void find_meetings(Function* f) {
  if (std::none_of(f->code.begin(), f->code.end(), [](const Instruction& i) { return i.kind == Kind::kBranch && i.guard.present(); })) return;
  const Blocks blocks(f->code);
  for (size_t k = 0; k < f->code.size(); ++k) {
    if (f->code[k].guard.present()) f->code[k].meeting = blocks.meeting(k);
  }
}

}  // namespace ptx
