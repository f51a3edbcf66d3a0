// Streams: a thread each, which performs what was enqueued in order.
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstring>

#include "toy.h"

namespace toy {

uint64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

std::thread start(std::function<void()> f) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread t(std::move(f));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return t;
}

void Mark::reach() {
  std::lock_guard<std::mutex> lock(mutex);
  done = true, at = now();
  reached.notify_all();
}

void Mark::wait() {
  std::unique_lock<std::mutex> lock(mutex);
  reached.wait(lock, [this] { return done; });
}

Stream::Stream(Device* d) : device(d), thread(start([this] { run(); })) {}

// Enqueued work is still done.
Stream::~Stream() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    ending = true;
    changed.notify_all();
  }
  thread.join();
}

void Stream::run() {
  std::unique_lock<std::mutex> lock(mutex);
  for (;;) {
    changed.wait(lock, [this] { return !queue.empty() || ending; });
    if (queue.empty()) return;
    Operation o = std::move(queue.front());
    queue.pop_front();
    busy = true;
    lock.unlock();
    perform(device, o);
    o = Operation{};  // it gives up its image before the stream counts as idle
    lock.lock();
    busy = false;
    changed.notify_all();
  }
}

// After the device was lost nothing is done any more, and whoever waits is let go.
void perform(Device* d, const Operation& o) {
  if (o.reach) o.reach->reach();
  if (o.await) o.await->wait();
  if (!o.work || d->lost.load()) return;
  Access access;
  o.work();
}

Stream* stream_of(Device* d, mscclpp_device_handle h) {
  std::lock_guard<std::mutex> lock(d->mutex);
  if (h == 0) return d->standard.get();
  auto* s = reinterpret_cast<Stream*>(h);
  return d->streams.count(s) == 1 ? s : nullptr;
}

Status enqueue(Device* d, mscclpp_device_handle stream, Operation o, const char* call) {
  if (d->lost.load()) return answer(MSCCLPP_DEVICE_LOST, call);
  Stream* s = stream_of(d, stream);
  if (s == nullptr) return answer(kBadHandle, call);
  std::lock_guard<std::mutex> lock(s->mutex);
  if (s->recording) {
    std::lock_guard<std::mutex> both(s->recording->mutex);
    s->recording->branches[s->branch].push_back(std::move(o));
    return answer(0, nullptr);
  }
  s->queue.push_back(std::move(o));
  s->changed.notify_all();
  return answer(0, nullptr);
}

namespace {

// A kernel or a copy that leaves the memory of the device: the device is lost.
bool reachable(Device* d, uint64_t address, uint64_t bytes) {
  if (known(address, bytes)) return true;
  d->lost.store(true);
  return false;
}

bool is_word(uint64_t to, uint64_t from, uint64_t bytes) { return bytes == 8 && (to | from) % 8 == 0; }

Status copy(mscclpp_device* device, mscclpp_device_handle stream, uint64_t to, uint64_t from, uint64_t bytes) {
  Device* d = of(device);
  return enqueue(d, stream, {[=] {
    if (!reachable(d, to, bytes) || !reachable(d, from, bytes)) return;
    if (is_word(to, from, bytes)) {
      __atomic_store_n(reinterpret_cast<uint64_t*>(to), __atomic_load_n(reinterpret_cast<uint64_t*>(from), __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
    } else {
      memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
    }
  }, nullptr, nullptr}, "toyCopy");
}

Status set(mscclpp_device* device, mscclpp_device_handle stream, uint64_t to, uint8_t value, uint64_t bytes) {
  Device* d = of(device);
  return enqueue(d, stream, {[=] {
    if (reachable(d, to, bytes)) memset(reinterpret_cast<void*>(to), value, bytes);
  }, nullptr, nullptr}, "toySet");
}

Status write_word(mscclpp_device* device, mscclpp_device_handle stream, uint64_t address, uint64_t value) {
  Device* d = of(device);
  if (address % 8 != 0) return answer(MSCCLPP_DEVICE_INVALID, "toyWrite");
  return enqueue(d, stream, {[=] {
    if (reachable(d, address, 8)) __atomic_store_n(reinterpret_cast<uint64_t*>(address), value, __ATOMIC_RELEASE);
  }, nullptr, nullptr}, "toyWrite");
}

Status wait_word(mscclpp_device* device, mscclpp_device_handle stream, uint64_t address, uint64_t value) {
  Device* d = of(device);
  if (address % 8 != 0) return answer(MSCCLPP_DEVICE_INVALID, "toyWait");
  return enqueue(d, stream, {[=] {
    if (!reachable(d, address, 8)) return;
    for (unsigned n = 0; static_cast<int64_t>(__atomic_load_n(reinterpret_cast<uint64_t*>(address), __ATOMIC_ACQUIRE) - value) < 0; ++n) {
      if (n < 1000) sched_yield();
      else usleep(20);
    }
  }, nullptr, nullptr}, "toyWait");
}

Status create(mscclpp_device* device, int32_t, mscclpp_device_handle* out) {
  Device* d = of(device);
  if (d->lost.load()) return answer(MSCCLPP_DEVICE_LOST, "toyStreamCreate");
  auto* s = new Stream(d);
  std::lock_guard<std::mutex> lock(d->mutex);
  d->streams.insert(s);
  *out = reinterpret_cast<mscclpp_device_handle>(s);
  return answer(0, nullptr);
}

Status destroy(mscclpp_device* device, mscclpp_device_handle h) {
  Device* d = of(device);
  auto* s = reinterpret_cast<Stream*>(h);
  {
    std::lock_guard<std::mutex> lock(d->mutex);
    if (d->streams.erase(s) == 0) return answer(kBadHandle, "toyStreamDestroy");
    ++d->leaving;
  }
  // Its work may take long, and the caller does not wait for it.
  start([d, s] {
    delete s;
    std::lock_guard<std::mutex> lock(d->mutex);
    --d->leaving;
    d->left.notify_all();
  }).detach();
  return answer(0, nullptr);
}

Status query(mscclpp_device* device, mscclpp_device_handle h) {
  Stream* s = stream_of(of(device), h);
  if (s == nullptr) return answer(kBadHandle, "toyStreamQuery");
  if (of(device)->lost.load()) return answer(MSCCLPP_DEVICE_LOST, "toyStreamQuery");
  std::lock_guard<std::mutex> lock(s->mutex);
  if (s->recording) return answer(MSCCLPP_DEVICE_CAPTURING, "toyStreamQuery");
  return answer(s->busy || !s->queue.empty() ? MSCCLPP_DEVICE_NOT_READY : 0, "toyStreamQuery");
}

Status capturing(mscclpp_device* device, mscclpp_device_handle h) {
  Stream* s = stream_of(of(device), h);
  if (s == nullptr) return answer(kBadHandle, "toyStreamCapturing");
  std::lock_guard<std::mutex> lock(s->mutex);
  return answer(s->recording ? MSCCLPP_DEVICE_CAPTURING : 0, "toyStreamCapturing");
}

Status sync(mscclpp_device* device, mscclpp_device_handle h) {
  Stream* s = stream_of(of(device), h);
  if (s == nullptr) return answer(kBadHandle, "toyStreamSync");
  std::unique_lock<std::mutex> lock(s->mutex);
  if (s->recording) return answer(MSCCLPP_DEVICE_CAPTURING, "toyStreamSync");
  s->changed.wait(lock, [s] { return !s->busy && s->queue.empty(); });
  return answer(of(device)->lost.load() ? MSCCLPP_DEVICE_LOST : 0, "toyStreamSync");
}

}  // namespace

void fill_queue(mscclpp_device_backend* t) {
  t->copy = copy, t->set = set, t->write_word = write_word, t->wait_word = wait_word;
  t->stream_create = create, t->stream_destroy = destroy, t->stream_query = query, t->stream_capturing = capturing, t->stream_sync = sync;
}

}  // namespace toy
