#include "fault.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

namespace {

thread_local sigjmp_buf* t_escape;
thread_local void* t_address;

struct sigaction g_before[2];  // of SIGSEGV and SIGBUS, most likely the program's

void on_fault(int signal, siginfo_t* info, void* machine) {
  if (t_escape != nullptr) {
    t_address = info->si_addr;
    siglongjmp(*t_escape, 1);
  }
  const struct sigaction& before = g_before[signal == SIGBUS];
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, info, machine);
    return;
  }
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
    return;
  }
  sigaction(signal, &before, nullptr);  // the instruction runs again, and ends the process
}

void install() {
  struct sigaction a;
  memset(&a, 0, sizeof a);
  a.sa_sigaction = on_fault;
  a.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigfillset(&a.sa_mask);
  sigaction(SIGSEGV, &a, &g_before[0]);
  sigaction(SIGBUS, &a, &g_before[1]);
}

}  // namespace

void guarded(Context* context, const char* what, void (*work)(void*), void* data) {
  static std::once_flag once;
  std::call_once(once, install);
  if (context->fault != 0) return;
  sigjmp_buf escape;
  if (sigsetjmp(escape, 1) == 0) {
    t_escape = &escape;
    work(data);
    t_escape = nullptr;
    return;
  }
  t_escape = nullptr;
  fprintf(stderr, "emulated driver: device %d is lost: %s touches %p, which %s\n", context->device, what, t_address,
          in_arena(reinterpret_cast<uint64_t>(t_address)) ? "was freed, unmapped, or never made accessible" : "is no device memory");
  context->fault = kIllegalAddress;
}
