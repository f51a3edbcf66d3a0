// Words of PTX, with their lines.
#ifndef EMULATED_PTX_LEXER_H_
#define EMULATED_PTX_LEXER_H_

#include <string>
#include <vector>

#include "program.h"

namespace ptx {

struct Token {
  std::string text;  // a word, or one character
  int line;
  bool is(const char* what) const { return text == what; }
};

std::vector<Token> tokens_of(const std::string& name, const std::string& text);

// Reads tokens one after the other; at the end there is an empty one.
class Reader {
 public:
  Reader(std::string name, std::vector<Token> tokens);
  const Token& peek(size_t ahead = 0) const { return tokens_[at_ + ahead < tokens_.size() ? at_ + ahead : tokens_.size() - 1]; }
  Token next();
  bool accept(const char* what);
  Token expect(const char* what);
  bool done() const { return at_ + 1 >= tokens_.size(); }
  [[noreturn]] void fail(const Token& at, const std::string& why) const;
  int64_t integer();     // with sign
  uint64_t constant();   // also 0fXXXXXXXX and 0dXXXXXXXXXXXXXXXX

 private:
  std::string name_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace ptx

#endif  // EMULATED_PTX_LEXER_H_
