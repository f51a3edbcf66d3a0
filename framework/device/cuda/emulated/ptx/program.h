// A PTX image, decoded for the interpreter. The decoder is strict: an opcode, a modifier or an operand that
// it does not know is an error with the name of the image and the line, never a guess.
#ifndef EMULATED_PTX_PROGRAM_H_
#define EMULATED_PTX_PROGRAM_H_

#include <stdint.h>

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace ptx {

enum class Type : uint8_t {
  kNone, kB8, kU8, kS8, kB16, kU16, kS16, kF16, kB32, kU32, kS32, kF32, kF16x2, kBf16x2, kB64, kU64, kS64, kF64, kPred, kE4m3x2, kE5m2x2
};
enum class Space : uint8_t { kGeneric, kGlobal, kShared, kParam };
enum class Order : uint8_t { kWeak, kRelaxed, kAcquire, kRelease, kAcqRel };
enum class Scope : uint8_t { kCta, kGpu, kSys };

// The kinds of instructions that the scheduler, the memory model and mutations tell apart.
enum class Kind : uint8_t {
  kPlain,       // computes
  kBranch, kCall, kReturn, kExit,
  kLoad, kStore, kAtomic, kReduction,
  kMultiLoad, kMultiStore, kMultiReduction,
  kBarrier, kBarrierAnd, kVote, kShuffle,
  kFence, kAliasFence,
  kGridWait, kGridRelease,
  kClusterArrive, kClusterWait,
  kMbarrierInit, kMbarrierExpect, kMbarrierTest, kStoreAsync,
  kForeign,     // decoded, but not interpreted: matrix instructions and asynchronous copies
};

// An operand: a register of the frame, or a constant of the program.
struct Operand {
  int32_t at = kAbsent;  // register, or ~index into Program::constants
  static constexpr int32_t kAbsent = 0x7fffffff;
  bool present() const { return at != kAbsent; }
};

// Where an address begins.
enum class Base : uint8_t { kRegister, kConstant, kShared, kEntry };

struct Warp;
struct Instruction;
struct Function;
using Handler = void (*)(Warp&, const Instruction&, uint32_t lanes);

struct Instruction {
  Handler run = nullptr;
  Kind kind = Kind::kPlain;
  Type type = Type::kNone, from = Type::kNone;
  Space space = Space::kGeneric;
  Order order = Order::kWeak;
  Scope scope = Scope::kCta;
  Base base = Base::kRegister;
  uint8_t vector = 1;
  uint8_t width = 0;       // bits of the register that the result goes to
  bool is_volatile = false, negated = false, every_copy = false;
  bool passes = false;     // a mutation: the load returns what every wait waits for
  bool skipped = false;    // a mutation: the instruction does nothing
  Operand guard;           // predicate of the instruction
  Operand d, a, b, c;
  Operand v[4];            // elements of a vector; operands 1 to 4 of bfi
  int64_t offset = 0;
  int32_t target = -1;     // of a branch
  int32_t meeting = -1;    // where its threads meet again; -1: where the function returns to
  const Function* callee = nullptr;
  std::vector<Operand> passed;   // of a call
  int line = 0;
  std::string text;        // opcode with all modifiers
  mutable uint64_t hits = 0;     // how often a warp has executed it

  int bytes() const;       // of one element
};

struct Function {
  std::string name;
  bool entry = false;
  int registers = 0;
  int parameter_bytes = 0;       // of an entry
  int max_threads = 1024;
  bool asks_blocks = false;      // reads %nctaid.x
  bool asks_threads = false;     // reads %ntid.x
  std::vector<int32_t> formals;  // registers that stand for parameters of a function
  int32_t result = -1;           // register that stands for what it returns
  std::vector<Instruction> code;
};

struct Program {
  std::string name;              // of the image, for errors
  int version = 0;               // 82 for PTX 8.2
  std::string target;            // sm_90
  std::map<std::string, std::unique_ptr<Function>> functions;
  std::vector<uint64_t> constants;
  std::map<std::string, uint64_t> shared;         // offsets
  std::map<std::string, std::unique_ptr<char[]>> globals;
  uint64_t shared_bytes = 0;
  size_t instructions = 0;
  bool multicast = false;        // one of them goes through a window

  const Function* entry(const std::string& name) const;
};

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Decodes a text. Throws Error.
std::unique_ptr<Program> parse(const std::string& name, const std::string& text);

// Sets where the threads of each branch of a function meet again.
void find_meetings(Function* f);

int size_of(Type t);
bool is_signed(Type t);
bool parse_type(const std::string& name, Type* type);

// The handler of an opcode with its modifiers, and what else they say; false: unknown. forms.cc has the list.
bool decode_form(const std::string& opcode, Instruction* out);

}  // namespace ptx

#endif  // EMULATED_PTX_PROGRAM_H_
