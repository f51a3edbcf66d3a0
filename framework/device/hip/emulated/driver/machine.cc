#include "machine.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <thread>

#include "executor.h"
#include "fault.h"
#include "state.h"

Backing* memory_of(AllocationHandle handle);  // vmm.cc

namespace {

// As package internal/gfx/gpus has them.
struct Header {
  uint32_t kind;
  int32_t device, own, result;
  uint64_t id, address, bytes, offset, value[2];
  uint32_t grid, block;
};
static_assert(sizeof(Header) == 72, "a header of the wire");
enum Kind : uint32_t { kHello = 1, kCode, kDevice, kHost, kForget, kLaunch, kValue, kAlive, kResult = 101, kAccess };
enum Operation { kLoad, kStore, kAdd, kSwap };

struct Word {
  uint64_t address, bytes;
  int operation;
  uint64_t value[2];
};

template <class T>
uint64_t perform(const Word& w) {
  T* at = reinterpret_cast<T*>(w.address);
  T value = static_cast<T>(w.value[0]), expected = static_cast<T>(w.value[1]);
  switch (w.operation) {
    case kLoad: return __atomic_load_n(at, __ATOMIC_SEQ_CST);
    case kStore: __atomic_store_n(at, value, __ATOMIC_SEQ_CST); return 0;
    case kAdd: return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
  }
  __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}

using std::chrono::milliseconds;

constexpr int kQuestions = 8;  // in the time that the machine may be silent

// How long the machine may be silent. It waits itself for a process that it holds for stopped, a minute for each.
milliseconds patience() {
  const char* text = getenv("HIP_EMULATED_PATIENCE");
  const int n = text != nullptr ? atoi(text) : 0;
  return milliseconds(n > 0 ? n : 180'000);
}

// A call with a limit of time is not begun again by the system when a signal comes.
template <class F>
ssize_t retried(F call) {
  for (;;) {
    const ssize_t n = call();
    if (n >= 0 || errno != EINTR) return n;
  }
}

class Machine final : public Executor {
 public:
  // Null: it cannot be reached.
  static Machine* connect(const char* path) {
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    if (strlen(path) >= sizeof to.sun_path) return nullptr;
    strcpy(to.sun_path, path);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    const auto most = patience();
    const timeval limit = {most.count() / 1000, most.count() % 1000 * 1000};  // also of connect
    const auto connected = [&] { return retried([&] { return ::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to); }) == 0; };
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0 || !connected()) {
      if (fd >= 0) close(fd);
      return nullptr;
    }
    ucred peer{};
    socklen_t bytes = sizeof peer;
    (void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes);
    auto* m = new Machine(fd, "the machine of interpreted GPUs (pid " + std::to_string(peer.pid) + ", " + path + ")", most);
    sigset_t all, before;
    sigfillset(&all);
    for (int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread([m] { m->receive(); }).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return m;
  }

  bool send(Header h, const std::string& rest = "", int fd = -1) {
    iovec parts[2] = {{&h, sizeof h}, {const_cast<char*>(rest.data()), rest.size()}};
    msghdr m{};
    m.msg_iov = parts;
    m.msg_iovlen = 2;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (fd >= 0) {
      m.msg_control = control;
      m.msg_controllen = sizeof control;
      cmsghdr* c = CMSG_FIRSTHDR(&m);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(sizeof(int));
      memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    if (retried([&] { return sendmsg(fd_, &m, MSG_NOSIGNAL); }) >= 0) return true;
    if (errno == EAGAIN) end("has read nothing");
    return false;
  }

  uint64_t load(const std::string& code, std::string* why) override {
    const int fd = memfd_create("code-object", MFD_CLOEXEC);
    if (fd < 0 || write(fd, code.data(), code.size()) != static_cast<ssize_t>(code.size())) {
      if (fd >= 0) close(fd);
      *why = "no memory for the code object";
      return 0;
    }
    Header h{};
    h.kind = kCode;
    const uint64_t id = ask(h, "", fd, why);
    close(fd);
    if (id == 0) fprintf(stderr, "emulated runtime: code object: %s\n", why->c_str());  // HIP returns a number alone
    return id;
  }

  void run(Context* context, uint64_t code, const std::string& kernel, const std::vector<char>& arguments, uint32_t grid, uint32_t block) override {
    if (context->fault != 0) return;
    Header h{};
    h.kind = kLaunch;
    {
      const auto allocations = machine_allocations();
      Lock lock(state().mutex);
      announce();
      h.device = state().devices[static_cast<size_t>(context->device)]->physical;
    }
    h.own = context->device;
    h.value[0] = code;
    h.grid = grid, h.block = block;
    std::string why;
    if (ask(h, kernel + '\0' + std::string(arguments.data(), arguments.size()), -1, &why) != 0) return;
    fprintf(stderr, "emulated runtime: device %d is lost: %s\n", context->device, why.c_str());
    int none = 0;
    context->fault.compare_exchange_strong(none, kLaunchFailed);
  }

  // Tells what memory the process has, and has no more. The state is locked.
  void announce() {
    std::map<uint64_t, uint64_t> now;  // by id, the address
    for (auto& [base, r] : state().ranges) now[r.id] = base;
    std::lock_guard<std::mutex> lock(known_mutex_);
    for (auto it = known_.begin(); it != known_.end();) {
      if (now.count(it->first) == 1) {
        ++it;
        continue;
      }
      Header h{};
      h.kind = kForget;
      h.address = it->second;
      send(h);
      it = known_.erase(it);
    }
    for (auto& [base, r] : state().ranges) {
      if (!known_.emplace(r.id, base).second) continue;
      Header h{};
      h.kind = r.host() ? kHost : kDevice;
      h.own = r.device;
      h.address = base, h.bytes = r.bytes, h.offset = r.offset;
      h.device = -1;
      if (!r.host() && r.backing->device >= 0) h.device = state().devices[static_cast<size_t>(r.backing->device)]->physical;
      if (!r.host()) h.value[0] = r.backing->uncached;
      send(h, "", r.host() ? -1 : r.backing->fd);
    }
  }

 private:
  struct Pending {
    bool answered = false;
    int result = 0;
    std::string text;
  };

  Machine(int fd, std::string name, milliseconds patience) : fd_(fd), name_(std::move(name)), patience_(patience) {}

  // The machine is silent, or gone: no question has an answer any more.
  void end(const std::string& silent) {
    std::lock_guard<std::mutex> lock(mutex_);
    end_locked(silent);
  }
  void end_locked(const std::string& silent) {
    if (ended_.empty()) ended_ = name_ + (silent.empty() ? " has ended" : " " + silent + " for " + std::to_string(patience_.count()) + " ms");
    answers_.notify_all();
  }

  // Waits for the answer as long as the machine shows that it is alive. Kernels take any time, so the machine is asked meanwhile. Questions without
  // an answer are counted: of time, this process may have got no processor.
  void await(std::unique_lock<std::mutex>& lock, const Pending& p) {
    uint64_t heard = heard_;
    int unanswered = 0;
    const auto done = [&] { return p.answered || !ended_.empty(); };
    while (!answers_.wait_for(lock, patience_ / kQuestions, done)) {
      if (heard != heard_ || unread()) heard = heard_, unanswered = 0;
      if (unanswered++ == kQuestions) return end_locked("has not answered");
      lock.unlock();
      Header h{};
      h.kind = kAlive;
      send(h);
      lock.lock();
    }
  }

  // Whether messages of the machine lie in the socket.
  bool unread() const {
    pollfd p = {fd_, POLLIN, 0};
    return poll(&p, 1, 0) > 0;
  }

  // Sends what has an answer, and waits for that. 0: why says why not; else the number of the question.
  uint64_t ask(Header h, const std::string& rest, int fd, std::string* why) {
    Pending p;
    std::unique_lock<std::mutex> lock(mutex_);
    const uint64_t id = ++last_;
    pending_[id] = &p;
    lock.unlock();
    h.id = id;
    const bool sent = send(h, rest, fd);
    lock.lock();
    if (sent) await(lock, p);
    pending_.erase(id);
    if (!p.answered) {
      *why = ended_.empty() ? name_ + " does not take the message" : ended_;
      return 0;
    }
    *why = p.text;
    return p.result == 0 ? id : 0;
  }

  void receive() {
    std::vector<char> buffer(64 << 10);
    for (;;) {
      const ssize_t n = recv(fd_, buffer.data(), buffer.size(), 0);
      if (n < static_cast<ssize_t>(sizeof(Header))) break;
      Header h;
      memcpy(&h, buffer.data(), sizeof h);
      if (h.kind == kAccess) {
        access(h);
        std::lock_guard<std::mutex> lock(mutex_);
        ++heard_;
        continue;
      }
      std::lock_guard<std::mutex> lock(mutex_);
      ++heard_;
      auto it = pending_.find(h.id);  // none of kAlive
      if (it == pending_.end()) continue;
      it->second->answered = true;
      it->second->result = h.result;
      it->second->text.assign(buffer.data() + sizeof h, static_cast<size_t>(n) - sizeof h);
      answers_.notify_all();
    }
    end("");
  }

  // A kernel accesses memory of this process. That it is gone loses the device.
  void access(Header h) {
    const Word w = {h.address, h.bytes, h.result, {h.value[0], h.value[1]}};
    uint64_t old = 0;
    Context* context = &state().devices[static_cast<size_t>(h.own)]->context;
    guarded(context, "a kernel", [&] {
      switch (w.bytes) {
        case 1: old = perform<uint8_t>(w); break;
        case 2: old = perform<uint16_t>(w); break;
        case 4: old = perform<uint32_t>(w); break;
        default: old = perform<uint64_t>(w);
      }
    });
    Header answer{};
    answer.kind = kValue;
    answer.result = context->fault;
    answer.value[0] = old;
    send(answer);
  }

  const int fd_;
  const std::string name_;
  const milliseconds patience_;
  std::mutex mutex_, known_mutex_;
  std::condition_variable answers_;
  std::map<uint64_t, Pending*> pending_;
  std::map<uint64_t, uint64_t> known_;
  uint64_t last_ = 0;
  uint64_t heard_ = 0;  // messages of the machine
  std::string ended_;  // why, if it has
};

Machine* machine() { return static_cast<Machine*>(g_executor); }

}  // namespace

int machine_connect(const char* arch) {
  const char* path = getenv("HIP_EMULATED_MACHINE");
  if (path == nullptr || *path == 0) return kSuccess;
  Machine* m = Machine::connect(path);
  Header h{};
  h.kind = kHello;
  if (m == nullptr || !m->send(h, arch)) {
    fprintf(stderr, "emulated runtime: no machine of interpreted GPUs at %s\n", path);
    return kNoDevice;
  }
  g_executor = m;
  return kSuccess;
}

std::unique_lock<std::mutex> machine_allocations() {
  static auto* mutex = new std::mutex;  // threads may outlive objects
  return std::unique_lock<std::mutex>(*mutex);
}

void machine_allocated(DevicePtr address, bool uncached) {
  if (machine() == nullptr) return;
  Lock lock(state().mutex);
  if (const Range* r = range_of(address)) r->backing->uncached = uncached;
  machine()->announce();
}

void machine_created(AllocationHandle handle, bool uncached) {
  Lock lock(state().mutex);
  if (Backing* b = memory_of(handle)) b->uncached = uncached;
}

void machine_mapped() {
  if (machine() == nullptr) return;
  const auto allocations = machine_allocations();
  Lock lock(state().mutex);
  machine()->announce();
}
