#include "queue.h"

#include <pthread.h>
#include <signal.h>

#include <thread>

namespace {

// Signals to the process go to threads of the program: a thread of this library
// knows none of its handlers. Faults stay with the thread that has them.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

uint64_t Queue::push(Op op) {
  std::lock_guard<std::mutex> lock(mutex_);
  ops_.push_back(std::move(op));
  if (!running_) {
    running_ = true;
    SignalsBlocked blocked;
    std::thread([self = shared_from_this()] { self->run(); }).detach();
  }
  work_.notify_one();
  return ++pushed_;
}

uint64_t Queue::last() {
  std::lock_guard<std::mutex> lock(mutex_);
  return pushed_;
}

bool Queue::reached(uint64_t number) {
  std::lock_guard<std::mutex> lock(mutex_);
  return done_ >= number;
}

void Queue::wait(uint64_t number) {
  std::unique_lock<std::mutex> lock(mutex_);
  progress_.wait(lock, [&] { return done_ >= number; });
}

void Queue::close() {
  std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  work_.notify_one();
}

void Queue::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return closed_ || !ops_.empty(); });
    if (ops_.empty()) return;
    Op op = std::move(ops_.front());
    ops_.pop_front();
    lock.unlock();
    op();
    op = nullptr;  // its resources are free before anybody learns that it is done
    lock.lock();
    ++done_;
    progress_.notify_all();
  }
}
