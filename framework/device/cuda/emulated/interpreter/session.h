// A session with the interpreter: memory at fixed addresses, images, launches, and runs of them on seeded schedules.
// The program reads commands from its input, one a line, some with bytes behind them, and answers each: "ok …", or
// "failed N" with N bytes of text behind it.
#ifndef EMULATED_INTERPRETER_SESSION_H_
#define EMULATED_INTERPRETER_SESSION_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "machine.h"
#include "race.h"

namespace interpreter {

class Space : public ptx::Memory {
 public:
  ~Space() override { clear(); }
  void map(int rank, const std::string& name, uint64_t at, uint64_t bytes);
  void window(const std::string& name, uint64_t at, uint64_t bytes, std::vector<char*> copies);
  const ptx::Region* find(uint64_t at) override;
  void save();
  void restore();
  void clear();

 private:
  std::map<uint64_t, ptx::Region> regions_;
  std::map<uint64_t, std::vector<char>> saved_;
};

// One weakening of one instruction.
struct Mutant {
  ptx::Instruction* at;
  std::string how, text;
  void (*apply)(ptx::Instruction*);
};
// All by rule, of instructions that were executed.
std::vector<Mutant> mutants_of(ptx::Program& program);

class Session {
 public:
  // Answers commands until the input ends.
  void serve();

 private:
  struct Check {
    uint64_t at;
    std::vector<char> bytes;
  };
  struct Queued {
    ptx::Launch launch;
    int stream;
  };
  struct Run {
    ptx::Counts counts;
    uint64_t races = 0;
    std::string failed;     // empty: it went well, and results are as expected
  };

  std::string answer(const std::string& line);
  std::string image(std::istream& words);
  std::string launch(std::istream& words);
  std::string run(std::istream& words);
  std::string cpu(std::istream& words);
  std::string mutants(std::istream& words);
  Run schedule(uint64_t seed, bool races, uint64_t most);
  std::vector<char> payload(size_t bytes);

  Space space_;
  std::map<std::string, std::unique_ptr<ptx::Program>> programs_;
  std::map<std::string, void*> libraries_;
  std::vector<Queued> queue_;
  std::vector<Check> checks_;
  ptx::Races detector_;
  std::vector<Mutant> mutants_;
  std::map<ptx::Instruction*, ptx::Instruction> mutated_;  // with what they were
};

}  // namespace interpreter

#endif  // EMULATED_INTERPRETER_SESSION_H_
