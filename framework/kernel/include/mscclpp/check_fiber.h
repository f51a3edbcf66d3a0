// Fibers of the checking emulator: stacks and the switch between them, known to
// ThreadSanitizer and AddressSanitizer.
#ifndef MSCCLPP_CHECK_FIBER_H_
#define MSCCLPP_CHECK_FIBER_H_

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <vector>

#include "check_hooks.h"

#if defined(__SANITIZE_THREAD__)
#define MSCCLPP_CHECK_TSAN 1
#elif defined(__SANITIZE_ADDRESS__)
#define MSCCLPP_CHECK_ASAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MSCCLPP_CHECK_TSAN 1
#elif __has_feature(address_sanitizer)
#define MSCCLPP_CHECK_ASAN 1
#endif
#endif
#if MSCCLPP_CHECK_TSAN
#include <sanitizer/tsan_interface.h>
#elif MSCCLPP_CHECK_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

// The emulator's own bookkeeping is shared by all fibers and must not look like a
// race of theirs.
#if defined(__clang__)
#define MSCCLPP_CHECK_QUIET __attribute__((noinline, disable_sanitizer_instrumentation))
#define MSCCLPP_CHECK_INLINE __attribute__((always_inline, disable_sanitizer_instrumentation)) inline
#else
#define MSCCLPP_CHECK_QUIET __attribute__((noinline, no_sanitize("thread"), no_sanitize("address")))
#define MSCCLPP_CHECK_INLINE __attribute__((always_inline, no_sanitize("thread"), no_sanitize("address"))) inline
#endif

extern "C" void mscclpp_check_switch(void** save, void* to);
extern "C" void mscclpp_check_start();

// Callee-saved registers go onto the old stack and come from the new one. A new
// stack holds the entry function in r13 and its argument in r12.
#if defined(__x86_64__)
asm(R"(
.pushsection .text
.weak mscclpp_check_switch
.type mscclpp_check_switch, @function
mscclpp_check_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.weak mscclpp_check_start
.type mscclpp_check_start, @function
mscclpp_check_start:
  movq %r12, %rdi
  callq *%r13
  ud2
.popsection
)");
#else
#error "the checking emulator has a switch for x86-64 only"
#endif

namespace mscclpp {
namespace check {

class Fiber {
 public:
  static constexpr size_t kStack = 256 << 10;

  MSCCLPP_CHECK_QUIET void start(void (*entry)(void*), void* argument) {
    if (stack_ == nullptr) stack_ = takeStack();
    void** top = reinterpret_cast<void**>(static_cast<char*>(stack_) + kStack);
    *--top = nullptr;  // keeps the stack aligned to 16 at the call
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(&mscclpp_check_start);
    *--top = nullptr;                            // rbp
    *--top = nullptr;                            // rbx
    *--top = argument;                           // r12
    *--top = reinterpret_cast<void*>(entry);     // r13
    *--top = nullptr;                            // r14
    *--top = nullptr;                            // r15
    sp_ = top;
#if MSCCLPP_CHECK_TSAN
    tsan_ = __tsan_create_fiber(0);
#endif
  }

  // From the scheduler into the fiber, and back. The switch into the fiber synchronizes
  // nothing for ThreadSanitizer: else it would see no race between fibers.
  MSCCLPP_CHECK_QUIET void resume() {
#if MSCCLPP_CHECK_TSAN
    if (scheduler_tsan == nullptr) scheduler_tsan = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(tsan_, __tsan_switch_to_fiber_no_sync);
#elif MSCCLPP_CHECK_ASAN
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, stack_, kStack);
#endif
    mscclpp_check_switch(&scheduler_sp, sp_);
#if MSCCLPP_CHECK_ASAN
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
  }
  MSCCLPP_CHECK_QUIET void suspend(bool forever = false) {
#if MSCCLPP_CHECK_TSAN
    __tsan_switch_to_fiber(scheduler_tsan, 0);
#elif MSCCLPP_CHECK_ASAN
    __sanitizer_start_switch_fiber(forever ? nullptr : &fake_, scheduler_stack, scheduler_size);
#endif
    (void)forever;
    mscclpp_check_switch(&sp_, scheduler_sp);
#if MSCCLPP_CHECK_ASAN
    arrived();
#endif
  }
  // First thing on a fiber's own stack.
  MSCCLPP_CHECK_QUIET void arrived() {
#if MSCCLPP_CHECK_ASAN
    __sanitizer_finish_switch_fiber(fake_, &scheduler_stack, &scheduler_size);
#endif
  }

  // Gives the stack back. The fiber has ended, or never runs again.
  MSCCLPP_CHECK_QUIET void release() {
#if MSCCLPP_CHECK_TSAN
    if (tsan_ != nullptr) __tsan_destroy_fiber(tsan_);
    tsan_ = nullptr;
#endif
    if (stack_ != nullptr) stacks().push_back(stack_);
    stack_ = nullptr;
  }

 private:
  static std::vector<void*>& stacks() {
    static std::vector<void*> idle;
    return idle;
  }
  static void* takeStack() {
    if (!stacks().empty()) {
      void* s = stacks().back();
      stacks().pop_back();
      return s;
    }
    char* p = static_cast<char*>(mmap(nullptr, kStack + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (p == MAP_FAILED || mprotect(p, 4096, PROT_NONE) != 0) {
      perror("check: stack of a thread");
      exit(2);
    }
    return p + 4096;
  }

  void* stack_ = nullptr;
  void* sp_ = nullptr;
#if MSCCLPP_CHECK_TSAN
  void* tsan_ = nullptr;
  static inline void* scheduler_tsan = nullptr;
#elif MSCCLPP_CHECK_ASAN
  void* fake_ = nullptr;
  static inline const void* scheduler_stack = nullptr;
  static inline size_t scheduler_size = 0;
#endif
  static inline void* scheduler_sp = nullptr;
};

}  // namespace check
}  // namespace mscclpp
#endif  // MSCCLPP_CHECK_FIBER_H_
