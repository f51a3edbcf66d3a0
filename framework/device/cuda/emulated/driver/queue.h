// Asynchronous work: a queue with a thread of its own, in order.
#ifndef EMULATED_QUEUE_H_
#define EMULATED_QUEUE_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

using Op = std::function<void()>;

class Queue : public std::enable_shared_from_this<Queue> {
 public:
  // Appends an operation and returns its number, from 1.
  uint64_t push(Op op);
  // The number of the last operation that was appended.
  uint64_t last();
  bool reached(uint64_t number);
  // Waits until operation number, and all before it, are done.
  void wait(uint64_t number);
  // Lets the thread end once everything is done.
  void close();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable work_, progress_;
  std::deque<Op> ops_;
  uint64_t pushed_ = 0, done_ = 0;
  bool running_ = false, closed_ = false;
};

// A point in a queue. The zero value has been reached.
struct Mark {
  std::shared_ptr<Queue> queue;
  uint64_t number = 0;

  bool reached() const { return queue == nullptr || queue->reached(number); }
  void wait() const {
    if (queue != nullptr) queue->wait(number);
  }
};

#endif  // EMULATED_QUEUE_H_
