#include "injected.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "machine.h"

namespace {

// One entry of CUDA_EMULATED_FAULTS: "cuMulticastBindMem@1:802x2~300" has the second GPU's first two binds answer 802,
// after 300 ms each; "die" in place of the code ends the process. With "@1+1" its first bind is spared.
struct Fault {
  std::string call;
  int physical = -1;  // -1: any
  long spared = 0;    // so many calls before
  int code = 0;       // -1: die
  long times = -1;    // -1: always
  unsigned milliseconds = 0;
};

bool parse(const std::string& text, Fault* f) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return false;
  f->call = text.substr(0, colon);
  if (const size_t at = f->call.find('@'); at != std::string::npos) {
    char* end;
    f->physical = static_cast<int>(strtol(f->call.c_str() + at + 1, &end, 10));
    if (*end == '+') f->spared = strtol(end + 1, &end, 10);
    if (*end != 0) return false;
    f->call.resize(at);
  }
  const char* rest = text.c_str() + colon + 1;
  if (strncmp(rest, "die", 3) == 0) {
    f->code = -1;
    rest += 3;
  } else {
    char* end;
    f->code = static_cast<int>(strtol(rest, &end, 10));
    if (end == rest) return false;
    rest = end;
  }
  char* end = const_cast<char*>(rest);
  if (*end == 'x') f->times = strtol(end + 1, &end, 10);
  if (*end == '~') f->milliseconds = static_cast<unsigned>(strtoul(end + 1, &end, 10));
  return *end == 0;
}

std::vector<Fault> parse_all() {
  std::vector<Fault> all;
  for (const std::string& text : split(getenv("CUDA_EMULATED_FAULTS") ?: "")) {
    Fault f;
    if (parse(text, &f)) {
      all.push_back(f);
      continue;
    }
    fprintf(stderr, "emulated driver: CUDA_EMULATED_FAULTS: \"%s\": expected CALL[@GPU[+SPARED]]:CODE[xTIMES][~MILLISECONDS]\n", text.c_str());
    abort();
  }
  return all;
}

// A line of one write, so that those of several processes do not mix.
void note(const char* call, int physical) {
  const char* path = getenv("CUDA_EMULATED_MULTICAST_LOG");
  if (path == nullptr || *path == 0 || strncmp(call, "cuMulticast", 11) != 0) return;
  char line[128];
  const int n = snprintf(line, sizeof line, "%s %d\n", call, physical);
  const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0 || write(fd, line, static_cast<size_t>(n)) != n) abort();
  close(fd);
}

}  // namespace

int injected(Lock& lock, const char* call, int physical) {
  note(call, physical);
  static std::vector<Fault> faults = parse_all();
  for (Fault& f : faults) {
    if (f.times == 0 || f.call != call || (f.physical >= 0 && f.physical != physical) || f.spared-- > 0) continue;
    if (f.times > 0) --f.times;
    const Fault now = f;
    lock.unlock();
    if (now.milliseconds > 0) usleep(1000 * now.milliseconds);
    if (now.code < 0) kill(getpid(), SIGKILL);
    lock.lock();
    return now.code;
  }
  return kSuccess;
}

int injected(Lock& lock, const char* call) {
  Context* current = nullptr;
  const int device = current_context(&current) == kSuccess ? current->device : 0;
  return injected(lock, call, state().devices[static_cast<size_t>(device)]->physical);
}
