#include "lexer.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

namespace ptx {
namespace {

bool in_word(char c) { return isalnum(static_cast<unsigned char>(c)) || strchr("_$%.", c) != nullptr; }

std::string place(const std::string& name, int line) { return name + ":" + std::to_string(line) + ": "; }

}  // namespace

std::vector<Token> tokens_of(const std::string& name, const std::string& text) {
  std::vector<Token> out;
  int line = 1;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '\n') {
      ++line, ++i;
    } else if (isspace(static_cast<unsigned char>(c))) {
      ++i;
    } else if (text.compare(i, 2, "//") == 0) {
      while (i < text.size() && text[i] != '\n') ++i;
    } else if (c == '"') {
      const size_t end = text.find('"', i + 1);
      if (end == std::string::npos) throw Error(place(name, line) + "a string without end");
      out.push_back({text.substr(i, end + 1 - i), line});
      i = end + 1;
    } else if (c != 0 && in_word(c)) {
      size_t end = i;
      while (end < text.size() && text[end] != 0 && (in_word(text[end]) || text.compare(end, 2, "::") == 0)) end += text[end] == ':' ? 2 : 1;
      out.push_back({text.substr(i, end - i), line});
      i = end;
    } else if (c != 0 && strchr("{}[]()<>,;:+-=@!|", c) != nullptr) {
      out.push_back({std::string(1, c), line});
      ++i;
    } else if (c == 0) {
      break;
    } else {
      throw Error(place(name, line) + "unknown character '" + std::string(1, c) + "'");
    }
  }
  out.push_back({"", line});
  return out;
}

Reader::Reader(std::string name, std::vector<Token> tokens) : name_(std::move(name)), tokens_(std::move(tokens)) {}

Token Reader::next() {
  const Token t = peek();
  if (at_ + 1 < tokens_.size()) ++at_;
  return t;
}

bool Reader::accept(const char* what) {
  if (!peek().is(what)) return false;
  next();
  return true;
}

Token Reader::expect(const char* what) {
  const Token t = next();
  if (!t.is(what)) fail(t, "'" + t.text + "', expected '" + what + "'");
  return t;
}

void Reader::fail(const Token& at, const std::string& why) const { throw Error(place(name_, at.line) + why); }

int64_t Reader::integer() {
  const bool negative = accept("-");
  const uint64_t n = constant();
  return static_cast<int64_t>(negative ? 0 - n : n);
}

uint64_t Reader::constant() {
  const Token t = next();
  const bool bits = t.text.size() > 2 && t.text[0] == '0' && strchr("fFdD", t.text[1]) != nullptr;
  char* end = nullptr;
  const uint64_t n = bits ? strtoull(t.text.c_str() + 2, &end, 16) : strtoull(t.text.c_str(), &end, 0);
  if (t.text.empty() || !isdigit(static_cast<unsigned char>(t.text[0])) || *end != 0) fail(t, "'" + t.text + "', expected a number");
  return n;
}

}  // namespace ptx
